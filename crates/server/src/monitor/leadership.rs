//! Leadership: one server does a task for all, under a lease in the store.
//!
//! ```text
//! acquire ─▶ leader: do the work under the epoch; renew before the lease is over
//!         └▶ another server leads: try again when its lease is over
//! stop ─▶ resign, so that another server takes over at once
//! ```

use std::time::Duration;

use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::time::Span;
use outlast_store::command::{LeadershipFence, LeadershipRequest};

use crate::engine::Engine;

/// Longest that a stopping server tries to resign; the lease ends anyway.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(2);

/// Why this server does not lead.
#[derive(Clone, Copy, Debug)]
pub(super) enum NotLeading {
    /// Another one certainly does, for this long.
    Elsewhere(Span),
    /// The store could not say.
    Failed,
}

/// This server's candidacy for one task.
pub(super) struct Candidate {
    engine: Engine,
    name: &'static str,
    lease: Span,
    current: Option<Leadership>,
}

impl Candidate {
    pub(super) const fn new(engine: Engine, name: &'static str, lease: Span) -> Self {
        Self { engine, name, lease, current: None }
    }

    /// Acquires or renews the lease. Returns the fence for work done under it.
    pub(super) async fn acquire(&mut self) -> Result<LeadershipFence, NotLeading> {
        let now = self.engine.shared().store_time().unwrap_or_default();
        if let Some(leadership) = self.current
            && now.after(Span(self.lease.0 / 2)) < leadership.until
        {
            return Ok(self.fence(leadership));
        }
        match self.engine.submit(self.request(Some(self.lease))).await {
            Ok(Ok(leadership)) => {
                if self.current.is_none_or(|current| current.epoch != leadership.epoch) {
                    tracing::info!(task = self.name, epoch = %leadership.epoch, "this server is the leader");
                }
                self.current = Some(leadership);
                Ok(self.fence(leadership))
            }
            Ok(Err(refusal)) => {
                self.lost(refusal);
                Err(NotLeading::Elsewhere(match refusal {
                    LeadershipRefusal::Elsewhere(leadership) => leadership.until.since(now),
                    LeadershipRefusal::NeverTaken => Span::ZERO,
                }))
            }
            Err(error) => {
                tracing::debug!(%error, task = self.name, "failed to acquire leadership");
                Err(NotLeading::Failed)
            }
        }
    }

    /// Records that another server leads.
    pub(super) fn lost(&mut self, refusal: LeadershipRefusal) {
        if self.current.take().is_some() {
            tracing::info!(task = self.name, %refusal, "another server has become the leader");
        }
    }

    /// Lets another server take over at once.
    pub(super) async fn resign(mut self) {
        if self.current.take().is_some() {
            let resigning = self.engine.submit(self.request(None));
            if !matches!(tokio::time::timeout(RESIGN_TIMEOUT, resigning).await, Ok(Ok(_))) {
                tracing::debug!(task = self.name, "failed to resign leadership");
            }
        }
    }

    fn request(&self, hold: Option<Span>) -> LeadershipRequest {
        LeadershipRequest { name: self.name.to_owned(), holder: self.engine.server_id(), hold }
    }

    fn fence(&self, leadership: Leadership) -> LeadershipFence {
        LeadershipFence {
            name: self.name.to_owned(),
            holder: leadership.holder,
            epoch: leadership.epoch,
        }
    }
}
