//! Workers: registration, leases, and giving them up with what they hold. The row of every
//! worker that a batch names is locked when the batch begins.

use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Liveness, Standing, WorkerRefusal};
use outlast_store::StoreError;
use outlast_store::apply::loaded::{KnownWorker, Loaded};
use outlast_store::apply::worker::{self, Moved, Release, standing_words};
use outlast_store::command::{Attach, Lapse, Registration, Renew, WorkerMove};
use outlast_store::reply::{
    Attached, Moved as MovedJob, RenewRefusal, Renewed, Reply, WorkerMoveRefusal, WorkerMoved,
};
use tokio_postgres::Row;

use crate::failure::Failure;
use crate::link::values;
use crate::row::{self, get, int, moving_columns, text};
use crate::writer::Writing;
use crate::writer::live::{moving, select_active};
use crate::writer::tables::{Renewal, Renewals};

/// Reads the columns id, phase, liveness, `session_seq`, `renewal_seq`, `lease_until_ms`,
/// attachment.
pub(super) fn known_of(row: &Row) -> Result<KnownWorker, StoreError> {
    Ok(KnownWorker {
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

impl Writing<'_> {
    pub(super) fn known_worker(&self, worker: WorkerId) -> Option<KnownWorker> {
        self.workers.get(&worker).copied().flatten()
    }

    /// Returns how the latest incarnation of a plain worker stands; one that lives goes before
    /// any that does not.
    pub(super) async fn plain_standing(
        &mut self,
        plain: &str,
    ) -> Result<Option<Standing>, Failure> {
        let rows = self
            .ask(
                "select phase, liveness from worker where plain_id = $1
                 order by liveness in ($2, $3) desc, created_ms desc, id desc limit 1",
                values![
                    text(plain),
                    row::liveness_number(Liveness::Live),
                    row::liveness_number(Liveness::Suspect),
                ],
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
        let found = self.known_worker(registration.id);
        let known = worker::register(found.as_ref(), registration, self.now, &mut self.outbox);
        let known = match known {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let KnownWorker { standing, lease_until, .. } = known;
        let (status, state) = standing_words(standing);
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
        self.workers.insert(registration.id, Some(known));
        Ok(Ok(standing))
    }

    pub(super) async fn renew(
        &mut self,
        renew: &Renew,
    ) -> Result<Result<Renewed, RenewRefusal>, Failure> {
        let found = self.known_worker(renew.worker);
        let known = match worker::renew(found.as_ref(), renew.lease, self.now) {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.note_renewal(renew.worker, known, renew.lease);
        let (held, _) = self.count_held(renew.worker).await?;
        Ok(Ok(Renewed { renewal: known.renewal, standing: known.standing, held }))
    }

    pub(super) fn attach(&mut self, attach: &Attach) -> Result<Attached, RenewRefusal> {
        let found = self.known_worker(attach.worker);
        let known = worker::attach(found.as_ref(), attach, self.now, &mut self.outbox)?;
        self.note_renewal(attach.worker, known, attach.lease);
        self.write(
            "update worker set session_seq = $2, attachment = $3 where id = $1",
            values![attach.worker.0, int(known.session), int(known.attachment)],
        );
        Ok(Attached { session: known.session, standing: known.standing })
    }

    /// Notes a renewed lease: one row, whatever the worker runs.
    fn note_renewal(&mut self, worker: WorkerId, known: KnownWorker, lease: Span) {
        let (status, state) = standing_words(known.standing);
        let renewal = Renewal {
            id: worker.0,
            renewal: int(known.renewal) - 1,
            lease_ms: int(lease.0),
            lease_until: known.lease_until.0,
            at: self.now.0,
            status,
            state,
            liveness: row::liveness_number(known.standing.liveness),
        };
        // Renewals of different workers are one statement, if nothing was said about a worker
        // before in this batch.
        if !self.tables.others.is_empty() || self.tables.renewals.has(worker.0) {
            self.tables.others.extend(Renewals::of(renewal).into_ask());
        } else {
            self.tables.renewals.push(renewal);
        }
        self.workers.insert(worker, Some(known));
    }

    fn set_standing(&mut self, worker: WorkerId, standing: Standing, evidence: &str) {
        let (status, state) = standing_words(standing);
        self.write(
            "update worker set phase = $2, liveness = $3, status = $4, state = $5, evidence = $6,
                 updated_ms = $7
             where id = $1",
            values![
                worker.0,
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                status,
                state,
                text(evidence),
                self.now.0,
            ],
        );
        if let Some(Some(known)) = self.workers.get_mut(&worker) {
            known.standing = standing;
        }
    }

    pub(super) async fn move_worker(
        &mut self,
        step: &WorkerMove,
    ) -> Result<Result<WorkerMoved, WorkerMoveRefusal>, Failure> {
        let found = self.known_worker(step.worker);
        let moved = worker::move_worker(found.as_ref(), step, self.now, &mut self.outbox);
        let Moved { standing, changed, release } = match moved {
            Ok(moved) => moved,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if changed {
            self.set_standing(step.worker, standing, &step.evidence);
        }
        let moved = self.release(step.worker, release).await?;
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
        let found = self.known_worker(lapse.worker);
        let held = match worker::lapse_needs_count(found.as_ref(), lapse) {
            true => self.count_held(lapse.worker).await?.0,
            false => 0,
        };
        let moved = worker::lapse(found.as_ref(), (lapse, held), self.now, &mut self.outbox);
        let Moved { standing, changed, release } = match moved {
            Ok(moved) => moved,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if changed {
            self.set_standing(lapse.worker, standing, &lapse.evidence);
        }
        let moved = self.release(lapse.worker, release).await?;
        let (kept, _) = self.count_held(lapse.worker).await?;
        Ok(Ok(WorkerMoved { worker: lapse.worker, standing, moved, kept }))
    }

    /// Takes back what a worker holds, if that was decided.
    async fn release(
        &mut self,
        worker: WorkerId,
        release: Option<Release<'_>>,
    ) -> Result<Vec<MovedJob>, Failure> {
        let Some(release) = release else { return Ok(Vec::new()) };
        let mut moved = self.release_held(worker, &release).await?;
        self.release_plain(worker, &release, &mut moved).await?;
        Ok(moved)
    }

    /// Takes back what a plain worker holds that left, unless it beats under another
    /// incarnation: its attempts are known by the id that it gave itself.
    async fn release_plain(
        &mut self,
        worker: WorkerId,
        release: &Release<'_>,
        moved: &mut Vec<MovedJob>,
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
        for row in &rows {
            let loaded = self.of_active(row)?;
            if let Some(decided) = release.plain(&loaded, moved.len(), &self.bench()) {
                moved.push(self.carry_out(&loaded, &decided).await?);
            }
        }
        Ok(())
    }

    async fn release_held(
        &mut self,
        worker: WorkerId,
        release: &Release<'_>,
    ) -> Result<Vec<MovedJob>, Failure> {
        let rows = self.ask(HELD_BY_WORKER, values![worker.0]).await?;
        self.learn_classes_of(&rows).await?;
        let mut held: Vec<Loaded> = Vec::with_capacity(rows.len());
        for row in &rows {
            held.push(self.of_active(row)?);
        }
        let alone = held.iter().filter(|loaded| !loaded.job.state.is_terminal()).count() == 1;
        let mut moved = Vec::new();
        for (nth, loaded) in held.into_iter().enumerate() {
            if let Some(decided) = release.held(&loaded, alone, nth, &self.bench())? {
                moved.push(self.carry_out(&loaded, &decided).await?);
            }
        }
        Ok(moved)
    }

    pub(super) async fn forget_worker(&mut self, worker: WorkerId) -> Result<Reply, Failure> {
        let Some(known) = self.known_worker(worker) else { return Ok(Reply::NotFound) };
        if !worker::may_forget(&known, self.count_held(worker).await?.0) {
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
