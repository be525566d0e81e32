//! The external ledger: what the jobs themselves say that they did.
//!
//! One line per event, appended by one write. The system under test never touches it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// A ledger file.
#[derive(Clone, Debug)]
pub struct Ledger {
    path: PathBuf,
}

/// One line of it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Line {
    /// The job's id.
    pub job: String,
    /// The attempt's epoch.
    pub epoch: u64,
    /// The process id, as its own namespace counts.
    pub pid: u64,
    /// What happened.
    pub event: Event,
    /// When, since boot.
    #[serde(deserialize_with = "seconds")]
    pub at: Duration,
}

/// What a job can say.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// It began.
    Start,
    /// It still runs.
    Alive,
    /// It was asked to end.
    Term,
    /// It ended with a failure, as its parameters asked.
    Failed,
    /// It did what it had to.
    End,
}

/// One attempt as the ledger knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its epoch.
    pub epoch: u64,
    /// How often it began: once, if all is well.
    pub starts: usize,
    /// When it began.
    pub first: Duration,
    /// The last sign of life.
    pub last: Duration,
    /// Whether it came to its end.
    pub ended: bool,
}

fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
}

impl Ledger {
    /// Opens the ledger at `path`, which need not exist yet.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads every complete line.
    ///
    /// # Panics
    ///
    /// When a line cannot be read: then nothing can be judged.
    #[must_use]
    pub fn read(&self) -> Vec<Line> {
        parse(&std::fs::read_to_string(&self.path).unwrap_or_default())
    }

    /// Returns the attempts of each job, in the order in which they began.
    #[must_use]
    pub fn traces(&self) -> BTreeMap<String, Vec<Trace>> {
        traces(&self.read())
    }

    /// Returns the attempts of one job, in the order in which they began.
    #[must_use]
    pub fn of(&self, job: &str) -> Vec<Trace> {
        self.traces().remove(job).unwrap_or_default()
    }

    /// Returns the most of these jobs that ran at the same time, as the lines follow each other: a
    /// job says that it ends before its worker reports it.
    #[must_use]
    pub fn most_at_a_time(&self, is_one: impl Fn(&str) -> bool) -> usize {
        let (mut running, mut most) = (Vec::new(), 0);
        for line in self.read().into_iter().filter(|line| is_one(&line.job)) {
            let attempt = (line.job, line.epoch);
            match line.event {
                Event::Start => running.push(attempt),
                Event::End | Event::Failed => running.retain(|other| *other != attempt),
                Event::Alive | Event::Term => {}
            }
            most = most.max(running.len());
        }
        most
    }

    /// Tells whether an attempt began.
    #[must_use]
    pub fn has_started(&self, job: &str, epoch: u64) -> bool {
        self.of(job).iter().any(|trace| trace.epoch == epoch)
    }
}

fn parse(text: &str) -> Vec<Line> {
    // A line without its newline is being written at this moment.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let read = |line: &str| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("ledger line {line:?}: {error}"))
    };
    complete.lines().map(read).collect()
}

fn traces(lines: &[Line]) -> BTreeMap<String, Vec<Trace>> {
    let mut jobs: BTreeMap<String, Vec<Trace>> = BTreeMap::new();
    for line in lines {
        let traces = jobs.entry(line.job.clone()).or_default();
        let at = match traces.iter().position(|trace| trace.epoch == line.epoch) {
            Some(at) => at,
            None => {
                let (epoch, at) = (line.epoch, line.at);
                traces.push(Trace { epoch, starts: 0, first: at, last: at, ended: false });
                traces.len() - 1
            }
        };
        let trace = &mut traces[at];
        trace.starts += usize::from(line.event == Event::Start);
        trace.ended |= matches!(line.event, Event::End | Event::Failed);
        trace.last = trace.last.max(line.at);
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"job":"a","epoch":1,"pid":2,"event":"start","at":10.25}"#,
        "\n",
        r#"{"job":"a","epoch":1,"pid":2,"event":"alive","at":10.30}"#,
        "\n",
        r#"{"job":"a","epoch":2,"pid":2,"event":"start","at":11.00}"#,
        "\n",
        r#"{"job":"a","epoch":2,"pid":2,"event":"end","at":11.50}"#,
        "\n",
        r#"{"job":"a","epo"#,
    );

    #[test]
    fn attempts_are_read_with_their_spans_and_a_torn_last_line_is_left() {
        let found = traces(&parse(LINES)).remove("a").unwrap();
        let ms = Duration::from_millis;
        let expected = [
            Trace { epoch: 1, starts: 1, first: ms(10_250), last: ms(10_300), ended: false },
            Trace { epoch: 2, starts: 1, first: ms(11_000), last: ms(11_500), ended: true },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    #[should_panic(expected = "ledger line")]
    fn a_line_that_is_no_entry_stops_the_judge() {
        let _lines = parse("nonsense\n");
    }
}
