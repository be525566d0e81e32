//! Enqueueing once for a key. The jobs of one command follow each other without a gap, so a
//! key needs only the first and the last.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::once::{Fingerprint, Once, OnceRefusal, Onced};
use outlast_store::reply::Enqueued;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Writing;

/// A key that is in force: what it was used for, and its jobs.
type Key = (Vec<u8>, i64, i64);

impl Writing<'_> {
    pub(super) fn enqueue_once(
        &mut self,
        once: Once,
    ) -> Result<Result<Onced, OnceRefusal>, StoreError> {
        let Once { key, request, keep, jobs } = once;
        if let Some((earlier, first, last)) = self.key(&key)? {
            if earlier != request {
                return Ok(Err(OnceRefusal::OtherRequest));
            }
            return Ok(Ok(Onced::Before(self.jobs_between(first, last)?)));
        }
        let stored = match self.enqueue_all(jobs)? {
            Ok(stored) => stored,
            Err((position, refusal)) => return Ok(Err(OnceRefusal::Job(position, refusal))),
        };
        self.keep_key(&key, &request, self.now.after(keep).0, &stored)?;
        Ok(Ok(Onced::Stored(stored)))
    }

    fn key(&self, key: &Fingerprint) -> Result<Option<Key>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select request, first, last from idempotency where key = ? and expires > ?",
            )
            .map_err(failed)?;
        let found = select.query_row((key.as_slice(), self.now.0), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        });
        found.optional().map_err(failed)
    }

    fn jobs_between(&self, first: i64, last: i64) -> Result<Vec<JobId>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("select id from job_row where seq between ? and ? order by seq")
            .map_err(failed)?;
        let rows = select.query_map((first, last), |row| row::job_id(row, 0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    fn keep_key(
        &self,
        key: &Fingerprint,
        request: &Fingerprint,
        expires: i64,
        stored: &[Enqueued],
    ) -> Result<(), StoreError> {
        let last = match stored.last() {
            Some(job) => self.seq_of(job.id)?,
            None => None,
        };
        let last = last.ok_or_else(|| StoreError::Rejected("a key without jobs".to_owned()))?;
        let first = last + 1 - i64::try_from(stored.len()).unwrap_or(i64::MAX);
        // The same key may be there still, expired and not pruned.
        self.execute(
            "insert or replace into idempotency (key, request, expires, first, last)
             values (?, ?, ?, ?, ?)",
            (key.as_slice(), request.as_slice(), expires, first, last),
        )?;
        Ok(())
    }
}
