//! Storing jobs: two rows each.

use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::command::{NewJob, Payload};
use outlast_store::record::StoredJob;
use outlast_store::reply::Enqueued;
use outlast_store_rules::apply::enqueue;
use outlast_store_rules::apply::step::Put;
use outlast_store_rules::codec;
use outlast_store_rules::list::BLOCK_BITS;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn seq_of(&self, id: JobId) -> Result<Option<i64>, StoreError> {
        self.statements.run("select seq from job_row where id = ?", |select| {
            let id = [id.0.as_bytes().as_slice()];
            select.query_row(id, |row| row.get(0)).optional().map_err(failed)
        })
    }

    /// Stores a job, or returns `None` when its id is known.
    pub(super) fn insert_job(&mut self, new: &NewJob) -> Result<Option<Enqueued>, StoreError> {
        let id = self.cache.classes.get_or_make(self.db, &new.stored_in())?;
        let key = Arc::clone(self.cache.classes.key(id)?);
        let stored = enqueue::begin(new, id, key, self.batch.context.now);
        let Some(seq) = self.insert_job_row(&stored.job, &new.payload)? else { return Ok(None) };
        if self.cache.classes.enters(id, seq >> BLOCK_BITS) {
            self.execute(
                "insert or ignore into class_block (class, block) values (?, ?)",
                (id.0, seq >> BLOCK_BITS),
            )?;
        }
        match stored.put() {
            Put::Ready(row) => self.insert_ready(seq, &row)?,
            Put::Waiting(row) => self.insert_waiting(seq, &row)?,
            Put::Finished(_) | Put::Active(_) | Put::Nowhere => {}
        }
        if let Some(at) = new.rules.expires_at {
            self.execute("insert into expiry (at, seq) values (?, ?)", (at.0, seq))?;
        }
        Ok(Some(stored.announce(&mut self.batch.outbox)))
    }

    fn insert_job_row(
        &self,
        job: &StoredJob,
        payload: &Payload,
    ) -> Result<Option<i64>, StoreError> {
        let stored = self.execute(
            "insert into job_row (id, class, priority, args, meta, extra, rules, timeout_ms,
                                  visibility_ms, strand_ms, origin, created, scheduled_for,
                                  expires_at, keys, lane)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
                codec::keys_text(&job.keys),
                (!job.keys.is_empty()).then(|| job.keys.lane()),
            ),
        )?;
        Ok((stored == 1).then(|| self.db.last_insert_rowid()))
    }
}
