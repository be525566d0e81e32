//! What is asked of a worker: by the jobs of a class, and by the queue that they wait in.
//!
//! What jobs ask is stored with their class. What their queue asks is a setting, and is added here,
//! whenever someone looks: so a change is one of all its jobs at once, and no job is written again.

use std::borrow::Cow;

use outlast_core::selector::Placement;
use outlast_store::command::ClassKey;
use outlast_store_rules::apply::limit::Limits;

/// What is asked of a worker that is to run jobs of a class.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    /// The class; what its jobs ask themselves is part of it.
    pub(crate) key: &'a ClassKey,
    /// What their queue asks.
    pub(crate) by_queue: Cow<'a, Placement>,
}

/// How much a worker has of what is preferred. What the jobs prefer themselves counts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Merit {
    pub(crate) by_jobs: usize,
    pub(crate) by_queue: usize,
}

impl<'a> Asked<'a> {
    /// Returns what is asked where these settings are in force, whatever becomes of them.
    pub(crate) fn now(key: &'a ClassKey, limits: &Limits) -> Self {
        Self { key, by_queue: Cow::Owned(by_queue(&key.queue, limits)) }
    }

    /// Whether plain clients may take the jobs: they run no actions and have no labels.
    pub(crate) fn is_for_plain_clients(&self) -> bool {
        self.key.is_for_plain_clients() && self.by_queue.takes_unlabelled()
    }

    /// Whether a worker without labels will do.
    pub(crate) fn takes_unlabelled(&self) -> bool {
        self.key.placement.takes_unlabelled() && self.by_queue.takes_unlabelled()
    }

    /// Whether some workers are preferred.
    pub(crate) fn prefers_some(&self) -> bool {
        !self.key.placement.prefers.is_empty() || !self.by_queue.prefers.is_empty()
    }
}

/// Returns what a queue asks of the workers of its jobs.
pub(crate) fn by_queue(queue: &str, limits: &Limits) -> Placement {
    limits.queue(queue).map(|settings| settings.placement.clone()).unwrap_or_default()
}
