//! Idempotency keys. Each job of it says so in a row of its own: in a store that was
//! moved, the numbers of a key's jobs need not follow each other.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::idempotency::{EnqueueOnce, Fingerprint};
use outlast_store::reply::Enqueued;
use outlast_store_rules::backend::Key;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn load_key(&self, key: &Fingerprint) -> Result<Key, StoreError> {
        let sql = "select request, expires > ? from idempotency where key = ?";
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let found = select.query_row((self.batch.context.now.0, key.as_slice()), |row| {
            Ok(if row.get(1)? { Key::InForce(row.get(0)?) } else { Key::Expired })
        });
        Ok(found.optional().map_err(failed)?.unwrap_or(Key::Unused))
    }

    pub(super) fn load_jobs_of_key(&self, key: &Fingerprint) -> Result<Vec<JobId>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select j.id from idempotency_job i join job_row j on j.seq = i.seq
                 where i.key = ? order by i.seq",
            )
            .map_err(failed)?;
        let rows = select.query_map([key.as_slice()], |row| row::job_id(row, 0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    pub(super) fn insert_key(
        &self,
        once: &EnqueueOnce,
        stored: &[Enqueued],
        expired: bool,
    ) -> Result<(), StoreError> {
        let key = once.key.as_slice();
        if expired {
            self.execute("delete from idempotency_job where key = ?", [key])?;
        }
        self.execute(
            "insert or replace into idempotency (key, request, expires) values (?, ?, ?)",
            (key, once.request.as_slice(), self.batch.context.now.after(once.keep).0),
        )?;
        for job in stored {
            let seq = self.seq_of(job.id)?;
            self.execute("insert into idempotency_job (seq, key) values (?, ?)", (seq, key))?;
        }
        Ok(())
    }
}
