//! Workers: registration, leases, and giving them up with what they hold.

use outlast_core::evidence::Evidence;
use outlast_core::id::WorkerId;
use outlast_core::job::{Event as JobEvent, EventKind, Hold, Outcome, Overlap};
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::{Liveness, Standing, WorkerEvent, WorkerRefusal, decide};
use outlast_store::StoreError;
use outlast_store::command::{
    Attach, EndDetail, Lapse, LapseScope, Registration, Renew, WorkerMove,
};
use outlast_store::event::EventName;
use outlast_store::reply::{
    Attached, Moved, RenewRefusal, Renewed, Reply, WorkerMoveRefusal, WorkerMoved,
};
use outlast_store::settle::{Leave, lost_error, worker_event, worker_event_name};
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed, int, standing_words};
use crate::writer::Writing;
use crate::writer::transition::Trace;

/// What a decision about a worker looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) standing: Standing,
    pub(super) session: u64,
    attachment: u64,
    renewal: u64,
    lease_until: Timestamp,
}

/// Whether and why held jobs move.
struct Loss<'a> {
    mass: bool,
    by: &'a str,
    evidence: &'a Evidence,
}

impl Writing<'_> {
    pub(super) fn worker_standing(&self, worker: WorkerId) -> Result<Option<Known>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select phase, liveness, session_seq, renewal_seq, lease_until_ms, attachment
                 from worker where id = ?",
            )
            .map_err(failed)?;
        select
            .query_row([worker.to_string()], |row| {
                Ok(Known {
                    standing: row::standing(row.get(0)?, row.get(1)?),
                    session: row.get(2)?,
                    renewal: row.get(3)?,
                    lease_until: row::time(row, 4)?,
                    attachment: row.get(5)?,
                })
            })
            .optional()
            .map_err(failed)
    }

    pub(super) fn plain_standing(&self, plain: &str) -> Result<Option<Standing>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select phase, liveness from worker where plain_id = ?
                 order by created_ms desc, id desc limit 1",
            )
            .map_err(failed)?;
        select
            .query_row([plain], |row| Ok(row::standing(row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(failed)
    }

    pub(super) fn register(
        &mut self,
        registration: &Registration,
    ) -> Result<Result<Standing, WorkerRefusal>, StoreError> {
        let standing = match self.worker_standing(registration.id)? {
            None => Standing::NEW,
            Some(known) => match decide(known.standing, WorkerEvent::Beat) {
                Ok(standing) => standing,
                Err(refusal) => return Ok(Err(refusal)),
            },
        };
        let (status, state) = standing_words(standing);
        self.execute(
            "insert into worker (id, name, worker_role, status, state, last_heartbeat, created,
                 updated, phase, liveness, concurrency, queues, runtimes, labels, renewal_seq,
                 session_seq, lease_ms, lease_until_ms, last_heartbeat_ms, created_ms, updated_ms,
                 evidence, about, plain_id)
             values (?1, ?2, ?3, ?4, ?5, strftime('%Y-%m-%dT%H:%M:%fZ', ?6 / 1000.0, 'unixepoch'),
                 strftime('%Y-%m-%dT%H:%M:%fZ', ?6 / 1000.0, 'unixepoch'),
                 strftime('%Y-%m-%dT%H:%M:%fZ', ?6 / 1000.0, 'unixepoch'),
                 ?7, ?8, ?9, ?10, ?11, ?12, 1, 0, ?13, ?14, ?6, ?6, ?6, 'registered', ?15, ?16)
             on conflict (id) do update set name = excluded.name, status = excluded.status,
                 state = excluded.state, phase = excluded.phase, liveness = excluded.liveness,
                 concurrency = excluded.concurrency, queues = excluded.queues,
                 runtimes = excluded.runtimes, labels = excluded.labels,
                 renewal_seq = renewal_seq + 1, lease_ms = excluded.lease_ms,
                 lease_until_ms = excluded.lease_until_ms,
                 last_heartbeat = excluded.last_heartbeat,
                 last_heartbeat_ms = excluded.last_heartbeat_ms,
                 updated = excluded.updated, updated_ms = excluded.updated_ms,
                 about = excluded.about, plain_id = excluded.plain_id",
            rusqlite::params![
                registration.id.to_string(),
                registration.name,
                registration.role.as_str(),
                status,
                state,
                self.now.0,
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                registration.concurrency,
                json(&registration.queues)?,
                json(&registration.runtimes)?,
                json(&registration.labels)?,
                int(registration.lease.0),
                self.now.after(registration.lease).0,
                registration.about,
                registration.plain_id,
            ],
        )?;
        let by = format!("worker {}", registration.id);
        self.events.push(worker_event(
            registration.id,
            EventName::WorkerRegistered,
            self.now,
            &by,
            registration.name.as_str(),
        ));
        Ok(Ok(standing))
    }

    pub(super) fn renew(
        &mut self,
        renew: &Renew,
    ) -> Result<Result<Renewed, RenewRefusal>, StoreError> {
        let known = match self.beat(renew.worker, WorkerEvent::Beat, renew.lease)? {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let held = self.count_held(renew.worker)?;
        Ok(Ok(Renewed { renewal: known.renewal, standing: known.standing, held }))
    }

    pub(super) fn attach(
        &mut self,
        attach: &Attach,
    ) -> Result<Result<Attached, RenewRefusal>, StoreError> {
        if let Some(Known { standing, attachment: current, .. }) =
            self.worker_standing(attach.worker)?
            && attach.attachment < current
            && decide(standing, WorkerEvent::Attach).is_ok()
        {
            return Ok(Err(RenewRefusal::Abandoned { said: attach.attachment, current }));
        }
        let known = match self.beat(attach.worker, WorkerEvent::Attach, attach.lease)? {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let session = known.session + 1;
        self.execute(
            "update worker set session_seq = ?, attachment = ? where id = ?",
            (int(session), int(attach.attachment), attach.worker.to_string()),
        )?;
        let by = format!("worker {}", attach.worker);
        let name = EventName::WorkerAttached;
        self.events.push(worker_event(attach.worker, name, self.now, &by, ""));
        Ok(Ok(Attached { session, standing: known.standing }))
    }

    /// Renews a lease: one row, whatever the worker runs.
    fn beat(
        &self,
        worker: WorkerId,
        event: WorkerEvent,
        lease: Span,
    ) -> Result<Result<Known, RenewRefusal>, StoreError> {
        let Some(known) = self.worker_standing(worker)? else {
            return Ok(Err(RenewRefusal::UnknownWorker));
        };
        let standing = match decide(known.standing, event) {
            Ok(standing) => standing,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let (status, state) = standing_words(standing);
        let until = self.now.after(lease);
        let renewed = self.execute(
            "update worker set renewal_seq = renewal_seq + 1, lease_ms = ?2, lease_until_ms = ?3,
                 last_heartbeat_ms = ?4,
                 last_heartbeat = strftime('%Y-%m-%dT%H:%M:%fZ', ?4 / 1000.0, 'unixepoch'),
                 status = ?5, state = ?6, liveness = ?7
             where id = ?1 and renewal_seq = ?8",
            (
                worker.to_string(),
                int(lease.0),
                until.0,
                self.now.0,
                status,
                state,
                row::liveness_number(standing.liveness),
                int(known.renewal),
            ),
        )?;
        if renewed != 1 {
            return Err(StoreError::Corrupt(format!("worker {worker} moved while renewed")));
        }
        let renewal = known.renewal + 1;
        Ok(Ok(Known { standing, renewal, lease_until: until, ..known }))
    }

    fn set_standing(
        &mut self,
        worker: WorkerId,
        standing: Standing,
        evidence: &str,
    ) -> Result<(), StoreError> {
        let (status, state) = standing_words(standing);
        self.execute(
            "update worker set phase = ?2, liveness = ?3, status = ?4, state = ?5, evidence = ?6,
                 updated_ms = ?7,
                 updated = strftime('%Y-%m-%dT%H:%M:%fZ', ?7 / 1000.0, 'unixepoch')
             where id = ?1",
            (
                worker.to_string(),
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                status,
                state,
                evidence,
                self.now.0,
            ),
        )?;
        Ok(())
    }

    pub(super) fn move_worker(
        &mut self,
        step: &WorkerMove,
    ) -> Result<Result<WorkerMoved, WorkerMoveRefusal>, StoreError> {
        let Some(known) = self.worker_standing(step.worker)? else {
            return Ok(Err(WorkerMoveRefusal::UnknownWorker));
        };
        if step.session.is_some_and(|session| session != known.session) {
            return Ok(Err(WorkerMoveRefusal::StaleSession { current: known.session }));
        }
        let standing = match decide(known.standing, step.event) {
            Ok(standing) => standing,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        if standing != known.standing {
            self.set_standing(step.worker, standing, &step.evidence)?;
            if let Some(name) = worker_event_name(step.event) {
                let (by, evidence) = (&step.by, &step.evidence);
                self.events.push(worker_event(step.worker, name, self.now, by, evidence));
            }
        }
        let mut moved = Vec::new();
        if !standing.holds_lease() {
            // Whoever says goodbye was not killed: no job is suspected.
            let mass = step.event == WorkerEvent::Goodbye;
            let loss = Loss { mass, by: &step.by, evidence: &step.evidence };
            moved = self.move_held(step.worker, LapseScope::Everything, &loss)?;
            self.move_plain(step.worker, Leave::Goodbye, &loss, &mut moved)?;
        }
        let kept = self.count_held(step.worker)?;
        Ok(Ok(WorkerMoved { worker: step.worker, standing, moved, kept }))
    }

    /// The compare-and-set on the worker's row comes first, then its jobs follow in the
    /// same transaction: a sweep that joined jobs to workers could take jobs whose renewal
    /// was committed meanwhile.
    pub(super) fn lapse(
        &mut self,
        lapse: &Lapse,
    ) -> Result<Result<WorkerMoved, WorkerMoveRefusal>, StoreError> {
        let Some(known) = self.worker_standing(lapse.worker)? else {
            return Ok(Err(WorkerMoveRefusal::UnknownWorker));
        };
        if known.renewal != lapse.renewal {
            return Ok(Err(WorkerMoveRefusal::Renewed));
        }
        let standing = match known.standing.liveness {
            Liveness::Gone => return Ok(Err(WorkerRefusal::Gone.into())),
            Liveness::Lapsed => {
                let again =
                    lapse.scope == LapseScope::Everything && self.count_held(lapse.worker)? > 0;
                if !again {
                    return Ok(Err(WorkerRefusal::Lapsed.into()));
                }
                known.standing
            }
            Liveness::Live | Liveness::Suspect => {
                match decide(known.standing, WorkerEvent::Lapse) {
                    Ok(standing) => standing,
                    Err(refusal) => return Ok(Err(refusal.into())),
                }
            }
        };
        let due = match lapse.scope {
            LapseScope::OverlapAllowed => known.standing.liveness == Liveness::Suspect,
            LapseScope::Everything => self.now >= known.lease_until,
        };
        if !due {
            return Ok(Err(WorkerMoveRefusal::Renewed));
        }
        if standing != known.standing {
            self.set_standing(lapse.worker, standing, &lapse.evidence)?;
            let name = EventName::WorkerLapsed;
            let (by, evidence) = (&lapse.by, &lapse.evidence);
            self.events.push(worker_event(lapse.worker, name, self.now, by, evidence));
        }
        let loss = Loss { mass: lapse.mass, by: &lapse.by, evidence: &lapse.evidence };
        let mut moved = self.move_held(lapse.worker, lapse.scope, &loss)?;
        self.move_plain(lapse.worker, Leave::Silence, &loss, &mut moved)?;
        let kept = self.count_held(lapse.worker)?;
        Ok(Ok(WorkerMoved { worker: lapse.worker, standing, moved, kept }))
    }

    /// Takes back what a plain worker holds that left, unless it beats under another
    /// incarnation: its attempts are known by the id that it gave itself.
    fn move_plain(
        &mut self,
        worker: WorkerId,
        leave: Leave,
        loss: &Loss<'_>,
        moved: &mut Vec<Moved>,
    ) -> Result<(), StoreError> {
        let held = self.seqs(
            "select a.seq from active a join worker w on w.id = ?1 and a.plain = w.plain_id
             where not exists (select 1 from worker o
                 where o.plain_id = w.plain_id and o.liveness in (?2, ?3))
             order by a.seq",
            (
                worker.to_string(),
                row::liveness_number(Liveness::Live),
                row::liveness_number(Liveness::Suspect),
            ),
        )?;
        let (detail, event) = (leave.detail(loss.evidence), leave.event());
        for seq in held {
            let live = self.load(seq)?;
            let Ok(transition) = self.bench().decide(&live.job, event, moved.len()) else {
                continue;
            };
            let trace = Trace { kind: event.kind(), by: loss.by, detail: &detail, ended_by: "" };
            moved.push(self.carry_out(&live, &transition, &trace)?);
        }
        Ok(())
    }

    fn move_held(
        &mut self,
        worker: WorkerId,
        scope: LapseScope,
        loss: &Loss<'_>,
    ) -> Result<Vec<Moved>, StoreError> {
        let alone = self.holds_one(Some(worker))?;
        let mut moved = Vec::new();
        for (nth, seq) in self.held_seqs(worker)?.into_iter().enumerate() {
            let live = self.load(seq)?;
            let keep =
                scope == LapseScope::OverlapAllowed && live.job.rules.overlap == Overlap::Forbidden;
            if keep {
                continue;
            }
            let event = JobEvent::Lose { alone, mass: loss.mass };
            let transition = self
                .bench()
                .decide(&live.job, event, nth)
                .map_err(|refusal| StoreError::Corrupt(format!("held job: {refusal}")))?;
            let lost = transition.hold == Hold::Drop(Outcome::Lost);
            let detail = EndDetail {
                error: lost.then(|| lost_error(loss.evidence)),
                evidence: loss.evidence.clone(),
                ..EndDetail::default()
            };
            let trace = Trace { kind: EventKind::Lose, by: loss.by, detail: &detail, ended_by: "" };
            moved.push(self.carry_out(&live, &transition, &trace)?);
        }
        Ok(moved)
    }

    fn held_seqs(&self, worker: WorkerId) -> Result<Vec<i64>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("select seq from active where worker = ? order by seq")
            .map_err(failed)?;
        let rows =
            select.query_map([worker.0.as_bytes().as_slice()], |row| row.get(0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) fn forget_worker(&mut self, worker: WorkerId) -> Result<Reply, StoreError> {
        let Some(known) = self.worker_standing(worker)? else { return Ok(Reply::NotFound) };
        if known.standing.holds_lease() || self.count_held(worker)? > 0 {
            return Ok(Reply::NotFound);
        }
        self.execute("delete from worker where id = ?", [worker.to_string()])?;
        Ok(Reply::Done)
    }
}

/// Returns a list or map as JSON text.
fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Rejected(error.to_string()))
}
