//! One of the duties that a single server does for all: held by a lease in the store.
//!
//! ```text
//! ask ─▶ held: do the work, with the epoch; ask again before the lease is over
//!     └▶ another's: look again when its lease is over
//! stop ─▶ give it back, so that another goes on at once
//! ```

use std::time::Duration;

use outlast_core::duty::{Duty, DutyRefusal};
use outlast_core::time::Span;
use outlast_store::command::{DutyAsk, DutyFence};
use outlast_store::{Command, Reply};

use crate::engine::Engine;

/// Longest that a server that stops tries to give a duty back; its lease ends anyway.
const GIVE_BACK_MAX: Duration = Duration::from_secs(2);

/// This server's side of a duty.
pub(super) struct Keeper {
    engine: Engine,
    name: &'static str,
    lease: Span,
    held: Option<Duty>,
}

impl Keeper {
    pub(super) const fn new(engine: Engine, name: &'static str, lease: Span) -> Self {
        Self { engine, name, lease, held: None }
    }

    /// Returns what to show with work that is done under the duty, or how long another has
    /// it for sure.
    pub(super) async fn hold(&mut self) -> Result<DutyFence, Span> {
        let now = self.engine.board().store_time().unwrap_or_default();
        if let Some(duty) = self.held
            && now.after(Span(self.lease.0 / 2)) < duty.until
        {
            return Ok(self.fence(duty));
        }
        match self.engine.submit(self.ask(Some(self.lease))).await {
            Ok(Reply::Duty(Ok(duty))) => {
                if self.held.is_none_or(|held| held.epoch != duty.epoch) {
                    tracing::info!(duty = self.name, epoch = %duty.epoch, "this server has a duty");
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
                tracing::debug!(%error, duty = self.name, "cannot ask for a duty");
                Err(Span::ZERO)
            }
        }
    }

    /// Notes that the duty is another's.
    pub(super) fn lost(&mut self, refusal: DutyRefusal) {
        if self.held.take().is_some() {
            tracing::info!(duty = self.name, %refusal, "another server has taken a duty over");
        }
    }

    /// Lets another server take the duty at once.
    pub(super) async fn give_back(mut self) {
        if self.held.take().is_some() {
            let giving = self.engine.submit(self.ask(None));
            if !matches!(tokio::time::timeout(GIVE_BACK_MAX, giving).await, Ok(Ok(_))) {
                tracing::debug!(duty = self.name, "could not give a duty back");
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
