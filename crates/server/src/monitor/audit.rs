//! The audit of limits: each minute, the server that deletes old history compares what limits count
//! with the attempts that hold them.
//!
//! What differs is corrected, reported as an event and counted: it is a bug of Outlast. Where nothing
//! does, nothing is written. Each audit goes on where the last one has ended: gates that stay wrong,
//! because other sessions have them locked, hide no others.

use outlast_core::limit::{GateId, LimitName};
use outlast_core::time::Span;
use outlast_store::command::{LeadershipFence, Recount};
use outlast_store::limit::Miscount;
use tokio::sync::watch;

use crate::clock::millis;
use crate::engine::Engine;
use crate::engine::trouble_log::log_trouble;

/// How many idle intervals pass between two audits: a minute.
const EVERY: u64 = 2;
/// How many counts one audit corrects at most. The next one finds the others.
const CORRECTED_MAX: u32 = 100;

/// Audits limits while this server leads.
pub(super) struct Audit {
    engine: Engine,
    interval: Span,
    leadership: watch::Receiver<Option<LeadershipFence>>,
    /// The last gate of the last audit, if there may be others behind it.
    after: Option<GateId>,
}

impl Audit {
    pub(super) const fn new(
        engine: Engine,
        idle: Span,
        leadership: watch::Receiver<Option<LeadershipFence>>,
    ) -> Self {
        Self { engine, interval: Span(idle.0 * EVERY), leadership, after: None }
    }

    pub(super) async fn run(&mut self) {
        loop {
            let leadership = match self.leadership.wait_for(Option::is_some).await {
                Ok(leadership) => leadership.clone(),
                Err(_closed) => return,
            };
            if let Some(leadership) = leadership {
                self.audit(leadership).await;
            }
            tokio::time::sleep(millis(self.interval)).await;
        }
    }

    async fn audit(&mut self, leadership: LeadershipFence) {
        let after = self.after.take();
        let mut looked = self.engine.store().miscounted_gates(after, CORRECTED_MAX).await;
        if after.is_some() && looked.as_ref().is_ok_and(Vec::is_empty) {
            looked = self.engine.store().miscounted_gates(None, CORRECTED_MAX).await;
        }
        let gates = match looked {
            Ok(gates) if gates.is_empty() => return,
            Ok(gates) => gates,
            Err(error) => {
                log_trouble!(
                    warn,
                    self.engine.shared(),
                    error,
                    "failed to compare what limits count"
                );
                return;
            }
        };
        self.after = gates.last().copied();
        match self.engine.submit(Recount { leadership, gates }).await {
            Ok(Ok(corrected)) => self.report(&corrected),
            // The next prune finds out who leads.
            Ok(Err(_refusal)) => {}
            Err(error) => {
                log_trouble!(
                    warn,
                    self.engine.shared(),
                    error,
                    "failed to correct what limits count"
                );
            }
        }
    }

    fn report(&self, corrected: &[Miscount]) {
        self.engine.counters().recounted(corrected.len());
        for Miscount { limit, value, counted, held, .. } in corrected {
            let limit = limit.as_ref().map(LimitName::as_str);
            let value = value.as_deref();
            tracing::error!(limit, value, counted, held, "limit counted wrongly, corrected");
        }
    }
}
