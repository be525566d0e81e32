//! Extending plain attempts.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::command::Extend;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed, int};
use crate::writer::Tx;

impl Tx<'_> {
    /// Prolongs plain attempts to their full visibility from now.
    pub(super) fn extend(&mut self, extend: &Extend) -> Result<Vec<JobId>, StoreError> {
        let mut extended = Vec::new();
        if extend.jobs.is_empty() {
            let in_flight = self.in_flight_of_plain(&extend.worker)?;
            for (seq, id) in in_flight {
                self.prolong(seq)?;
                extended.push(id);
            }
            return Ok(extended);
        }
        for id in &extend.jobs {
            let Some(seq) = self.seq_of(*id)? else { continue };
            let mut select = self
                .db
                .prepare_cached(
                    "select 1 from active where seq = ?1 and not cancelled
                     and visible_until is not null and (plain is null or plain = ?2)",
                )
                .map_err(failed)?;
            let theirs = select
                .query_row((seq, &extend.worker), |_row| Ok(()))
                .optional()
                .map_err(failed)?;
            if theirs.is_some() {
                self.prolong(seq)?;
                extended.push(*id);
            }
        }
        Ok(extended)
    }

    fn in_flight_of_plain(&self, worker: &str) -> Result<Vec<(i64, JobId)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select a.seq, j.id from active a join job_row j on j.seq = a.seq
                 where a.visible_until is not null and a.plain = ? and not a.cancelled
                 order by a.seq",
            )
            .map_err(failed)?;
        let rows = select
            .query_map([worker], |row| Ok((row.get(0)?, row::job_id(row, 1)?)))
            .map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    fn prolong(&self, seq: i64) -> Result<(), StoreError> {
        self.execute(
            "update active set visible_until = ? + visibility_ms where seq = ?",
            (int(u64::try_from(self.batch.context.now.0).unwrap_or(0)), seq),
        )?;
        Ok(())
    }
}
