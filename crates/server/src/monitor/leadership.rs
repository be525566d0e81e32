//! Leadership: one server does a task for all, under a lease in the store.
//!
//! ```text
//! acquire ─▶ leader: do the work under the epoch; renew before the lease is over
//!         └▶ another server leads: try again when its lease is over
//! stop ─▶ resign, so that another server takes over at once
//! ```

use std::time::Duration;

use outlast_core::duty::{Duty, DutyRefusal};
use outlast_core::time::Span;
use outlast_store::command::{DutyAsk, DutyFence};
use outlast_store::{Command, Reply};

use crate::engine::Engine;

/// Longest that a stopping server tries to resign; the lease ends anyway.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(2);

/// This server's candidacy for one task.
pub(super) struct Leadership {
    engine: Engine,
    name: &'static str,
    lease: Span,
    held: Option<Duty>,
}

impl Leadership {
    pub(super) const fn new(engine: Engine, name: &'static str, lease: Span) -> Self {
        Self { engine, name, lease, held: None }
    }

    /// Acquires or renews the lease. Returns the fence for work done under it, or how long another
    /// server certainly leads.
    pub(super) async fn acquire(&mut self) -> Result<DutyFence, Span> {
        let now = self.engine.shared().store_time().unwrap_or_default();
        if let Some(duty) = self.held
            && now.after(Span(self.lease.0 / 2)) < duty.until
        {
            return Ok(self.fence(duty));
        }
        match self.engine.submit(self.ask(Some(self.lease))).await {
            Ok(Reply::Duty(Ok(duty))) => {
                if self.held.is_none_or(|held| held.epoch != duty.epoch) {
                    tracing::info!(task = self.name, epoch = %duty.epoch, "this server is the leader");
                }
                self.held = Some(duty);
                Ok(self.fence(duty))
            }
            Ok(Reply::Duty(Err(refusal))) => {
                self.lost(refusal);
                Err(match refusal {
                    DutyRefusal::Elsewhere(duty) => duty.until.since(now),
                    DutyRefusal::NeverTaken => Span::ZERO,
                })
            }
            Ok(_) => Err(Span::ZERO),
            Err(error) => {
                tracing::debug!(%error, task = self.name, "failed to acquire leadership");
                Err(Span::ZERO)
            }
        }
    }

    /// Records that another server leads.
    pub(super) fn lost(&mut self, refusal: DutyRefusal) {
        if self.held.take().is_some() {
            tracing::info!(task = self.name, %refusal, "another server has become the leader");
        }
    }

    /// Lets another server take over at once.
    pub(super) async fn resign(mut self) {
        if self.held.take().is_some() {
            let resigning = self.engine.submit(self.ask(None));
            if !matches!(tokio::time::timeout(RESIGN_TIMEOUT, resigning).await, Ok(Ok(_))) {
                tracing::debug!(task = self.name, "failed to resign leadership");
            }
        }
    }

    fn ask(&self, hold: Option<Span>) -> Command {
        Command::Duty(DutyAsk { name: self.name.to_owned(), holder: self.engine.server_id(), hold })
    }

    fn fence(&self, duty: Duty) -> DutyFence {
        DutyFence { name: self.name.to_owned(), holder: duty.holder, epoch: duty.epoch }
    }
}
