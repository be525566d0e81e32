//! Progress, as lines of the job's output: at most one a second, and the last one always.

use std::time::Duration;

use crate::clock::Stopwatch;

const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Progress {
    last: Option<Stopwatch>,
    waiting: Option<String>,
}

impl Progress {
    /// Returns the line to be written now, if one is due.
    pub(super) fn note(&mut self, fraction: f64, message: &str) -> Option<String> {
        let percent = fraction.clamp(0.0, 1.0) * 100.0;
        let line = if message.is_empty() {
            format!("progress {percent:.0} %\n")
        } else {
            format!("progress {percent:.0} %: {message}\n")
        };
        if self.last.is_some_and(|last| last.elapsed() < PAUSE) {
            self.waiting = Some(line);
            return None;
        }
        self.last = Some(Stopwatch::start());
        self.waiting = None;
        Some(line)
    }

    /// Returns what was not written.
    pub(super) const fn rest(&mut self) -> Option<String> {
        self.waiting.take()
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn of_many_notes_in_a_second_the_first_and_the_last_are_written() {
        let mut progress = Progress::default();
        assert_eq!(progress.note(0.0, "begins").as_deref(), Some("progress 0 %: begins\n"));
        assert_eq!(progress.note(0.5, ""), None);
        assert_eq!(progress.note(7.0, ""), None);
        assert_eq!(progress.rest().as_deref(), Some("progress 100 %\n"));
        assert_eq!(progress.rest(), None);
    }
}
