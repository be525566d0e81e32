//! One operation on several items: all are tried, every refusal is printed, and the worst one
//! decides the exit code.

use std::io::IsTerminal as _;

use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, say};
use serde_json::Value;

use crate::output::{Format, print_list};

/// The outcomes so far.
#[derive(Debug, Default)]
pub(super) struct Batch {
    done: Vec<Value>,
    refused: Vec<Failure>,
}

impl Batch {
    /// Adds the outcome for one item.
    pub(super) fn add(&mut self, name: &str, outcome: Result<Value, Failure>) {
        match outcome {
            Ok(answer) => self.done.push(answer),
            Err(failure) if failure.message.contains(name) => self.refused.push(failure),
            Err(failure) => {
                let message = format!("{name}: {}", failure.message);
                self.refused.push(Failure { message, ..failure });
            }
        }
    }

    /// How many succeeded.
    pub(super) fn count(&self) -> usize {
        self.done.len()
    }

    /// Prints the responses for those that succeeded. A table without rows says nothing beside
    /// the refusals, and is left out.
    pub(super) fn print(&self, format: Format, columns: &[Column]) -> Result<(), Failure> {
        if format == Format::Table && self.done.is_empty() && !self.refused.is_empty() {
            return Ok(());
        }
        print_list(format, &self.done, columns)
    }

    /// Prints every refusal; of several also their number.
    pub(super) fn end(self) -> Result<Exit, Failure> {
        let (done, count) = (self.done.len(), self.refused.len());
        let mut refused = self.refused.into_iter();
        let (Some(first), rest) = (refused.next(), refused) else { return Ok(Exit::Ok) };
        if done + count == 1 {
            return Err(first);
        }
        let mut worst = first.exit;
        say(&format!("{first}\n"));
        for failure in rest {
            worst = worst.max(failure.exit);
            say(&format!("{failure}\n"));
        }
        Err(Failure::new(worst, format!("{count} of {} refused, {done} done", done + count)))
    }
}

/// Asks a question on a terminal. Where there is none, a script has decided already.
///
/// # Errors
/// The answer is not yes, or cannot be read.
pub(super) fn confirm(question: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(());
    }
    say(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(unchanged()),
    }
}

/// Reads the answer to a question that has one.
///
/// # Errors
/// The answer is another one, or cannot be read.
pub(super) fn answered(expected: &str) -> Result<(), Failure> {
    let mut answer = String::new();
    match std::io::stdin().read_line(&mut answer) {
        Ok(_) if answer.trim() == expected => Ok(()),
        _ => Err(unchanged()),
    }
}

fn unchanged() -> Failure {
    let hint = "--dry-run shows what it would be; --yes does not ask";
    Failure::new(Exit::Failed, "nothing was changed").with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::Batch;
    use outlast_cli_core::exit::{Exit, Failure};
    use serde_json::json;

    #[test]
    fn the_worst_refusal_decides_and_one_alone_is_said_as_it_is() {
        let conflict = || Failure::new(Exit::Conflict, "job a is completed");
        let mut one = Batch::default();
        one.add("a", Err(conflict()));
        assert_eq!(one.end(), Err(conflict()));
        let mut several = Batch::default();
        several.add("a", Err(conflict()));
        several.add("b", Ok(json!({})));
        several.add("c", Err(Failure::new(Exit::NotFound, "job is not known")));
        let worst = Failure::new(Exit::Conflict, "2 of 3 refused, 1 done");
        assert_eq!(several.end(), Err(worst));
    }
}
