//! One act on several things: every one is tried, every refusal is said, the worst one decides
//! the exit code.

use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;
use serde_json::Value;

/// What came of it so far.
#[derive(Debug, Default)]
pub(super) struct Round {
    done: Vec<Value>,
    refused: Vec<Failure>,
}

impl Round {
    /// Notes what became of one of them.
    pub(super) fn note(&mut self, name: &str, outcome: Result<Value, Failure>) {
        match outcome {
            Ok(answer) => self.done.push(answer),
            Err(failure) if failure.message.contains(name) => self.refused.push(failure),
            Err(failure) => {
                let message = format!("{name}: {}", failure.message);
                self.refused.push(Failure { message, ..failure });
            }
        }
    }

    /// The answers of those that went well.
    pub(super) fn done(&self) -> &[Value] {
        &self.done
    }

    /// Says every refusal; of several, how many there were.
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

#[cfg(test)]
mod tests {
    use super::Round;
    use outlast_cli_core::exit::{Exit, Failure};
    use serde_json::json;

    #[test]
    fn the_worst_refusal_decides_and_one_alone_is_said_as_it_is() {
        let conflict = || Failure::new(Exit::Conflict, "job a is completed");
        let mut one = Round::default();
        one.note("a", Err(conflict()));
        assert_eq!(one.end(), Err(conflict()));
        let mut several = Round::default();
        several.note("a", Err(conflict()));
        several.note("b", Ok(json!({})));
        several.note("c", Err(Failure::new(Exit::NotFound, "job is not known")));
        let worst = Failure::new(Exit::Conflict, "2 of 3 refused, 1 done");
        assert_eq!(several.end(), Err(worst));
    }
}
