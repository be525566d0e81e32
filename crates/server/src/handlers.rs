//! What happens when a job becomes a dead letter: a webhook is sent, or an action runs.
//!
//! ```text
//! dead letter ──one server, at each rule that matches──▶ a job in the queue `outlast.handlers`
//!                                                          │ claimed, sent, and reported by any server
//!                                                          └▶ POST of a webhook, or another job
//! ```
//!
//! A handler is a job: it is stored before the dead letter counts as handled, is tried again with longer
//! and longer pauses, shows each attempt, and can be repeated. Its id follows from the dead letter and
//! the rule, so that no server and no crash makes it twice; a receiver gets that id with every try.
//!
//! - [`guard`]: which addresses are refused
//! - [`message`]: what a handler gets
//! - [`plan`]: the jobs for a dead letter
//! - [`signature`]: signs as Standard Webhooks do
//! - [`webhook`]: sends one

pub(crate) mod guard;
pub(crate) mod message;
pub(crate) mod plan;
mod signature;
pub(crate) mod webhook;

use outlast_core::job::DeadLetterReason;
use outlast_core::time::Span;
use outlast_store::query::UnhandledLetter;

pub use self::guard::Networks;
pub use self::signature::{BadSecret, Secret};

/// The queue of the jobs that handle dead letters.
pub const QUEUE: &str = "outlast.handlers";

/// Their type.
pub const JOB_TYPE: &str = "outlast.dead_letter";

/// Which dead letters are handled, and how. A list that is empty matches all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Queues of the jobs.
    pub queues: Vec<String>,
    /// Types of the jobs.
    pub types: Vec<String>,
    /// Why they were dead-lettered.
    pub reasons: Vec<DeadLetterReason>,
    /// Where a webhook is sent.
    pub webhook: Option<Webhook>,
    /// The action that runs.
    pub action: Option<String>,
}

/// A receiver of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its address.
    pub url: String,
    /// What messages are signed with; without one they are not signed.
    pub secret: Option<Secret>,
}

/// The operator's settings about handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handlers {
    /// Every rule that matches a dead letter has its effect.
    pub rules: Vec<Rule>,
    /// Networks that webhooks may reach although their addresses are not public.
    pub allowed: Networks,
    /// How long a receiver has for its answer.
    pub timeout: Span,
    /// For how long a handler is tried.
    pub give_up_after: Span,
}

impl Default for Handlers {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            allowed: Networks::default(),
            timeout: Span::from_secs(10),
            give_up_after: Span::from_secs(24 * 3600),
        }
    }
}

impl Rule {
    /// Whether it is about a dead letter.
    #[must_use]
    pub fn matches(&self, letter: &UnhandledLetter) -> bool {
        let is_listed = |list: &[String], word: &String| list.is_empty() || list.contains(word);
        is_listed(&self.queues, &letter.queue)
            && is_listed(&self.types, &letter.job_type)
            && (self.reasons.is_empty() || self.reasons.contains(&letter.reason))
    }
}

impl Handlers {
    /// The secret for the receiver at this address, if a rule names it; nothing if none does.
    fn webhook(&self, url: &str) -> Option<&Webhook> {
        self.rules.iter().filter_map(|rule| rule.webhook.as_ref()).find(|it| it.url == url)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use outlast_core::id::JobId;
    use outlast_core::time::Timestamp;
    use outlast_store::command::LetterKey;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_rule_matches_what_it_lists_and_everything_where_it_lists_nothing() {
        let letter = UnhandledLetter {
            key: LetterKey { job: JobId(Uuid::nil()), life: NonZeroU32::MIN },
            queue: "mail".into(),
            job_type: "mail.send".into(),
            reason: DeadLetterReason::Exhausted,
            at: Timestamp(0),
        };
        let rule = |queues: &[&str], types: &[&str], reasons: &[DeadLetterReason]| Rule {
            queues: queues.iter().map(|it| (*it).to_owned()).collect(),
            types: types.iter().map(|it| (*it).to_owned()).collect(),
            reasons: reasons.to_vec(),
            webhook: None,
            action: None,
        };
        let poison = DeadLetterReason::PoisonSuspect;
        for (rule, expected) in [
            (rule(&[], &[], &[]), true),
            (rule(&["web", "mail"], &[], &[]), true),
            (rule(&["web"], &[], &[]), false),
            (rule(&[], &["mail.send"], &[poison, DeadLetterReason::Exhausted]), true),
            (rule(&[], &["mail.read"], &[]), false),
            (rule(&["mail"], &[], &[poison]), false),
        ] {
            assert_eq!(rule.matches(&letter), expected, "{rule:?}");
        }
    }
}
