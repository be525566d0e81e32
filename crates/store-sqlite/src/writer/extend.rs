//! Extending plain attempts.

use std::sync::Arc;

use outlast_core::id::{Epoch, JobId};
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::extend::{
    Extend, Holds, JobCount, Unconfirmed, is_confirmed, is_extended, unconfirmed_event,
};
use outlast_store::reply::Extended;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed, int};
use crate::writer::Tx;

/// A plain attempt that a client holds.
struct Held {
    seq: i64,
    job: JobId,
    class: ClassId,
    epoch: Epoch,
    cancelled: bool,
    confirmed: bool,
}

impl Tx<'_> {
    /// Resets plain attempts to their full visibility from now.
    pub(super) fn extend(&mut self, extend: &Extend) -> Result<Extended, StoreError> {
        match &extend.holds {
            Holds::Jobs(jobs) => self.extend_named(&extend.worker, jobs).map(Extended::all),
            Holds::Count(count) => self.extend_counted(&extend.worker, count),
        }
    }

    fn extend_named(&mut self, worker: &str, jobs: &[JobId]) -> Result<Vec<JobId>, StoreError> {
        let mut extended = Vec::new();
        for id in jobs {
            let Some(seq) = self.seq_of(*id)? else { continue };
            let mut select = self
                .db
                .prepare_cached(
                    "select 1 from active where seq = ?1 and not cancelled
                     and visible_until is not null and (plain is null or plain = ?2)",
                )
                .map_err(failed)?;
            let theirs =
                select.query_row((seq, worker), |_row| Ok(())).optional().map_err(failed)?;
            if theirs.is_some() {
                self.prolong(seq)?;
                extended.push(*id);
            }
        }
        Ok(extended)
    }

    fn extend_counted(&mut self, worker: &str, count: &JobCount) -> Result<Extended, StoreError> {
        let held = self.in_flight_of_plain(worker, count)?;
        let mut extended = Extended::default();
        for attempt in held.iter().filter(|attempt| !attempt.cancelled) {
            if is_extended(attempt.confirmed, held.len(), count.jobs) {
                self.prolong(attempt.seq)?;
                extended.jobs.push(attempt.job);
                continue;
            }
            extended.unconfirmed.push(attempt.job);
            if count.report.contains(&attempt.job) {
                let key = Arc::clone(self.cache.classes.key(attempt.class)?);
                let of = Unconfirmed {
                    job: attempt.job,
                    epoch: attempt.epoch,
                    job_type: &key.job_type,
                    queue: &key.queue,
                    held: held.len(),
                };
                let event = unconfirmed_event(&of, worker, count.jobs, self.batch.context.now);
                self.batch.outbox.events.push(event);
            }
        }
        Ok(extended)
    }

    fn in_flight_of_plain(&self, worker: &str, count: &JobCount) -> Result<Vec<Held>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select a.seq, j.id, j.class, a.epoch, a.cancelled, a.claimed, a.visible_until,
                     a.visibility_ms
                 from active a join job_row j on j.seq = a.seq
                 where a.visible_until is not null and a.plain = ? and a.claimed <= ?
                 order by a.seq",
            )
            .map_err(failed)?;
        let rows = select
            .query_map((worker, count.arrived.0), |row| {
                let visibility = row::span_opt(row, 7)?.unwrap_or_default();
                Ok(Held {
                    seq: row.get(0)?,
                    job: row::job_id(row, 1)?,
                    class: ClassId(row.get(2)?),
                    epoch: row::epoch(row, 3)?,
                    cancelled: row.get(4)?,
                    confirmed: is_confirmed(row::time(row, 5)?, row::time(row, 6)?, visibility),
                })
            })
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
