//! Following a job: its output as it comes, until the job has ended.
//!
//! While the server is unreachable it waits: the job continues in the meantime.

use std::time::Duration;

use outlast_cli_core::client::Client;
use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{at, escape, escape_lines, say, text_at, when};
use serde_json::Value;

use crate::output::{self, print};

/// Shortest and longest pause between two questions; it doubles while nothing happens.
const PAUSE_MIN: Duration = Duration::from_millis(20);
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(320);
/// How long a job may wait before it is said why.
const SILENT_MAX: Duration = Duration::from_secs(2);
/// How long a server may be away before following it is given up.
pub(super) const AWAY_MAX: Duration = Duration::from_secs(30);

/// Where output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogSink {
    /// The job's stdout to ours, its stderr to ours.
    Streams,
    /// Both to stderr, because stdout is for the result.
    Beside,
    /// One JSON document a piece, to stdout.
    Lines,
    /// Nowhere yet: the caller prints all of it at the end.
    Kept,
}

/// Where the last piece of output left the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// At the start of a line.
    Fresh,
    /// Behind output of stdout or stderr that did not end its line.
    Open(Onto),
}

/// The stream that a piece of output was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Onto {
    Stdout,
    Stderr,
}

/// How a wait ended.
#[derive(Debug)]
pub(super) enum Waited {
    /// The job has ended, with this outcome.
    Ended(Value),
    /// The time was over first; this is how the job was last seen.
    TimedOut(Value),
}

/// A job that is followed.
#[derive(Debug)]
pub(super) struct Follow<'a> {
    client: &'a Client,
    id: &'a str,
    sink: LogSink,
    after: Option<String>,
    kept: Vec<Value>,
    /// The epoch that the last piece was of.
    epoch: Option<u64>,
    line: Line,
    /// Whether the first attempt has a heading too.
    headings: bool,
    /// Whether the job is followed for its output alone.
    output_alone: bool,
}

impl<'a> Follow<'a> {
    pub(super) fn new(client: &'a Client, id: &'a str, sink: LogSink) -> Self {
        let (after, kept) = (None, Vec::new());
        let line = Line::Fresh;
        Self {
            client,
            id,
            sink,
            after,
            kept,
            epoch: None,
            line,
            headings: false,
            output_alone: false,
        }
    }

    /// Follows the job for its output alone: when its reader has gone, nothing is left to do.
    pub(super) const fn output_alone(mut self) -> Self {
        self.output_alone = true;
        self
    }

    /// Prints what comes until the job has ended, or for `limit`.
    pub(super) async fn until_it_ends(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<Waited, Failure> {
        let begun = clock::moment();
        let mut pause = PAUSE_MIN;
        let mut away: Option<Moment> = None;
        let mut last = Value::Null;
        let mut shown = String::new();
        loop {
            match self.turn().await {
                Ok((job, printed)) => {
                    if self.output_alone {
                        output::end_without_reader()?;
                    }
                    away = None;
                    pause = if printed { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
                    last = job;
                    if clock::moment().since(begun) >= SILENT_MAX {
                        self.show_reason(&last, &mut shown)?;
                    }
                    if has_ended(&last) {
                        self.end_line()?;
                        return Ok(Waited::Ended(last));
                    }
                }
                Err(failure) if failure.exit == Exit::Unreachable => {
                    self.end_line()?;
                    let now = clock::moment();
                    if away.is_none() {
                        say(&format!("{}; waiting for the server\n", escape(&failure.message)));
                    }
                    if now.since(*away.get_or_insert(now)) > AWAY_MAX {
                        return Err(failure);
                    }
                    pause = PAUSE_MAX;
                }
                Err(failure) => return Err(failure),
            }
            let spent = clock::moment().since(begun);
            match limit.map(|limit| limit.saturating_sub(spent)) {
                Some(Duration::ZERO) => {
                    self.end_line()?;
                    return Ok(Waited::TimedOut(last));
                }
                left => tokio::time::sleep(left.unwrap_or(pause).min(pause)).await,
            }
        }
    }

    /// Prints why a job waits, and again when that changes; `shown` is what was printed last.
    fn show_reason(&mut self, job: &Value, shown: &mut String) -> Result<(), Failure> {
        if job.get("status").and_then(Value::as_str) != Some("requested") {
            shown.clear();
            return Ok(());
        }
        let why = match (at(job, "due"), at(job, "waiting_reason")) {
            (Some(_), _) => format!("until {}", when(job, "due")),
            (None, Some(_)) => text_at(job, "waiting_reason"),
            (None, None) => return Ok(()),
        };
        // Counts and ages in a reason change from look to look; what it is about does not.
        let about: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        if *shown != about {
            self.end_line()?;
            say(&format!("job {} waits: {why}\n", self.id));
            *shown = about;
        }
        Ok(())
    }

    /// One look: the job first, so that output printed before its end is not missed.
    async fn turn(&mut self) -> Result<(Value, bool), Failure> {
        let answer = self.client.get(&["api", "v1", "executions", self.id], &[]).await?;
        let job = output::data(answer);
        self.has_seen(&job);
        let printed = self.print_new().await?;
        Ok((job, printed))
    }

    /// Learns from the job how its output is to be headed.
    pub(super) fn has_seen(&mut self, job: &Value) {
        self.headings |= job.get("attempt").and_then(Value::as_u64).unwrap_or(0) > 1;
    }

    /// Prints what was not printed yet; says whether there was any.
    pub(super) async fn print_new(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        loop {
            let pieces = self.next_page().await?;
            if pieces.is_empty() {
                return Ok(any);
            }
            any = true;
            pieces.into_iter().try_for_each(|piece| self.show(piece))?;
        }
    }

    /// All output there was, if the sink keeps it.
    pub(super) fn into_kept(self) -> Vec<Value> {
        self.kept
    }

    async fn next_page(&mut self) -> Result<Vec<Value>, Failure> {
        let path = ["api", "v1", "executions", self.id, "logs"];
        let page = self.client.get(&path, &[("after", self.after.clone())]).await?;
        let pieces = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        let last = pieces.last().and_then(|piece| piece.get("n"));
        if let Some(last) = last {
            let last = last.as_str().map_or_else(|| last.to_string(), ToOwned::to_owned);
            if self.after.as_ref() == Some(&last) {
                // The page repeats: asking again would print the same output forever.
                return Ok(Vec::new());
            }
            self.after = Some(last);
        }
        Ok(pieces)
    }

    fn show(&mut self, piece: Value) -> Result<(), Failure> {
        let text = piece.get("text").and_then(Value::as_str).unwrap_or_default();
        let is_error = piece.get("stream").and_then(Value::as_str) == Some("stderr");
        match self.sink {
            LogSink::Lines => print(&format!("{piece}\n")),
            LogSink::Kept => {
                self.kept.push(piece);
                Ok(())
            }
            LogSink::Streams | LogSink::Beside => {
                self.begin_attempt(piece.get("epoch").and_then(Value::as_u64))?;
                let onto = match self.sink {
                    LogSink::Streams if !is_error => Onto::Stdout,
                    LogSink::Streams | LogSink::Beside | LogSink::Lines | LogSink::Kept => {
                        Onto::Stderr
                    }
                };
                if self.line == Line::Open(other(onto)) {
                    self.end_line()?;
                }
                self.line = if text.ends_with('\n') { Line::Fresh } else { Line::Open(onto) };
                // A program that reads gets the bytes; a terminal gets no commands from a job.
                match onto {
                    Onto::Stdout if !output::is_terminal() => print(text),
                    Onto::Stdout => print(&escape_lines(text)),
                    Onto::Stderr => {
                        say(&escape_lines(text));
                        Ok(())
                    }
                }
            }
        }
    }

    /// Says on stderr, which is for what stands beside the data, where another attempt begins.
    fn begin_attempt(&mut self, epoch: Option<u64>) -> Result<(), Failure> {
        let Some(epoch) = epoch.filter(|epoch| self.epoch != Some(*epoch)) else { return Ok(()) };
        if let Line::Open(Onto::Stdout) = self.line {
            self.line = Line::Fresh;
            print("\n")?;
        }
        // The output of a job that was run once needs no heading.
        if self.headings || self.epoch.is_some() || epoch > 1 {
            self.end_line()?;
            say(&format!("--- attempt {epoch}\n"));
        }
        self.epoch = Some(epoch);
        Ok(())
    }

    /// Ends a line that a job left open, so that what follows does not run into it.
    pub(super) fn end_line(&mut self) -> Result<(), Failure> {
        match std::mem::replace(&mut self.line, Line::Fresh) {
            // A program that reads gets the bytes of the job and no others.
            Line::Open(Onto::Stdout) if output::is_terminal() => print("\n"),
            Line::Open(_) => {
                say("\n");
                Ok(())
            }
            Line::Fresh => Ok(()),
        }
    }
}

const fn other(onto: Onto) -> Onto {
    match onto {
        Onto::Stdout => Onto::Stderr,
        Onto::Stderr => Onto::Stdout,
    }
}

/// Whether nothing will change about the job by itself.
pub(super) fn has_ended(job: &Value) -> bool {
    let status = job.get("status").and_then(Value::as_str).unwrap_or_default();
    matches!(status, "completed" | "failed" | "timeout" | "cancelled" | "abandoned")
}
