//! Workers: registration, leases, and giving them up with what they hold. The row of every
//! worker that a batch names is locked when the batch begins.

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
use tokio_postgres::Row;

use crate::failure::Failure;
use crate::link::values;
use crate::row::{self, get, int, moving_columns, standing_words, text};
use crate::writer::Writing;
use crate::writer::live::{Live, moving, select_active};
use crate::writer::tables::{Renewal, Renewals};
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

/// Reads the columns id, phase, liveness, `session_seq`, `renewal_seq`, `lease_until_ms`,
/// attachment.
pub(super) fn known_of(row: &Row) -> Result<Known, StoreError> {
    Ok(Known {
        standing: row::standing(get(row, 1)?, get(row, 2)?),
        session: row::count(row, 3)?,
        renewal: row::count(row, 4)?,
        lease_until: row::time(row, 5)?,
        attachment: row::count(row, 6)?,
    })
}

/// Counts the attempts that workers hold, and those of them that are not cancelled.
pub(super) const COUNT_HELD: &str =
    "select w.id, count(a.seq), count(a.seq) filter (where not a.cancelled)
     from unnest($1::uuid[]) w(id) left join active a on a.worker = w.id group by w.id";

const HELD_BY_WORKER: &str = select_active!("where a.worker = $1 order by a.seq for update of a");
const HELD_BY_PLAIN: &str = select_active!("where a.plain = $1 order by a.seq for update of a");
/// The worker's own row is written earlier in the batch, and stands as it will.
const SILENT_PLAIN_ID: &str =
    "select w.plain_id from worker w where w.id = $1 and w.plain_id is not null
     and not exists (select 1 from worker o where o.plain_id = w.plain_id
         and o.liveness in ($2, $3) and o.id <> w.id)";

/// Whether and why held jobs move.
struct Loss<'a> {
    mass: bool,
    by: &'a str,
    evidence: &'a Evidence,
}

impl Writing<'_> {
    fn standing_of(&self, worker: WorkerId) -> Option<Known> {
        self.workers.get(&worker).copied().flatten()
    }

    pub(super) async fn plain_standing(
        &mut self,
        plain: &str,
    ) -> Result<Option<Standing>, Failure> {
        let rows = self
            .ask(
                "select phase, liveness from worker where plain_id = $1
                 order by created_ms desc, id desc limit 1",
                values![text(plain)],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(row::standing(get(row, 0)?, get(row, 1)?)))
    }

    /// Returns how many attempts a worker holds, and how many of them are not cancelled.
    pub(super) async fn count_held(&mut self, worker: WorkerId) -> Result<(u32, u32), Failure> {
        if let Some(counts) = self.held.get(&worker) {
            return Ok(*counts);
        }
        let rows = self.ask(COUNT_HELD, values![vec![worker.0]]).await?;
        self.take_counts(&rows)?;
        Ok(self.held.get(&worker).copied().unwrap_or_default())
    }

    /// Keeps counts; they hold until the batch moves a job.
    pub(super) fn take_counts(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let counted = |at: usize| -> Result<u32, StoreError> {
                Ok(u32::try_from(row::count(row, at)?).unwrap_or(u32::MAX))
            };
            self.held.insert(WorkerId(get(row, 0)?), (counted(1)?, counted(2)?));
        }
        Ok(())
    }

    pub(super) fn register(
        &mut self,
        registration: &Registration,
    ) -> Result<Result<Standing, WorkerRefusal>, StoreError> {
        let before = self.standing_of(registration.id);
        let standing = match before {
            None => Standing::NEW,
            Some(known) => match decide(known.standing, WorkerEvent::Beat) {
                Ok(standing) => standing,
                Err(refusal) => return Ok(Err(refusal)),
            },
        };
        let (status, state) = standing_words(standing);
        let lease_until = self.now.after(registration.lease);
        self.write(
            "insert into worker as w (id, name, worker_role, status, state, phase, liveness,
                 concurrency, queues, runtimes, labels, renewal_seq, session_seq, attachment,
                 lease_ms, lease_until_ms, last_heartbeat_ms, created_ms, updated_ms, evidence,
                 about, plain_id)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 1, 0, 0, $12, $13, $14, $14,
                     $14, 'registered', $15, $16)
             on conflict (id) do update set name = excluded.name, status = excluded.status,
                 state = excluded.state, phase = excluded.phase, liveness = excluded.liveness,
                 concurrency = excluded.concurrency, queues = excluded.queues,
                 runtimes = excluded.runtimes, labels = excluded.labels,
                 renewal_seq = w.renewal_seq + 1, lease_ms = excluded.lease_ms,
                 lease_until_ms = excluded.lease_until_ms,
                 last_heartbeat_ms = excluded.last_heartbeat_ms,
                 updated_ms = excluded.updated_ms, about = excluded.about,
                 plain_id = excluded.plain_id",
            values![
                registration.id.0,
                text(&registration.name),
                registration.role.as_str(),
                status,
                state,
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                i64::from(registration.concurrency),
                json(&registration.queues)?,
                json(&registration.runtimes)?,
                json(&registration.labels)?,
                int(registration.lease.0),
                lease_until.0,
                self.now.0,
                text(&registration.about),
                registration.plain_id.as_deref().map(text),
            ],
        );
        let known = match before {
            Some(known) => Known { standing, renewal: known.renewal + 1, lease_until, ..known },
            None => Known { standing, session: 0, attachment: 0, renewal: 1, lease_until },
        };
        self.workers.insert(registration.id, Some(known));
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

    pub(super) async fn renew(
        &mut self,
        renew: &Renew,
    ) -> Result<Result<Renewed, RenewRefusal>, Failure> {
        let known = match self.beat(renew.worker, WorkerEvent::Beat, renew.lease) {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (held, _) = self.count_held(renew.worker).await?;
        Ok(Ok(Renewed { renewal: known.renewal, standing: known.standing, held }))
    }

    pub(super) fn attach(&mut self, attach: &Attach) -> Result<Attached, RenewRefusal> {
        if let Some(Known { standing, attachment: current, .. }) = self.standing_of(attach.worker)
            && attach.attachment < current
            && decide(standing, WorkerEvent::Attach).is_ok()
        {
            return Err(RenewRefusal::Abandoned { said: attach.attachment, current });
        }
        let known = self.beat(attach.worker, WorkerEvent::Attach, attach.lease)?;
        let session = known.session + 1;
        self.write(
            "update worker set session_seq = $2, attachment = $3 where id = $1",
            values![attach.worker.0, int(session), int(attach.attachment)],
        );
        let known = Known { session, attachment: attach.attachment, ..known };
        self.workers.insert(attach.worker, Some(known));
        let by = format!("worker {}", attach.worker);
        let name = EventName::WorkerAttached;
        self.events.push(worker_event(attach.worker, name, self.now, &by, ""));
        Ok(Attached { session, standing: known.standing })
    }

    /// Renews a lease: one row, whatever the worker runs.
    fn beat(
        &mut self,
        worker: WorkerId,
        event: WorkerEvent,
        lease: Span,
    ) -> Result<Known, RenewRefusal> {
        let known = self.standing_of(worker).ok_or(RenewRefusal::UnknownWorker)?;
        let standing = decide(known.standing, event)?;
        let (status, state) = standing_words(standing);
        let lease_until = self.now.after(lease);
        let renewal = Renewal {
            id: worker.0,
            renewal: int(known.renewal),
            lease_ms: int(lease.0),
            lease_until: lease_until.0,
            at: self.now.0,
            status,
            state,
            liveness: row::liveness_number(standing.liveness),
        };
        // Renewals of different workers are one statement, if nothing was said about a worker
        // before in this batch.
        if !self.tables.others.is_empty() || self.tables.renewals.has(worker.0) {
            self.tables.others.extend(Renewals::of(renewal).into_ask());
        } else {
            self.tables.renewals.push(renewal);
        }
        let renewal = known.renewal + 1;
        let known = Known { standing, renewal, lease_until, ..known };
        self.workers.insert(worker, Some(known));
        Ok(known)
    }

    fn set_standing(&mut self, worker: WorkerId, known: Known, evidence: &str) {
        let (status, state) = standing_words(known.standing);
        self.write(
            "update worker set phase = $2, liveness = $3, status = $4, state = $5, evidence = $6,
                 updated_ms = $7
             where id = $1",
            values![
                worker.0,
                row::phase_number(known.standing.phase),
                row::liveness_number(known.standing.liveness),
                status,
                state,
                text(evidence),
                self.now.0,
            ],
        );
        self.workers.insert(worker, Some(known));
    }

    pub(super) async fn move_worker(
        &mut self,
        step: &WorkerMove,
    ) -> Result<Result<WorkerMoved, WorkerMoveRefusal>, Failure> {
        let Some(known) = self.standing_of(step.worker) else {
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
            self.set_standing(step.worker, Known { standing, ..known }, &step.evidence);
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
            moved = self.move_held(step.worker, LapseScope::Everything, &loss).await?;
            self.move_plain(step.worker, Leave::Goodbye, &loss, &mut moved).await?;
        }
        let (kept, _) = self.count_held(step.worker).await?;
        Ok(Ok(WorkerMoved { worker: step.worker, standing, moved, kept }))
    }

    /// The worker's row is locked and its renewal compared first, then its jobs follow in
    /// the same transaction: a sweep that joined jobs to workers could take jobs whose
    /// renewal was committed meanwhile.
    pub(super) async fn lapse(
        &mut self,
        lapse: &Lapse,
    ) -> Result<Result<WorkerMoved, WorkerMoveRefusal>, Failure> {
        let Some(known) = self.standing_of(lapse.worker) else {
            return Ok(Err(WorkerMoveRefusal::UnknownWorker));
        };
        if known.renewal != lapse.renewal {
            return Ok(Err(WorkerMoveRefusal::Renewed));
        }
        let standing = match known.standing.liveness {
            Liveness::Gone => return Ok(Err(WorkerRefusal::Gone.into())),
            Liveness::Lapsed => {
                let again = lapse.scope == LapseScope::Everything
                    && self.count_held(lapse.worker).await?.0 > 0;
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
            self.set_standing(lapse.worker, Known { standing, ..known }, &lapse.evidence);
            let name = EventName::WorkerLapsed;
            let (by, evidence) = (&lapse.by, &lapse.evidence);
            self.events.push(worker_event(lapse.worker, name, self.now, by, evidence));
        }
        let loss = Loss { mass: lapse.mass, by: &lapse.by, evidence: &lapse.evidence };
        let mut moved = self.move_held(lapse.worker, lapse.scope, &loss).await?;
        self.move_plain(lapse.worker, Leave::Silence, &loss, &mut moved).await?;
        let (kept, _) = self.count_held(lapse.worker).await?;
        Ok(Ok(WorkerMoved { worker: lapse.worker, standing, moved, kept }))
    }

    /// Takes back what a plain worker holds that left, unless it beats under another
    /// incarnation: its attempts are known by the id that it gave itself.
    async fn move_plain(
        &mut self,
        worker: WorkerId,
        leave: Leave,
        loss: &Loss<'_>,
        moved: &mut Vec<Moved>,
    ) -> Result<(), Failure> {
        let living = values![
            worker.0,
            row::liveness_number(Liveness::Live),
            row::liveness_number(Liveness::Suspect),
        ];
        let plain = self.ask(SILENT_PLAIN_ID, living).await?;
        let Some(plain) = plain.first() else { return Ok(()) };
        let plain: String = get(plain, 0)?;
        let rows = self.ask(HELD_BY_PLAIN, values![plain]).await?;
        self.learn_classes_of(&rows).await?;
        let (detail, event) = (leave.detail(loss.evidence), leave.event());
        for row in &rows {
            let live = self.of_active(row)?;
            let Ok(transition) = self.bench().decide(&live.job, event, moved.len()) else {
                continue;
            };
            let trace = Trace { kind: event.kind(), by: loss.by, detail: &detail, ended_by: "" };
            moved.push(self.carry_out(&live, &transition, &trace).await?);
        }
        Ok(())
    }

    async fn move_held(
        &mut self,
        worker: WorkerId,
        scope: LapseScope,
        loss: &Loss<'_>,
    ) -> Result<Vec<Moved>, Failure> {
        let rows = self.ask(HELD_BY_WORKER, values![worker.0]).await?;
        self.learn_classes_of(&rows).await?;
        let mut held: Vec<Live> = Vec::with_capacity(rows.len());
        for row in &rows {
            held.push(self.of_active(row)?);
        }
        let counted = held.iter().filter(|live| !live.job.state.is_terminal()).count();
        let alone = counted == 1;
        let mut moved = Vec::new();
        for (nth, live) in held.into_iter().enumerate() {
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
            moved.push(self.carry_out(&live, &transition, &trace).await?);
        }
        Ok(moved)
    }

    pub(super) async fn forget_worker(&mut self, worker: WorkerId) -> Result<Reply, Failure> {
        let Some(known) = self.standing_of(worker) else { return Ok(Reply::NotFound) };
        if known.standing.holds_lease() || self.count_held(worker).await?.0 > 0 {
            return Ok(Reply::NotFound);
        }
        self.write("delete from worker where id = $1", values![worker.0]);
        self.workers.insert(worker, None);
        Ok(Reply::Done)
    }
}

/// Returns a list or map as JSON text.
fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Rejected(error.to_string()))
}
