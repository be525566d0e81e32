//! What holders say about their attempts.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::apply::report;
use outlast_store::command::{Extend, Finish, Progress, Start};
use outlast_store::reply::{MoveRefusal, Moved};
use outlast_store::settle::refusal_of;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed, int};
use crate::writer::Writing;

type Outcome = Result<Moved, MoveRefusal>;

impl Writing<'_> {
    pub(super) fn start(&mut self, start: &Start) -> Result<Outcome, StoreError> {
        let Some(loaded) = self.find(start.job)? else { return Ok(Err(MoveRefusal::NotFound)) };
        match report::start(&loaded, start, &self.bench()) {
            Ok(decided) => self.carry_out(&loaded, &decided).map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    pub(super) fn finish(&mut self, finish: &Finish) -> Result<Outcome, StoreError> {
        let Some(mut loaded) = self.find(finish.job)? else {
            return Ok(Err(MoveRefusal::NotFound));
        };
        let worker = loaded.held().and_then(|held| held.worker);
        let alone = report::needs_alone(finish) && self.holds_one(worker)?;
        let decided = match report::finish(&mut loaded, finish, alone, &self.bench()) {
            Ok(decided) => decided,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let moved = self.carry_out(&loaded, &decided)?;
        let refusal = refusal_of(&decided.transition);
        Ok(refusal.map_or(Ok(moved), |refusal| Err(refusal.into())))
    }

    pub(super) fn progress(&mut self, progress: &Progress) -> Result<Outcome, StoreError> {
        let Some(loaded) = self.find(progress.job)? else { return Ok(Err(MoveRefusal::NotFound)) };
        let moved = report::progress(&loaded, progress, &self.bench());
        if let (Ok(_), Some(bytes)) = (&moved, &progress.checkpoint) {
            self.put_checkpoint(loaded.seq, bytes)?;
        }
        Ok(moved)
    }

    /// Prolongs plain attempts to their full visibility from now.
    pub(super) fn extend(&mut self, extend: &Extend) -> Result<Vec<JobId>, StoreError> {
        let mut extended = Vec::new();
        if extend.jobs.is_empty() {
            let held = self.plain_held(&extend.worker)?;
            for (seq, id) in held {
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

    fn plain_held(&self, worker: &str) -> Result<Vec<(i64, JobId)>, StoreError> {
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
            (int(u64::try_from(self.now.0).unwrap_or(0)), seq),
        )?;
        Ok(())
    }
}
