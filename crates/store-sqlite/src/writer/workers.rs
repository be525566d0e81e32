//! Workers: registration, leases, and giving them up with what they hold.

use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Liveness, Standing, WorkerRefusal};
use outlast_store::StoreError;
use outlast_store::apply::loaded::KnownWorker;
use outlast_store::apply::worker::{self, Moved, Release, standing_words};
use outlast_store::command::{Attach, Lapse, Registration, Renew, WorkerMove};
use outlast_store::reply::{
    Attached, Moved as MovedJob, RenewRefusal, Renewed, Reply, WorkerMoveRefusal, WorkerMoved,
};
use rusqlite::{OptionalExtension as _, params};

use crate::row::{self, failed, int};
use crate::writer::Writing;

impl Writing<'_> {
    pub(super) fn known_worker(&self, worker: WorkerId) -> Result<Option<KnownWorker>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select phase, liveness, session_seq, renewal_seq, lease_until_ms, attachment
                 from worker where id = ?",
            )
            .map_err(failed)?;
        select
            .query_row([worker.to_string()], |row| {
                Ok(KnownWorker {
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

    /// Returns how the latest incarnation of a plain worker stands; one that lives goes before
    /// any that does not.
    pub(super) fn plain_standing(&self, plain: &str) -> Result<Option<Standing>, StoreError> {
        let (live, suspect) =
            (row::liveness_number(Liveness::Live), row::liveness_number(Liveness::Suspect));
        let mut select = self
            .db
            .prepare_cached(
                "select phase, liveness from worker where plain_id = ?1
                 order by liveness in (?2, ?3) desc, created_ms desc, id desc limit 1",
            )
            .map_err(failed)?;
        select
            .query_row(params![plain, live, suspect], |row| {
                Ok(row::standing(row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(failed)
    }

    pub(super) fn register(
        &mut self,
        registration: &Registration,
    ) -> Result<Result<Standing, WorkerRefusal>, StoreError> {
        let found = self.known_worker(registration.id)?;
        let known = worker::register(found.as_ref(), registration, self.now, &mut self.outbox);
        let KnownWorker { standing, lease_until, .. } = match known {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
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
                lease_until.0,
                registration.about,
                registration.plain_id,
            ],
        )?;
        Ok(Ok(standing))
    }

    pub(super) fn renew(
        &mut self,
        renew: &Renew,
    ) -> Result<Result<Renewed, RenewRefusal>, StoreError> {
        let found = self.known_worker(renew.worker)?;
        let known = match worker::renew(found.as_ref(), renew.lease, self.now) {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.write_renewal(renew.worker, &known, renew.lease)?;
        let held = self.count_held(renew.worker)?;
        Ok(Ok(Renewed { renewal: known.renewal, standing: known.standing, held }))
    }

    pub(super) fn attach(
        &mut self,
        attach: &Attach,
    ) -> Result<Result<Attached, RenewRefusal>, StoreError> {
        let found = self.known_worker(attach.worker)?;
        let known = match worker::attach(found.as_ref(), attach, self.now, &mut self.outbox) {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.write_renewal(attach.worker, &known, attach.lease)?;
        self.execute(
            "update worker set session_seq = ?, attachment = ? where id = ?",
            (int(known.session), int(known.attachment), attach.worker.to_string()),
        )?;
        Ok(Ok(Attached { session: known.session, standing: known.standing }))
    }

    /// Writes a renewed lease: one row, whatever the worker runs.
    fn write_renewal(
        &self,
        worker: WorkerId,
        known: &KnownWorker,
        lease: Span,
    ) -> Result<(), StoreError> {
        let (status, state) = standing_words(known.standing);
        let renewed = self.execute(
            "update worker set renewal_seq = renewal_seq + 1, lease_ms = ?2, lease_until_ms = ?3,
                 last_heartbeat_ms = ?4,
                 last_heartbeat = strftime('%Y-%m-%dT%H:%M:%fZ', ?4 / 1000.0, 'unixepoch'),
                 status = ?5, state = ?6, liveness = ?7
             where id = ?1 and renewal_seq = ?8 - 1",
            (
                worker.to_string(),
                int(lease.0),
                known.lease_until.0,
                self.now.0,
                status,
                state,
                row::liveness_number(known.standing.liveness),
                int(known.renewal),
            ),
        )?;
        if renewed != 1 {
            return Err(StoreError::Corrupt(format!("worker {worker} moved while renewed")));
        }
        Ok(())
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
        let found = self.known_worker(step.worker)?;
        let moved = worker::move_worker(found.as_ref(), step, self.now, &mut self.outbox);
        let Moved { standing, changed, release } = match moved {
            Ok(moved) => moved,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if changed {
            self.set_standing(step.worker, standing, &step.evidence)?;
        }
        let moved = self.release(step.worker, release)?;
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
        let found = self.known_worker(lapse.worker)?;
        let held = match worker::lapse_needs_count(found.as_ref(), lapse) {
            true => self.count_held(lapse.worker)?,
            false => 0,
        };
        let moved = worker::lapse(found.as_ref(), (lapse, held), self.now, &mut self.outbox);
        let Moved { standing, changed, release } = match moved {
            Ok(moved) => moved,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if changed {
            self.set_standing(lapse.worker, standing, &lapse.evidence)?;
        }
        let moved = self.release(lapse.worker, release)?;
        let kept = self.count_held(lapse.worker)?;
        Ok(Ok(WorkerMoved { worker: lapse.worker, standing, moved, kept }))
    }

    /// Takes back what a worker holds, if that was decided.
    fn release(
        &mut self,
        worker: WorkerId,
        release: Option<Release<'_>>,
    ) -> Result<Vec<MovedJob>, StoreError> {
        let Some(release) = release else { return Ok(Vec::new()) };
        let mut moved = self.release_held(worker, &release)?;
        self.release_plain(worker, &release, &mut moved)?;
        Ok(moved)
    }

    /// Takes back what a plain worker holds that left, unless it beats under another
    /// incarnation: its attempts are known by the id that it gave itself.
    fn release_plain(
        &mut self,
        worker: WorkerId,
        release: &Release<'_>,
        moved: &mut Vec<MovedJob>,
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
        for seq in held {
            let loaded = self.load(seq)?;
            if let Some(decided) = release.plain(&loaded, moved.len(), &self.bench()) {
                moved.push(self.carry_out(&loaded, &decided)?);
            }
        }
        Ok(())
    }

    fn release_held(
        &mut self,
        worker: WorkerId,
        release: &Release<'_>,
    ) -> Result<Vec<MovedJob>, StoreError> {
        let alone = self.holds_one(Some(worker))?;
        let mut moved = Vec::new();
        for (nth, seq) in self.held_seqs(worker)?.into_iter().enumerate() {
            let loaded = self.load(seq)?;
            if let Some(decided) = release.held(&loaded, alone, nth, &self.bench())? {
                moved.push(self.carry_out(&loaded, &decided)?);
            }
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
        let Some(known) = self.known_worker(worker)? else { return Ok(Reply::NotFound) };
        if !worker::may_forget(&known, self.count_held(worker)?) {
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
