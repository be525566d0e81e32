//! Enqueueing once for a key. Each job of it says so in a row of its own: in a store that was
//! moved, the numbers of a key's jobs need not follow each other.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::once::{Fingerprint, Once, OnceRefusal, Onced};
use outlast_store::reply::Enqueued;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Writing;

impl Writing<'_> {
    pub(super) fn enqueue_once(
        &mut self,
        once: &Once,
    ) -> Result<Result<Onced, OnceRefusal>, StoreError> {
        let Once { key, request, keep, jobs } = once;
        if let Some(earlier) = self.key(key)? {
            if earlier != request {
                return Ok(Err(OnceRefusal::OtherRequest));
            }
            return Ok(Ok(Onced::Before(self.jobs_of(key)?)));
        }
        let stored = match self.enqueue_all(jobs)? {
            Ok(stored) => stored,
            Err((position, refusal)) => return Ok(Err(OnceRefusal::Job(position, refusal))),
        };
        self.keep_key(key, request, self.now.after(*keep).0, &stored)?;
        Ok(Ok(Onced::Stored(stored)))
    }

    /// Returns what a key that is in force was used for.
    fn key(&self, key: &Fingerprint) -> Result<Option<Vec<u8>>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("select request from idempotency where key = ? and expires > ?")
            .map_err(failed)?;
        let found = select.query_row((key.as_slice(), self.now.0), |row| row.get(0));
        found.optional().map_err(failed)
    }

    fn jobs_of(&self, key: &Fingerprint) -> Result<Vec<JobId>, StoreError> {
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

    fn keep_key(
        &self,
        key: &Fingerprint,
        request: &Fingerprint,
        expires: i64,
        stored: &[Enqueued],
    ) -> Result<(), StoreError> {
        // The same key may be there still, expired and not pruned.
        self.execute("delete from idempotency_job where key = ?", [key.as_slice()])?;
        self.execute(
            "insert or replace into idempotency (key, request, expires) values (?, ?, ?)",
            (key.as_slice(), request.as_slice(), expires),
        )?;
        for job in stored {
            let seq = self.seq_of(job.id)?;
            self.execute(
                "insert into idempotency_job (seq, key) values (?, ?)",
                (seq, key.as_slice()),
            )?;
        }
        Ok(())
    }
}
