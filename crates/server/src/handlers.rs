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
//! - [`in_force`]: the rules that hold now
//! - [`jobs`]: the jobs for a dead letter
//! - [`message`]: what a handler gets
//! - [`signature`]: signs as Standard Webhooks do
//! - [`webhook`]: sends one

pub(crate) mod guard;
mod in_force;
pub(crate) mod jobs;
pub(crate) mod message;
mod signature;
pub(crate) mod webhook;

use outlast_core::job::DeadLetterReason;
use outlast_core::queue::LetterRule;
use outlast_core::time::Span;
use outlast_store::query::UnhandledLetter;
use outlast_store::queue::QueueRecord;
use outlast_store_rules::apply::queue::receiver_name;

pub use self::guard::Networks;
pub use self::in_force::InForce;
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
    /// What webhooks are signed with that queues ask for; without one they are not signed.
    pub secret: Option<Secret>,
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
            secret: None,
            allowed: Networks::default(),
            timeout: Span::from_secs(10),
            give_up_after: Span::from_secs(24 * 3600),
        }
    }
}

impl Webhook {
    /// Returns what stands for its address in a job: many receivers are let in by a part of their
    /// address, which is no business of those who see jobs.
    #[must_use]
    pub fn name(&self) -> String {
        receiver_name(&self.url)
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
    /// Returns the rules of the configuration and of queues: those of the configuration come first.
    fn with_queues(&self, queues: &[QueueRecord]) -> Vec<Rule> {
        let of_queue = |record: &QueueRecord| -> Vec<Rule> {
            let rules = record.settings.dead_letters.iter();
            rules.map(|rule| self.of_queue(&record.queue, rule)).collect()
        };
        let of_queues = queues.iter().flat_map(of_queue);
        self.rules.iter().cloned().chain(of_queues).collect()
    }

    fn of_queue(&self, queue: &str, rule: &LetterRule) -> Rule {
        let webhook = |url: &String| Webhook { url: url.clone(), secret: self.secret.clone() };
        Rule {
            queues: vec![queue.to_owned()],
            types: Vec::new(),
            reasons: rule.reasons.clone(),
            webhook: rule.webhook.as_ref().map(webhook),
            action: rule.action.clone(),
        }
    }
}

/// Returns the receiver of this name, if a rule has it.
pub(crate) fn receiver_of<'a>(rules: &'a [Rule], name: &str) -> Option<&'a Webhook> {
    rules.iter().filter_map(|rule| rule.webhook.as_ref()).find(|it| it.name() == name)
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
    fn a_receiver_has_a_name_that_does_not_let_others_in() {
        let of = |url: &str| Webhook { url: url.into(), secret: None }.name();
        let name = of("https://hooks.example.com:8443/services/T0/SECRET");
        assert!(name.starts_with("https://hooks.example.com:8443 #"), "{name}");
        assert!(!name.contains("SECRET") && name.len() < 60, "{name}");
        assert_ne!(name, of("https://hooks.example.com:8443/services/T0/OTHER"));
    }

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
