//! A cache of the attempts that this server gave out, so that reports need not load them.
//!
//! Another server may have moved such a job since. The statement that moves it names everything
//! that the decision depends on, and hits no row if that has changed.

use std::collections::HashMap;

use outlast_core::id::JobId;
use outlast_store::command::{Fence, Reporter};
use outlast_store_rules::apply::loaded::Loaded;

/// Most attempts remembered; beyond it all are forgotten, and looked up.
const ATTEMPTS_MAX: usize = 16 * 1024;

/// Attempts held by native workers, without their payloads.
#[derive(Debug, Default)]
pub(super) struct AttemptCache {
    attempts: HashMap<JobId, Loaded>,
}

impl AttemptCache {
    /// Takes the attempt that a report is about, if it is the one that is remembered.
    pub(super) fn take(&mut self, job: JobId, fence: &Fence) -> Option<Loaded> {
        let live = self.attempts.remove(&job)?;
        let attempt = live.attempt()?;
        let same_worker = match (&fence.worker, attempt.worker) {
            (Some(Reporter::Native(reporter)), Some(worker)) => *reporter == worker,
            _ => false,
        };
        (same_worker && fence.epoch == Some(live.job.epoch)).then_some(live)
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.attempts.remove(&job);
    }

    /// Remembers attempts as a batch left them.
    pub(super) fn keep(&mut self, attempts: Vec<Loaded>) {
        if self.attempts.len() + attempts.len() > ATTEMPTS_MAX {
            self.attempts.clear();
        }
        self.attempts.extend(attempts.into_iter().map(|live| (live.stored.id, live)));
    }
}
