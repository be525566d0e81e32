//! Workers: their leases, their standing, and what moves when one is given up.

use std::collections::BTreeMap;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::WorkerId;
use outlast_core::job::{Event as JobEvent, EventKind, Hold, Outcome, Overlap};
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::{
    Liveness, Phase, Standing, WorkerEvent, WorkerRefusal, decide,
};
use outlast_core::worker::order::{
    self, GivenOrder, HEIR_COMES_WITHIN, HEIR_TAKES_ORDERS, OrderChange, OrderRefusal,
    StandingOrder, WorkerOrder, first_phase, in_force,
};
use outlast_store::command::{
    Attach, EndDetail, ForgetWorker, Lapse, LapseScope, OrderWorkers, Registration, Renew,
    ReportHealth, WorkerMove,
};
use outlast_store::event::EventName;
use outlast_store::record::{Unhealthy, WorkerRecord};
use outlast_store::reply::{
    Attached, Moved, NotFound, RenewRefusal, Renewed, WorkerMoveRefusal, WorkerMoved,
    WorkersOrdered,
};
use outlast_store_rules::apply::worker::first_phase_event;
use outlast_store_rules::rules::{
    Leave, lost_error, standing_order_event, worker_event, worker_event_name,
};

use crate::model::tables::{Row, Seq};
use crate::model::tx::{Cause, Tx};

/// Who declares a worker dead, and why.
#[derive(Clone, Copy)]
struct Word<'a> {
    by: &'a str,
    evidence: &'a Evidence,
    mass: bool,
}

impl Tx<'_> {
    pub(super) fn register(&mut self, new: &Registration) -> Result<Standing, WorkerRefusal> {
        let now = self.now();
        let known = self.tables.workers.get(&new.id);
        let is_new = known.is_none();
        let row = known.cloned().unwrap_or_else(|| fresh(new, now));
        let mut standing = decide(row.standing, WorkerEvent::Beat)?;
        let order = in_force(self.tables.orders.values(), &new.labels).cloned();
        let (mut given, mut previous) = (row.given, row.previous);
        if is_new {
            let known = |id: &&WorkerId| self.tables.workers.contains_key(*id);
            previous = new.previous.iter().rev().find(known).copied();
            given = previous.and_then(|id| self.tables.workers.get(&id)?.given);
            standing.phase = first_phase(given, order.as_ref());
        }
        if let Some(followed) = previous.filter(|_| is_new)
            && let Some(followed) = self.tables.workers.get_mut(&followed)
        {
            followed.followed_by = Some(new.id);
        }
        self.keep(WorkerRecord {
            standing,
            given,
            previous,
            name: new.name.clone(),
            concurrency: new.concurrency,
            queues: new.queues.clone(),
            runtimes: new.runtimes.clone(),
            labels: new.labels.clone(),
            about: new.about.clone(),
            plain_id: new.plain_id.clone(),
            lease: new.lease,
            renewal: row.renewal + 1,
            last_heartbeat: now,
            updated: now,
            ..row
        });
        let by = format!("worker {}", new.id);
        self.log_event(worker_event(
            new.id,
            EventName::WorkerRegistered,
            now,
            &by,
            new.name.as_str(),
        ));
        let event = first_phase_event(new.id, standing.phase, order.as_ref(), now);
        if let Some(event) = event.filter(|_| is_new) {
            self.log_event(event);
        }
        Ok(standing)
    }

    pub(super) fn order_workers(
        &mut self,
        given: &OrderWorkers,
    ) -> Result<WorkersOrdered, OrderRefusal> {
        let now = self.now();
        let stand: Vec<_> = self.tables.orders.values().cloned().collect();
        let change = order::change(&stand, &given.selector, given.order)?;
        match change {
            OrderChange::Nothing => {}
            OrderChange::LiftAll => self.tables.orders.clear(),
            OrderChange::LiftOne => drop(self.tables.orders.remove(&given.selector)),
            OrderChange::Stand => {
                let (selector, order) = (given.selector.clone(), given.order);
                let one = StandingOrder { selector, order, set_by: given.by.clone(), set_at: now };
                self.tables.orders.insert(given.selector.clone(), one);
            }
        }
        if change != OrderChange::Nothing {
            self.log_event(standing_order_event(given.order, &given.selector, now, &given.by));
        }
        let workers = &self.tables.workers;
        let takes_orders = |row: &&WorkerRecord| {
            row.followed_by.is_none() && (row.standing.holds_lease() || may_go_on(row, now))
        };
        let chosen: Vec<WorkerRecord> = workers
            .values()
            .filter(takes_orders)
            .filter(|row| given.selector.matches_labels(&row.labels))
            .cloned()
            .collect();
        let (mut reached, mut kept) = (Vec::new(), Vec::new());
        for row in chosen {
            let other = in_force(self.tables.orders.values(), &row.labels);
            match (given.order, other) {
                (WorkerOrder::Resume, Some(other))
                    if row.standing.phase == Phase::Quiet && row.standing.holds_lease() =>
                {
                    kept.push((row.id, other.selector.clone()));
                }
                (WorkerOrder::Resume, Some(_)) => {}
                _ => {
                    let step = WorkerMove::ordered(row.id, given.order, &given.by);
                    let ended_just_now = may_go_on(&row, now)
                        && row.evidence_code != Some(EvidenceCode::WorkerKilled)
                        && now.since(row.updated) <= HEIR_COMES_WITHIN;
                    if self.move_worker(&step).is_ok()
                        && (row.standing.holds_lease() || ended_just_now)
                    {
                        reached.push(row.id);
                    }
                }
            }
        }
        Ok(WorkersOrdered { change, reached, kept })
    }

    pub(super) fn renew(&mut self, renew: &Renew) -> Result<Renewed, RenewRefusal> {
        let row = self.renewed(renew.worker, WorkerEvent::Beat)?;
        let row = WorkerRecord { lease: renew.lease, ..row };
        let reply = Renewed {
            renewal: row.renewal,
            standing: row.standing,
            in_flight: self.count_in_flight(renew.worker),
            unhealthy: row.unhealthy.is_some(),
        };
        self.keep(row);
        Ok(reply)
    }

    pub(super) fn report_health(&mut self, said: &ReportHealth) {
        let now = self.now();
        let row = self.tables.workers.get_mut(&said.worker);
        let Some(row) = row.filter(|row| row.standing.holds_lease()) else { return };
        let since = row.unhealthy.as_ref().map(|unhealthy| unhealthy.since);
        row.unhealthy =
            said.unhealthy.clone().map(|reason| Unhealthy { reason, since: since.unwrap_or(now) });
        let by = format!("worker {}", said.worker);
        let event = match (&said.unhealthy, since) {
            (Some(reason), None) => (EventName::WorkerUnhealthy, reason.as_str()),
            (None, Some(_)) => (EventName::WorkerHealthy, ""),
            _ => return,
        };
        self.log_event(worker_event(said.worker, event.0, now, &by, event.1));
    }

    pub(super) fn attach(&mut self, attach: &Attach) -> Result<Attached, RenewRefusal> {
        let row = self.renewed(attach.worker, WorkerEvent::Attach)?;
        if attach.attachment < row.attachment {
            let (said, current) = (attach.attachment, row.attachment);
            return Err(RenewRefusal::Abandoned { said, current });
        }
        let session = row.session + 1;
        let (attachment, lease) = (attach.attachment, attach.lease);
        let row = WorkerRecord { session, attachment, lease, ..row };
        let (standing, given) = (row.standing, row.given);
        let by = format!("worker {}", row.id);
        self.log_event(worker_event(row.id, EventName::WorkerAttached, self.now(), &by, ""));
        self.keep(row);
        Ok(Attached { session, standing, given })
    }

    fn renewed(&self, worker: WorkerId, event: WorkerEvent) -> Result<WorkerRecord, RenewRefusal> {
        let row = self.tables.workers.get(&worker).ok_or(RenewRefusal::UnknownWorker)?;
        let standing = decide(row.standing, event)?;
        let (renewal, last_heartbeat) = (row.renewal + 1, self.now());
        Ok(WorkerRecord { standing, renewal, last_heartbeat, ..row.clone() })
    }

    /// Stores a row whose lease begins again.
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
        let before = row.standing;
        let given = order.ordered.map(|order| GivenOrder { order, at: self.now() });
        if let Some(given) = given {
            if let Some(heir) = row.followed_by {
                return Err(WorkerMoveRefusal::Followed(heir));
            }
            if may_go_on(row, given.at) {
                return self.order_heir(order, given);
            }
        }
        let by_order = row.given.is_some_and(|given| given.order == WorkerOrder::Quiet);
        let by_itself = order.event == WorkerEvent::Resume && given.is_none();
        let standing = match decide(before, order.event)? {
            _ if by_itself && by_order => before,
            standing => standing,
        };
        if given.is_some() {
            self.note_order(order.worker, given);
        }
        // A worker that said goodbye was not killed: no job is suspected.
        let mass = order.event == WorkerEvent::Goodbye;
        let word = Word { by: &order.by, evidence: &order.evidence, mass };
        if standing != before {
            self.stand(order.worker, standing, order.event, word);
        }
        let going = if standing.holds_lease() {
            Vec::new()
        } else {
            self.in_flight_seqs(order.worker, |_| true)
        };
        let mut moved = self.lose(order.worker, &going, word);
        if !standing.holds_lease() {
            self.take_back(order.worker, Leave::Goodbye, word, &mut moved);
        }
        let kept = self.count_in_flight(order.worker);
        Ok(WorkerMoved { worker: order.worker, standing, moved, kept })
    }

    fn note_order(&mut self, worker: WorkerId, given: Option<GivenOrder>) {
        if let Some(row) = self.tables.workers.get_mut(&worker) {
            row.given = given;
        }
    }

    /// Keeps an order to a worker that has ended, for the one that follows it.
    fn order_heir(
        &mut self,
        step: &WorkerMove,
        given: GivenOrder,
    ) -> Result<WorkerMoved, WorkerMoveRefusal> {
        let row = self.tables.workers.get(&step.worker).ok_or(WorkerMoveRefusal::UnknownWorker)?;
        let (before, standing) = (row.given.map(|given| given.order), row.standing);
        if before == Some(WorkerOrder::Drain) && given.order != WorkerOrder::Drain {
            return Err(WorkerRefusal::Draining.into());
        }
        let name = worker_event_name(step.event).filter(|_| before != Some(given.order));
        if let Some(name) = name {
            let event = worker_event(step.worker, name, given.at, &step.by, &step.evidence);
            self.log_event(event);
        }
        if before != Some(given.order) {
            self.note_order(step.worker, Some(given));
        }
        let kept = self.count_in_flight(step.worker);
        Ok(WorkerMoved { worker: step.worker, standing, moved: Vec::new(), kept })
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
                self.in_flight_seqs(lapse.worker, |overlap| overlap == Overlap::Allowed)
            }
            LapseScope::Everything => self.in_flight_seqs(lapse.worker, |_| true),
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
        let mut moved = self.lose(lapse.worker, &going, word);
        self.take_back(lapse.worker, Leave::Silence, word, &mut moved);
        let kept = self.count_in_flight(lapse.worker);
        Ok(WorkerMoved { worker: lapse.worker, standing, moved, kept })
    }

    /// Takes back what a plain worker holds that left, unless it beats under another
    /// incarnation: its attempts are known by the id that it gave itself.
    fn take_back(
        &mut self,
        worker: WorkerId,
        leave: Leave,
        word: Word<'_>,
        moved: &mut Vec<Moved>,
    ) {
        let workers = &self.tables.workers;
        let plain = workers.get(&worker).and_then(|row| row.plain_id.clone());
        let Some(plain) = plain else { return };
        let beats = |row: &WorkerRecord| {
            row.plain_id.as_deref() == Some(&plain) && row.standing.holds_lease()
        };
        if workers.values().any(beats) {
            return;
        }
        let is_its_own = |row: &Row| {
            row.in_flight.as_ref().is_some_and(|attempt| attempt.plain.as_deref() == Some(&plain))
        };
        let mut seqs: Vec<Seq> = self
            .tables
            .live_rows()
            .filter(|(_, row)| is_its_own(row))
            .map(|(seq, _)| seq)
            .collect();
        seqs.sort_unstable();
        let (detail, event) = (leave.detail(word.evidence), leave.event());
        for seq in seqs {
            let cause = Cause { kind: event.kind(), by: word.by, detail: &detail };
            moved.extend(self.play(seq, event, moved.len(), &cause).ok());
        }
    }

    fn stand(&mut self, worker: WorkerId, standing: Standing, event: WorkerEvent, word: Word<'_>) {
        let now = self.now();
        if let Some(row) = self.tables.workers.get_mut(&worker) {
            row.standing = standing;
            row.updated = now;
            row.evidence.clone_from(&word.evidence.text);
            row.evidence_code = word.evidence.code;
        }
        if let Some(name) = worker_event_name(event) {
            self.log_event(worker_event(worker, name, now, word.by, word.evidence));
        }
    }

    fn in_flight_seqs(&self, worker: WorkerId, moves: impl Fn(Overlap) -> bool) -> Vec<Seq> {
        self.tables
            .rows_in_flight_of(worker)
            .filter(|(_, row)| moves(row.job.rules.overlap))
            .map(|(seq, _)| seq)
            .collect()
    }

    /// Moves attempts away from a worker that was given up.
    fn lose(&mut self, worker: WorkerId, going: &[Seq], word: Word<'_>) -> Vec<Moved> {
        let alone = self.tables.holds_one(worker);
        let mut moved = Vec::new();
        for (nth, seq) in going.iter().enumerate() {
            let Some(row) = self.tables.rows.get(seq) else { continue };
            let event = JobEvent::Lose { alone, mass: word.mass };
            let Ok(step) = self.bench.decide(&row.job, event, nth) else { continue };
            // What was never started, or was cancelled before, is not an error.
            let lost = step.hold == Hold::Drop(Outcome::Lost);
            let detail = EndDetail {
                error: lost.then(|| lost_error(word.evidence)),
                evidence: word.evidence.clone(),
                ..EndDetail::default()
            };
            let cause = Cause { kind: EventKind::Lose, by: word.by, detail: &detail };
            moved.extend(self.apply_transition(*seq, &step, &cause, None));
        }
        moved
    }

    fn count_in_flight(&self, worker: WorkerId) -> u32 {
        u32::try_from(self.tables.rows_in_flight_of(worker).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn forget_worker(&mut self, order: &ForgetWorker) -> Result<(), NotFound> {
        let ForgetWorker { worker, name, by } = order;
        let live = self.tables.workers.get(worker).is_none_or(|row| row.standing.holds_lease());
        if live || self.count_in_flight(*worker) > 0 {
            return Err(NotFound);
        }
        self.tables.workers.remove(worker);
        let name = name.as_str();
        self.log_event(worker_event(*worker, EventName::WorkerForgotten, self.now(), by, name));
        Ok(())
    }
}

fn fresh(new: &Registration, now: Timestamp) -> WorkerRecord {
    WorkerRecord {
        id: new.id,
        name: new.name.clone(),
        role: new.role,
        standing: Standing::NEW,
        concurrency: new.concurrency,
        queues: Vec::new(),
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        last_heartbeat: now,
        created: now,
        updated: now,
        renewal: 0,
        session: 0,
        attachment: 0,
        lease: new.lease,
        lease_until: now.after(new.lease),
        in_flight: 0,
        oldest_claim: None,
        evidence: "registered".to_owned(),
        about: String::new(),
        plain_id: None,
        unhealthy: None,
        given: None,
        previous: None,
        followed_by: None,
        evidence_code: None,
    }
}

/// Whether the process of a worker that has ended may go on under another identity.
fn may_go_on(row: &WorkerRecord, now: Timestamp) -> bool {
    let of_late = now.since(row.updated) <= HEIR_TAKES_ORDERS;
    match row.standing.liveness {
        Liveness::Live | Liveness::Suspect => false,
        Liveness::Lapsed => of_late || row.given.is_some(),
        Liveness::Gone => of_late && row.evidence_code == Some(EvidenceCode::EngineKilled),
    }
}
