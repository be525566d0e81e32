//! Workers: their leases, their standing, and what moves when one is given up.

use std::collections::BTreeMap;

use outlast_core::id::WorkerId;
use outlast_core::job::{Event as JobEvent, EventKind, Overlap, State};
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::{Liveness, Standing, WorkerEvent, WorkerRefusal, decide};

use crate::command::{Attach, EndDetail, Lapse, LapseScope, Registration, Renew, WorkerMove};
use crate::event::EventName;
use crate::model::tables::Seq;
use crate::model::tx::{Cause, Tx};
use crate::record::WorkerRecord;
use crate::reply::{Attached, Moved, RenewRefusal, Renewed, Reply, WorkerMoveRefusal, WorkerMoved};
use crate::settle::{lost_error, worker_event, worker_event_name};

/// Who gives a worker up, and why.
#[derive(Clone, Copy)]
struct Word<'a> {
    by: &'a str,
    evidence: &'a str,
    mass: bool,
}

impl Tx<'_> {
    pub(super) fn register(&mut self, new: &Registration) -> Result<Standing, WorkerRefusal> {
        let now = self.now();
        let mut row = self.tables.workers.get(&new.id).cloned().map_or_else(
            || Ok(fresh(new)),
            |row| match row.standing.liveness {
                Liveness::Live | Liveness::Suspect => Ok(row),
                Liveness::Lapsed => Err(WorkerRefusal::Lapsed),
                Liveness::Gone => Err(WorkerRefusal::Gone),
            },
        )?;
        if row.renewal == 0 {
            row.renewal = 1;
            row.created = now;
            row.last_heartbeat = now;
            row.lease_until = now.after(new.lease);
            self.tables.registered.push(new.id);
            self.tell(worker_event(new.id, EventName::WorkerRegistered, now, &new.name, ""));
        }
        row.name.clone_from(&new.name);
        row.role = new.role;
        row.concurrency = new.concurrency;
        row.queues.clone_from(&new.queues);
        row.runtimes.clone_from(&new.runtimes);
        row.labels.clone_from(&new.labels);
        row.about.clone_from(&new.about);
        row.plain_id.clone_from(&new.plain_id);
        row.lease = new.lease;
        row.updated = now;
        let standing = row.standing;
        self.tables.workers.insert(new.id, row);
        Ok(standing)
    }

    pub(super) fn renew(&mut self, renew: &Renew) -> Result<Renewed, RenewRefusal> {
        let row = self.renewed(renew.worker, WorkerEvent::Beat)?;
        let row = WorkerRecord { lease: renew.lease, ..row };
        let reply = Renewed {
            renewal: row.renewal,
            standing: row.standing,
            held: self.count_held(renew.worker),
        };
        self.keep(row);
        Ok(reply)
    }

    pub(super) fn attach(&mut self, attach: &Attach) -> Result<Attached, RenewRefusal> {
        let row = self.renewed(attach.worker, WorkerEvent::Attach)?;
        let session = row.session + 1;
        let row = WorkerRecord { session, lease: attach.lease, updated: self.now(), ..row };
        let standing = row.standing;
        self.tell(worker_event(row.id, EventName::WorkerAttached, self.now(), &row.name, ""));
        self.keep(row);
        Ok(Attached { session, standing })
    }

    fn renewed(&self, worker: WorkerId, event: WorkerEvent) -> Result<WorkerRecord, RenewRefusal> {
        let row = self.tables.workers.get(&worker).ok_or(RenewRefusal::UnknownWorker)?;
        let standing = decide(row.standing, event)?;
        let (renewal, last_heartbeat) = (row.renewal + 1, self.now());
        Ok(WorkerRecord { standing, renewal, last_heartbeat, ..row.clone() })
    }

    /// Keeps a row whose lease begins anew.
    fn keep(&mut self, mut row: WorkerRecord) {
        row.lease_until = self.now().after(row.lease);
        self.tables.workers.insert(row.id, row);
    }

    pub(super) fn move_worker(
        &mut self,
        order: &WorkerMove,
    ) -> Result<WorkerMoved, WorkerMoveRefusal> {
        let row = self.tables.workers.get(&order.worker);
        let row = row.ok_or(WorkerMoveRefusal::UnknownWorker)?;
        if order.session.is_some_and(|session| session != row.session) {
            return Err(WorkerMoveRefusal::StaleSession { current: row.session });
        }
        let standing = decide(row.standing, order.event)?;
        let word = Word { by: &order.by, evidence: &order.evidence, mass: false };
        self.stand(order.worker, standing, order.event, word);
        let moved = match order.event {
            WorkerEvent::Goodbye | WorkerEvent::Died => {
                let all = self.held_seqs(order.worker, |_| true);
                self.lose(order.worker, &all, word)
            }
            WorkerEvent::Beat
            | WorkerEvent::Attach
            | WorkerEvent::Drop
            | WorkerEvent::Lapse
            | WorkerEvent::Quiet
            | WorkerEvent::Resume
            | WorkerEvent::Drain => Vec::new(),
        };
        let kept = self.count_held(order.worker);
        Ok(WorkerMoved { worker: order.worker, standing, moved, kept })
    }

    pub(super) fn lapse(&mut self, lapse: &Lapse) -> Result<WorkerMoved, WorkerMoveRefusal> {
        let row = self.tables.workers.get(&lapse.worker);
        let row = row.ok_or(WorkerMoveRefusal::UnknownWorker)?.clone();
        if row.renewal != lapse.renewal {
            return Err(WorkerMoveRefusal::Renewed);
        }
        let going = match lapse.scope {
            LapseScope::OverlapAllowed => {
                decide(row.standing, WorkerEvent::Lapse)?;
                if row.standing.liveness != Liveness::Suspect {
                    return Err(WorkerMoveRefusal::Renewed);
                }
                self.held_seqs(lapse.worker, |overlap| overlap == Overlap::Allowed)
            }
            LapseScope::Everything => self.held_seqs(lapse.worker, |_| true),
        };
        let standing = match (decide(row.standing, WorkerEvent::Lapse), lapse.scope) {
            (Ok(standing), _) => standing,
            (Err(WorkerRefusal::Lapsed), LapseScope::Everything) if !going.is_empty() => {
                row.standing
            }
            (Err(refusal), _) => return Err(refusal.into()),
        };
        if lapse.scope == LapseScope::Everything && self.now() < row.lease_until {
            return Err(WorkerMoveRefusal::Renewed);
        }
        let word = Word { by: &lapse.by, evidence: &lapse.evidence, mass: lapse.mass };
        if standing != row.standing {
            self.stand(lapse.worker, standing, WorkerEvent::Lapse, word);
        }
        let moved = self.lose(lapse.worker, &going, word);
        let kept = self.count_held(lapse.worker);
        Ok(WorkerMoved { worker: lapse.worker, standing, moved, kept })
    }

    fn stand(&mut self, worker: WorkerId, standing: Standing, event: WorkerEvent, word: Word<'_>) {
        let now = self.now();
        if let Some(row) = self.tables.workers.get_mut(&worker) {
            row.standing = standing;
            row.updated = now;
            word.evidence.clone_into(&mut row.evidence);
        }
        if let Some(name) = worker_event_name(event) {
            self.tell(worker_event(worker, name, now, word.by, word.evidence));
        }
    }

    fn held_seqs(&self, worker: WorkerId, moves: impl Fn(Overlap) -> bool) -> Vec<Seq> {
        self.tables
            .rows_held_by(worker)
            .filter(|(_, row)| moves(row.job.rules.overlap))
            .map(|(seq, _)| seq)
            .collect()
    }

    /// Moves attempts away from a worker that was given up.
    fn lose(&mut self, worker: WorkerId, going: &[Seq], word: Word<'_>) -> Vec<Moved> {
        let alone = self.tables.holds_one(worker);
        let mut moved = Vec::new();
        for (nth, seq) in going.iter().enumerate() {
            let cancelled =
                self.tables.rows.get(seq).is_some_and(|row| row.job.state == State::Cancelled);
            let detail = EndDetail {
                error: (!cancelled).then(|| lost_error(word.evidence)),
                evidence: word.evidence.to_owned(),
                ..EndDetail::default()
            };
            let cause = Cause { kind: EventKind::Lose, by: word.by, detail: &detail };
            let event = JobEvent::Lose { alone, mass: word.mass };
            moved.extend(self.play(*seq, event, nth, &cause).ok());
        }
        moved
    }

    fn count_held(&self, worker: WorkerId) -> u32 {
        u32::try_from(self.tables.rows_held_by(worker).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) -> Reply {
        let live = self.tables.workers.get(&worker).is_none_or(|row| row.standing.holds_lease());
        if live || self.count_held(worker) > 0 {
            return Reply::NotFound;
        }
        self.drop_worker(worker);
        Reply::Done
    }

    pub(super) fn drop_worker(&mut self, worker: WorkerId) {
        self.tables.workers.remove(&worker);
        self.tables.registered.retain(|id| *id != worker);
    }
}

/// A row that is not kept yet: its renewal number is not one.
fn fresh(new: &Registration) -> WorkerRecord {
    WorkerRecord {
        id: new.id,
        name: String::new(),
        role: new.role,
        standing: Standing::NEW,
        concurrency: 0,
        queues: Vec::new(),
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        last_heartbeat: Timestamp(0),
        created: Timestamp(0),
        updated: Timestamp(0),
        renewal: 0,
        session: 0,
        lease: new.lease,
        lease_until: Timestamp(0),
        in_flight: 0,
        evidence: String::new(),
        about: String::new(),
        plain_id: None,
    }
}
