//! What time alone does.

use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{Strand, Sweep};
use outlast_store_rules::apply::loaded::Loaded;
use outlast_store_rules::apply::sweep::{Due, reached};
use outlast_store_rules::backend::Found;
use rusqlite::OptionalExtension as _;

use crate::row::{failed, int};
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn load_due(&self, due: Due, sweep: &Sweep) -> Result<Found, StoreError> {
        let limit = i64::from(sweep.limit);
        let seqs = match due {
            Due::Timer => self.seqs(
                "select seq from waiting where due <= ?1 order by due, seq limit ?2",
                (self.batch.context.now.0, limit),
            )?,
            Due::Expiry => self.take_expired(limit)?,
            Due::Visibility => self.seqs(
                "select seq from active where visible_until <= ?1 and visibility_ms <= ?3
                 order by visible_until, seq limit ?2",
                (self.batch.context.now.0, limit, int(sweep.watched.0)),
            )?,
            Due::Deadline => self.seqs(
                "select seq from active where deadline <= ?1 and not cancelled
                 order by deadline, seq limit ?2",
                (self.batch.context.now.0, limit),
            )?,
        };
        Ok(Found { more: reached(seqs.len(), limit), jobs: self.load_each(seqs)? })
    }

    /// A job that is held runs on. When it comes back, it gets a new entry.
    fn take_expired(&self, limit: i64) -> Result<Vec<i64>, StoreError> {
        let due = self.expired(limit)?;
        for (at, seq) in &due {
            self.execute("delete from expiry where at = ? and seq = ?", (at, seq))?;
        }
        Ok(due.into_iter().map(|(_, seq)| seq).collect())
    }

    fn expired(&self, limit: i64) -> Result<Vec<(i64, i64)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select at, seq from expiry where at <= ?1
                     and not exists (select 1 from active a where a.seq = expiry.seq)
                 order by at, seq limit ?2",
            )
            .map_err(failed)?;
        let rows = select
            .query_map((self.batch.context.now.0, limit), |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    /// Returns the jobs that waited for their whole limit since they became claimable and
    /// since the class has no eligible worker, longest overdue first.
    pub(super) fn load_stranded(&self, strand: &Strand) -> Result<Vec<Loaded>, StoreError> {
        let mut due = Vec::new();
        for (limit_ms, _) in self.limits_of(strand)? {
            let since_max = self.batch.context.now.0.saturating_sub(limit_ms);
            if strand.since.0 > since_max {
                continue;
            }
            let mut select = self
                .db
                .prepare_cached(
                    "select since, seq from ready
                     where class = ?1 and strand_ms = ?2 and since <= ?3
                     order by since, seq limit ?4",
                )
                .map_err(failed)?;
            let rows = select
                .query_map((strand.class.0, limit_ms, since_max, strand.limit), |row| {
                    Ok((row.get::<_, i64>(0)?.saturating_add(limit_ms), row.get(1)?))
                })
                .map_err(failed)?;
            for row in rows {
                due.push(row.map_err(failed)?);
            }
        }
        due.sort_unstable();
        due.truncate(usize::try_from(strand.limit).unwrap_or(usize::MAX));
        self.load_each(due.into_iter().map(|(_, seq): (i64, i64)| seq))
    }

    pub(super) fn next_strand(&self, strand: &Strand) -> Result<Option<Timestamp>, StoreError> {
        let limits = self.limits_of(strand)?;
        let next = limits
            .into_iter()
            .map(|(limit_ms, since)| since.max(strand.since.0).saturating_add(limit_ms))
            .min();
        Ok(next.map(Timestamp))
    }

    /// Returns the different limits of a class's claimable jobs, each with the time since
    /// when the first of them waits: one step in the index for each, however many jobs wait.
    fn limits_of(&self, strand: &Strand) -> Result<Vec<(i64, i64)>, StoreError> {
        let mut step = self
            .db
            .prepare_cached(
                "select strand_ms, since from ready where class = ?1 and strand_ms > ?2
                 order by strand_ms, since limit 1",
            )
            .map_err(failed)?;
        let mut limits: Vec<(i64, i64)> = Vec::new();
        loop {
            let after = limits.last().map_or(-1, |(limit_ms, _)| *limit_ms);
            let found = step
                .query_row((strand.class.0, after), |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
                .map_err(failed)?;
            let Some(found) = found else { return Ok(limits) };
            limits.push(found);
        }
    }

    pub(super) fn load_all(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<Loaded>, StoreError> {
        self.load_each(self.seqs(sql, params)?)
    }

    fn load_each(&self, seqs: impl IntoIterator<Item = i64>) -> Result<Vec<Loaded>, StoreError> {
        seqs.into_iter().map(|seq| self.load(seq)).collect()
    }

    fn seqs(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<i64>, StoreError> {
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let rows = select.query_map(params, |row| row.get(0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}
