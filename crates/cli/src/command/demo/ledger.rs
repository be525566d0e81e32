//! The ledger: what the jobs wrote down themselves, and when each line was seen.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::Failure;

/// What a job wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// It began.
    Start,
    /// It came to its end.
    End,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The attempt.
    pub(super) epoch: u64,
    /// What it wrote.
    pub(super) mark: Mark,
    /// When the line was seen.
    pub(super) seen: Moment,
}

/// All lines so far, by job.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    rest: Vec<u8>,
    jobs: BTreeMap<String, Vec<Line>>,
    ended: HashSet<String>,
    malformed: Vec<String>,
}

impl Ledger {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        Ok(Self {
            file,
            rest: Vec::new(),
            jobs: BTreeMap::new(),
            ended: HashSet::new(),
            malformed: Vec::new(),
        })
    }

    /// Reads what was added.
    pub(super) fn read(&mut self) -> Result<(), Failure> {
        self.file.read_to_end(&mut self.rest).map_err(|error| unreadable(&error))?;
        let seen = clock::moment();
        // The last line may not be whole yet.
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        for line in String::from_utf8_lossy(&whole).lines() {
            self.take(line, seen);
        }
        Ok(())
    }

    fn take(&mut self, text: &str, seen: Moment) {
        let Some((job, epoch, mark)) = parse(text) else {
            self.malformed.push(text.to_owned());
            return;
        };
        if mark == Mark::End {
            self.ended.insert(job.to_owned());
        }
        self.jobs.entry(job.to_owned()).or_default().push(Line { epoch, mark, seen });
    }

    /// How many jobs have come to their end at least once.
    pub(super) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// The lines of a job.
    pub(super) fn of(&self, job: &str) -> &[Line] {
        self.jobs.get(job).map_or(&[], Vec::as_slice)
    }

    /// Every job that wrote anything.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }

    /// Lines that are not of the ledger's form.
    pub(super) fn malformed(&self) -> &[String] {
        &self.malformed
    }
}

fn parse(line: &str) -> Option<(&str, u64, Mark)> {
    let mut words = line.split(' ');
    let (job, epoch, mark) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let mark = match mark {
        "start" => Mark::Start,
        "end" => Mark::End,
        _ => return None,
    };
    words.next().is_none().then_some((job, epoch, mark))
}

fn unreadable(error: &std::io::Error) -> Failure {
    Failure::failed(format!("the ledger cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Mark, parse};
    use std::io::Write;

    #[test]
    fn only_whole_lines_are_taken() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut ledger = Ledger::open(file.path()).unwrap();
        file.write_all(b"a 1 start\na 1 en").unwrap();
        ledger.read().unwrap();
        assert_eq!((ledger.of("a").len(), ledger.ended()), (1, 0));
        file.write_all(b"d\n").unwrap();
        ledger.read().unwrap();
        assert_eq!((ledger.of("a").len(), ledger.ended()), (2, 1));
    }

    #[test]
    fn a_torn_line_is_no_line() {
        assert_eq!(parse("job 7 end"), Some(("job", 7, Mark::End)));
        for line in ["job 7", "job x end", "job 7 en", "job 7 end more", ""] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
