//! The steps of a workflow on a terminal, drawn by the server.

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::{at, escape_lines, say, terminal_size};
use serde_json::Value;

use crate::output::{self, Format, is_terminal, print};

/// Columns where there is no terminal: nothing is cut in a pipe. The server draws no wider.
const WIDTH: usize = 1_000;

/// How wide a drawing is to be.
pub(super) fn width() -> usize {
    terminal_size().map_or(WIDTH, |(columns, _)| columns)
}

/// The drawing that an answer has.
pub(super) fn text(workflow: &Value) -> String {
    let drawn = at(workflow, "drawing").and_then(Value::as_str).unwrap_or_default();
    escape_lines(drawn)
}

/// A drawing that is replaced as the workflow goes on. Without a terminal each new one follows the
/// one before.
#[derive(Debug)]
pub(super) struct Drawing {
    onto: Onto,
    shown: Option<String>,
    /// Whether the command does nothing else.
    is_alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Onto {
    /// A terminal of so many lines.
    Terminal(usize),
    Stdout,
    /// Stdout is for the workflow as JSON.
    Stderr,
}

impl Drawing {
    pub(super) fn new(format: Format) -> Self {
        let lines = terminal_size().map(|(_, lines)| lines).filter(|_| is_terminal());
        let onto = match (format, lines) {
            (Format::Json | Format::Jsonl, _) => Onto::Stderr,
            (Format::Table, Some(lines)) => Onto::Terminal(lines),
            (Format::Table, None) => Onto::Stdout,
        };
        Self { onto, shown: None, is_alone: false }
    }

    /// Ends the command once its drawings have no reader any more.
    pub(super) const fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }

    /// Shows how the workflow is, if that is new.
    pub(super) fn show(&mut self, workflow: &Value) -> Result<(), Failure> {
        if let Some(text) = self.next(text(workflow)) {
            match self.onto {
                Onto::Terminal(_) | Onto::Stdout => print(&text)?,
                Onto::Stderr => say(&text),
            }
        }
        if self.is_alone { output::end_without_reader() } else { Ok(()) }
    }

    /// Returns the text that shows a drawing; `None` if the same one is shown already.
    fn next(&mut self, drawn: String) -> Option<String> {
        let drawn = match self.onto {
            Onto::Terminal(lines) => fitting(&drawn, lines),
            Onto::Stdout | Onto::Stderr => drawn,
        };
        let before = self.shown.replace(drawn.clone());
        match (before, self.onto) {
            (Some(before), _) if before == drawn => None,
            (None, _) => Some(drawn),
            // Up to its first line, and everything from there is erased.
            (Some(before), Onto::Terminal(_)) => {
                Some(format!("\u{1b}[{}A\u{1b}[J{drawn}", before.lines().count()))
            }
            (Some(_), Onto::Stdout | Onto::Stderr) => Some(format!("\n{drawn}")),
        }
    }
}

/// As many lines as a terminal can go back over.
fn fitting(drawn: &str, lines: usize) -> String {
    let all = drawn.lines().count();
    let most = lines.saturating_sub(1).max(2);
    if all <= most {
        return drawn.to_owned();
    }
    let kept: String = drawn.lines().take(most - 1).flat_map(|line| [line, "\n"]).collect();
    format!("{kept}… {} more\n", all - (most - 1))
}

#[cfg(test)]
mod tests {
    use super::{Drawing, Onto, fitting};

    #[test]
    fn what_has_not_changed_is_not_drawn_again() {
        let mut drawing = Drawing { onto: Onto::Stdout, shown: None, is_alone: false };
        let mut next = |text: &str| drawing.next(text.to_owned());
        assert_eq!(next("a\n").as_deref(), Some("a\n"));
        assert_eq!(next("a\n"), None);
        assert_eq!(next("b\n").as_deref(), Some("\nb\n"));
    }

    #[test]
    fn a_terminal_draws_over_what_it_shows_and_no_more_than_it_can_go_back_over() {
        let mut drawing = Drawing { onto: Onto::Terminal(4), shown: None, is_alone: false };
        let mut next = |text: &str| drawing.next(text.to_owned());
        assert_eq!(next("a\nb\n").as_deref(), Some("a\nb\n"));
        assert_eq!(next("a\nc\n").as_deref(), Some("\u{1b}[2A\u{1b}[Ja\nc\n"));
        assert_eq!(next("1\n2\n3\n4\n5\n").as_deref(), Some("\u{1b}[2A\u{1b}[J1\n2\n… 3 more\n"));
        assert_eq!(next("x\n").as_deref(), Some("\u{1b}[3A\u{1b}[Jx\n"));
        assert_eq!(fitting("1\n2\n3\n", 4), "1\n2\n3\n");
    }
}
