//! Log lines of a child: passed on, the last ones kept, a server's address picked out.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::output::say;

/// How many lines are kept to explain a failure.
const KEPT: usize = 15;
/// Longest line read as one, so that no child can fill our memory.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// The log message that announces a server's address; part of the outside contract.
const ANNOUNCEMENT: &str = "listening on http";

/// Where a child's log lines go.
#[derive(Clone, Debug)]
pub enum Echo {
    /// To our own stderr.
    Stderr,
    /// Warnings and errors to our own stderr.
    Warnings,
    /// To a file.
    File(PathBuf),
}

/// The lines of one child.
#[derive(Debug)]
pub(super) struct Lines {
    last: Arc<Mutex<VecDeque<String>>>,
    address: watch::Receiver<Option<String>>,
}

impl Lines {
    /// Reads on a thread of its own until the child and all who share its stderr are gone.
    pub(super) fn read(from: Option<ChildStderr>, echo: &Echo) -> Self {
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let (announce, address) = watch::channel(None);
        let kept = Arc::clone(&last);
        let quiet = matches!(echo, Echo::Warnings);
        let mut file = match echo {
            Echo::Stderr | Echo::Warnings => None,
            Echo::File(path) => File::create(path).ok(),
        };
        if let Some(from) = from {
            std::thread::spawn(move || {
                for_each_line(BufReader::new(from), |line| {
                    if let Some(found) = announced(line) {
                        announce.send_replace(Some(found));
                    }
                    match &mut file {
                        // A log that cannot be written must not stop the child.
                        Some(file) => writeln!(file, "{line}").unwrap_or_default(),
                        None if quiet && is_mere_fact(line) => {}
                        None => say(&format!("{line}\n")),
                    }
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    if kept.len() == KEPT {
                        kept.pop_front();
                    }
                    kept.push_back(line.to_owned());
                });
            });
        }
        Self { last, address }
    }

    pub(super) fn address(&self) -> watch::Receiver<Option<String>> {
        self.address.clone()
    }

    /// Waits until there are no more lines, and all of them were passed on.
    pub(super) async fn all_read(&self) {
        let mut address = self.address();
        while address.changed().await.is_ok() {}
    }

    pub(super) fn last(&self) -> Vec<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().cloned().collect()
    }
}

fn for_each_line<R: BufRead>(mut from: R, mut act: impl FnMut(&str)) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => act(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r'])),
        }
    }
}

/// Whether a line is a log line below a warning. Output that is not a log line is not.
fn is_mere_fact(line: &str) -> bool {
    let levels = ["INFO", "DEBUG", "TRACE"];
    // A log line begins with its time.
    let text = line.split_whitespace().nth(1).filter(|_| line.starts_with(char::is_numeric));
    let json = line.split_once(r#""level":""#).and_then(|(_, rest)| rest.split('"').next());
    let level = if line.starts_with('{') { json } else { text };
    level.is_some_and(|level| levels.contains(&level))
}

/// The address in a server's announcement.
fn announced(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(ANNOUNCEMENT)?;
    let (secure, rest) = rest.split_once("://")?;
    if !matches!(secure, "" | "s") {
        return None;
    }
    let fits =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '[' | ']' | '-' | '%');
    let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
    let address = rest.get(..end)?.trim_end_matches(['.', ':']);
    (!address.is_empty()).then(|| format!("http{secure}://{address}"))
}

#[cfg(test)]
mod tests {
    use super::{announced, is_mere_fact};

    #[test]
    fn address_is_found_in_text_and_json_lines() {
        let found = Some("http://127.0.0.1:4711".to_owned());
        let json = r#"{"level":"INFO","message":"listening on http://127.0.0.1:4711"}"#;
        assert_eq!(announced("INFO x: listening on http://127.0.0.1:4711"), found);
        assert_eq!(announced(json), found);
        assert_eq!(announced("INFO connecting to http://127.0.0.1:1"), None);
    }

    #[test]
    fn only_log_lines_below_a_warning_are_mere_facts() {
        assert!(is_mere_fact("2026-11-21T05:57:16Z  INFO outlast: worker is set up"));
        assert!(is_mere_fact(r#"{"timestamp":"x","level":"INFO","message":"WARN"}"#));
        for line in ["2026-11-21T05:57:16Z  WARN outlast: full", "error: INFO is no port", ""] {
            assert!(!is_mere_fact(line), "{line}");
        }
    }

    #[test]
    fn address_of_the_sixth_version_keeps_its_brackets() {
        let line = "listening on http://[::1]:80 store=x";
        assert_eq!(announced(line), Some("http://[::1]:80".to_owned()));
    }
}
