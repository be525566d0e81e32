//! Storing jobs: two rows each.

use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::apply::enqueue;
use outlast_store::apply::step::Put;
use outlast_store::codec;
use outlast_store::command::{NewJob, Payload};
use outlast_store::list::BLOCK_BITS;
use outlast_store::record::StoredJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Writing;

type Outcome = Result<Enqueued, EnqueueRefusal>;

impl Writing<'_> {
    pub(super) fn enqueue(&mut self, job: &NewJob) -> Result<Outcome, StoreError> {
        let id = job.id;
        if let Err(refusal) = enqueue::check(job, false, self.now) {
            return Ok(Err(refusal));
        }
        // The insert itself finds a known id; only a class must not be made in vain.
        if !self.classes.has(&job.class) && self.seq_of(id)?.is_some() {
            return Ok(Err(EnqueueRefusal::DuplicateId(id)));
        }
        Ok(self.insert(job)?.ok_or(EnqueueRefusal::DuplicateId(id)))
    }

    pub(super) fn enqueue_all(
        &mut self,
        jobs: &[NewJob],
    ) -> Result<Result<Vec<Enqueued>, (usize, EnqueueRefusal)>, StoreError> {
        let repeated = enqueue::repeated(jobs);
        for (at, job) in jobs.iter().enumerate() {
            let is_known = repeated == Some(at) || self.seq_of(job.id)?.is_some();
            if let Err(refusal) = enqueue::check(job, is_known, self.now) {
                return Ok(Err((at, refusal)));
            }
        }
        let mut stored = Vec::with_capacity(jobs.len());
        for job in jobs {
            let id = job.id;
            let lost = || StoreError::Corrupt(format!("job {id} appeared while it was stored"));
            stored.push(self.insert(job)?.ok_or_else(lost)?);
        }
        Ok(Ok(stored))
    }

    pub(super) fn seq_of(&self, id: JobId) -> Result<Option<i64>, StoreError> {
        let mut select =
            self.db.prepare_cached("select seq from job_row where id = ?").map_err(failed)?;
        select.query_row([id.0.as_bytes().as_slice()], |row| row.get(0)).optional().map_err(failed)
    }

    /// Stores a job, or returns `None` when its id is known.
    fn insert(&mut self, new: &NewJob) -> Result<Option<Enqueued>, StoreError> {
        let id = self.classes.get_or_make(self.db, &new.class)?;
        let class = (id, Arc::clone(self.classes.key(id)?));
        let stored = enqueue::begin(new, class, self.now);
        let Some(seq) = self.insert_job_row(&stored.job, &new.payload)? else { return Ok(None) };
        if self.classes.enters(id, seq >> BLOCK_BITS) {
            self.execute(
                "insert or ignore into class_block (class, block) values (?, ?)",
                (id.0, seq >> BLOCK_BITS),
            )?;
        }
        match stored.put() {
            Put::Ready(row) => self.insert_ready(seq, &row)?,
            Put::Waiting(row) => self.insert_waiting(seq, &row)?,
            Put::Finished(_) | Put::Nowhere => {}
        }
        if let Some(at) = new.rules.expires_at {
            self.execute("insert into expiry (at, seq) values (?, ?)", (at.0, seq))?;
        }
        Ok(Some(stored.announce(&mut self.outbox)))
    }

    fn insert_job_row(
        &self,
        job: &StoredJob,
        payload: &Payload,
    ) -> Result<Option<i64>, StoreError> {
        let stored = self.execute(
            "insert into job_row (id, class, priority, args, meta, extra, rules, timeout_ms,
                                  visibility_ms, strand_ms, origin, created, scheduled_for,
                                  expires_at)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             on conflict (id) do nothing",
            (
                job.id.0.as_bytes().as_slice(),
                job.class.0,
                job.priority,
                &payload.args,
                &payload.meta,
                &payload.extra,
                codec::rules_text(&job.rules),
                row::span(job.timeout),
                row::span(job.visibility),
                row::strand_ms(job.scheduled_timeout),
                row::origin_number(job.origin),
                job.created.0,
                job.scheduled_for.map(|at| at.0),
                job.rules.expires_at.map(|at| at.0),
            ),
        )?;
        Ok((stored == 1).then(|| self.db.last_insert_rowid()))
    }
}
