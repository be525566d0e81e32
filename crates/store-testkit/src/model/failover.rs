//! What a store lost when a standby took the place of its primary.

use outlast_core::evidence::Evidence;
use outlast_core::job::{Event as JobEvent, EventKind, Refusal, Transition};
use outlast_store::command::{Adopt, EndDetail, NoteLoss};
use outlast_store::reply::{MoveRefusal, Moved};
use outlast_store_rules::apply::failover;

use crate::model::tables::ActiveRow;
use crate::model::tx::{Cause, Tx};

impl Tx<'_> {
    pub(super) fn adopt(&mut self, adopt: &Adopt) -> Result<Moved, MoveRefusal> {
        let (seq, row) = self.find(adopt.job)?;
        let current = row.job.epoch;
        let evidence = Evidence::from(failover::ADOPTED);
        let detail = EndDetail { evidence, ..EndDetail::default() };
        let holder = row.in_flight.as_ref().and_then(|attempt| attempt.worker);
        if adopt.epoch == current && holder == Some(adopt.worker) {
            let cause = Cause { kind: EventKind::Start, by: &adopt.by, detail: &detail };
            return self.play(seq, JobEvent::Start, 0, &cause);
        }
        if adopt.epoch <= current {
            return Err(Refusal::Superseded { reported: adopt.epoch, current }.into());
        }
        let worker = self.tables.workers.get(&adopt.worker);
        if !worker.is_some_and(|worker| worker.standing.holds_lease()) {
            return Err(Refusal::NotHolder { current }.into());
        }
        let event = JobEvent::Claim { worker: Some(adopt.worker), starts: true };
        let claimed = self.bench.decide(&failover::as_claimable(&row.job), event, 0)?;
        let from = row.job.state;
        let step = Transition { from, next_epoch: adopt.epoch, ..claimed };
        let limits = self.tables.limits_in_force();
        let gates = limits.gates_of(&row.stored.key, &row.stored.keys);
        let attempt = ActiveRow {
            worker: Some(adopt.worker),
            plain: None,
            claimed: self.now(),
            visible: None,
            pack_digest: None,
            gates: gates.iter().map(|gate| gate.id).collect(),
        };
        self.tables.charge(&gates, self.now());
        let cause = Cause { kind: EventKind::Claim, by: &adopt.by, detail: &detail };
        self.apply_transition(seq, &step, &cause, Some(attempt)).ok_or(MoveRefusal::NotFound)
    }

    pub(super) fn note_loss(&mut self, note: &NoteLoss) {
        let now = self.now();
        failover::events(note, now).for_each(|event| self.log_event(event));
    }
}
