use askama::Template;
use outlast_core::time::{Span, Timestamp};

use crate::Frame;
use crate::atoms::{Bytes, Lasting, Status};

/// One job.
#[derive(Debug, Template)]
#[template(path = "job.html")]
pub struct JobPage {
    /// What stands around it.
    pub frame: Frame,
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: &'static str,
    /// Why it is where it is, in one sentence.
    pub why: String,
    /// Its attempts, the latest first.
    pub attempts: Vec<AttemptRow>,
    /// What is left of its budgets.
    pub budgets: String,
    /// Everything else that is known.
    pub facts: Vec<Fact>,
    /// What it is given.
    pub parameters: Text,
    /// Its result.
    pub result: Option<Text>,
    /// Its latest error.
    pub error: Option<Text>,
    /// The end of its output.
    pub output: Vec<OutputLine>,
    /// What may be done with it: names of orders.
    pub orders: Vec<&'static str>,
}

impl JobPage {
    /// Whether an order may be given.
    #[must_use]
    pub fn may(&self, order: &str) -> bool {
        self.orders.contains(&order)
    }
}

/// An attempt of a job.
#[derive(Clone, Debug)]
pub struct AttemptRow {
    /// Its number.
    pub epoch: u64,
    /// The worker that holds or held it.
    pub worker: Option<String>,
    /// The worker's id, if it has a page.
    pub worker_id: Option<String>,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// How long the job had waited for that.
    pub waited: Option<Span>,
    /// How long it ran, or runs.
    pub ran: Option<Span>,
    /// How it ended, or `running`.
    pub outcome: &'static str,
    /// What that was charged as, in words.
    pub charged: String,
    /// On what evidence it ended.
    pub evidence: String,
    /// Its error in short.
    pub error: String,
}

/// Something that is known.
#[derive(Clone, Debug)]
pub struct Fact {
    /// What it is about.
    pub name: &'static str,
    /// What is known, and where it leads.
    pub text: String,
    /// The instant, if it is one.
    pub at: Option<Timestamp>,
    /// Where it leads, from the root.
    pub href: Option<String>,
}

/// A text that may be long: cut for the page.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// What is shown.
    pub shown: String,
    /// How long it is as a whole, if more than is shown.
    pub whole: Option<u64>,
}

impl Text {
    /// Longest text that a page shows, in bytes.
    pub const MAX: usize = 3_000;

    /// Cuts a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if text.len() <= Self::MAX {
            return Self { shown: text.to_owned(), whole: None };
        }
        let mut end = Self::MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let whole = u64::try_from(text.len()).unwrap_or(u64::MAX);
        Self { shown: text[..end].to_owned(), whole: Some(whole) }
    }
}

/// A piece of a job's output.
#[derive(Clone, Debug)]
pub struct OutputLine {
    /// `stdout` or `stderr`.
    pub stream: &'static str,
    /// What it is.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn long_text_is_cut_between_characters() {
        let short = Text::of("żółw");
        assert_eq!((short.shown.as_str(), short.whole), ("żółw", None));
        let long = Text::of(&"ż".repeat(Text::MAX));
        assert_eq!(long.whole, Some(2 * Text::MAX as u64));
        assert!(long.shown.len() <= Text::MAX && long.shown.chars().all(|c| c == 'ż'));
        let odd = Text::of(&format!("a{}", "ż".repeat(Text::MAX)));
        assert_eq!(odd.shown.len(), Text::MAX - 1);
    }
}
