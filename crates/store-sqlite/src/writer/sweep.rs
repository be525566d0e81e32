//! What time alone does.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::{Event as JobEvent, EventKind};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{EndDetail, Strand, Sweep};
use outlast_store::reply::{Stranded, Swept};
use outlast_store::settle::{strand_error, timeout_detail, visibility_detail};

use rusqlite::OptionalExtension as _;

use crate::row::{failed, int};
use crate::writer::Writing;
use crate::writer::live::{Live, Spot};
use crate::writer::transition::Trace;

const SWEEPER: &str = "sweeper";

impl Writing<'_> {
    pub(super) fn sweep(&mut self, sweep: &Sweep) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let limit = i64::from(sweep.limit);
        self.sweep_timers(limit, &mut swept)?;
        self.sweep_expiries(limit, &mut swept)?;
        self.sweep_visibilities(limit, int(sweep.watched.0), &mut swept)?;
        self.sweep_deadlines(limit, &mut swept)?;
        Ok(swept)
    }

    fn sweep_timers(&mut self, limit: i64, swept: &mut Swept) -> Result<(), StoreError> {
        let due = self.seqs(
            "select seq from waiting where due <= ?1 order by due, seq limit ?2",
            (self.now.0, limit),
        )?;
        swept.more |= reached(due.len(), limit);
        for seq in due {
            let live = self.load(seq)?;
            let detail = EndDetail::default();
            self.step(&live, JobEvent::Due, &detail, swept)?;
        }
        Ok(())
    }

    fn sweep_expiries(&mut self, limit: i64, swept: &mut Swept) -> Result<(), StoreError> {
        // A job that is held runs on, and is looked at again should it come back.
        let due = self.seqs(
            "select seq from expiry where at <= ?1
                 and not exists (select 1 from active a where a.seq = expiry.seq)
             order by at, seq limit ?2",
            (self.now.0, limit),
        )?;
        swept.more |= reached(due.len(), limit);
        for seq in due {
            let live = self.load(seq)?;
            let at = live.stored.rules.expires_at.unwrap_or_default();
            self.execute("delete from expiry where at = ? and seq = ?", (at.0, seq))?;
            if !live.job.state.is_terminal() {
                let detail = EndDetail { evidence: "expired".into(), ..EndDetail::default() };
                self.step(&live, JobEvent::Expire, &detail, swept)?;
            }
        }
        Ok(())
    }

    fn sweep_visibilities(
        &mut self,
        limit: i64,
        watched: i64,
        swept: &mut Swept,
    ) -> Result<(), StoreError> {
        let due = self.seqs(
            "select seq from active where visible_until <= ?1 and visibility_ms <= ?3
             order by visible_until, seq limit ?2",
            (self.now.0, limit, watched),
        )?;
        swept.more |= reached(due.len(), limit);
        for seq in due {
            let live = self.load(seq)?;
            let Spot::Active(held) = &live.spot else { continue };
            let detail = visibility_detail(held.visibility.unwrap_or_default());
            self.step(&live, JobEvent::ExpireVisibility, &detail, swept)?;
        }
        Ok(())
    }

    fn sweep_deadlines(&mut self, limit: i64, swept: &mut Swept) -> Result<(), StoreError> {
        let due = self.seqs(
            "select seq from active where deadline <= ?1 and not cancelled
             order by deadline, seq limit ?2",
            (self.now.0, limit),
        )?;
        swept.more |= reached(due.len(), limit);
        for seq in due {
            let live = self.load(seq)?;
            let detail = timeout_detail(live.stored.timeout.unwrap_or_default());
            self.step(&live, JobEvent::TimeOut, &detail, swept)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        live: &Live,
        event: JobEvent<'_>,
        detail: &EndDetail,
        swept: &mut Swept,
    ) -> Result<(), StoreError> {
        // The nth move of a command draws the nth jitter, whatever sort it is.
        let Ok(transition) = self.bench().decide(&live.job, event, swept.moved.len()) else {
            return Ok(());
        };
        let kind = event.kind();
        let ended_by = if kind == EventKind::Expire { "expired" } else { "" };
        let trace = Trace { kind, by: SWEEPER, detail, ended_by };
        let moved = self.carry_out(live, &transition, &trace)?;
        swept.moved.push(moved);
        Ok(())
    }

    pub(super) fn strand(&mut self, strand: &Strand) -> Result<Stranded, StoreError> {
        let due = self.stranded(strand)?;
        let mut found = Stranded::default();
        for (nth, seq) in due.into_iter().enumerate() {
            let live = self.load(seq)?;
            let (Spot::Ready { since, .. }, ScheduledTimeout::After(limit)) =
                (&live.spot, live.stored.scheduled_timeout)
            else {
                continue;
            };
            let error = strand_error(limit, self.now.since(*since), &strand.reason);
            let detail = EndDetail {
                error: Some(error),
                evidence: strand.reason.as_str().into(),
                ..EndDetail::default()
            };
            let Ok(transition) = self.bench().decide(&live.job, JobEvent::Strand, nth) else {
                continue;
            };
            let by = "execution_timeout_monitor";
            let trace =
                Trace { kind: EventKind::Strand, by, detail: &detail, ended_by: "stranded" };
            found.moved.push(self.carry_out(&live, &transition, &trace)?);
        }
        found.next = self.next_strand(strand)?;
        Ok(found)
    }

    /// Returns the jobs that waited for their whole limit since they became claimable and
    /// since the class has no eligible worker, longest overdue first.
    fn stranded(&self, strand: &Strand) -> Result<Vec<i64>, StoreError> {
        let mut due = Vec::new();
        for (limit_ms, _) in self.limits_of(strand)? {
            let since_max = self.now.0.saturating_sub(limit_ms);
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
        Ok(due.into_iter().map(|(_, seq): (i64, i64)| seq).collect())
    }

    fn next_strand(&self, strand: &Strand) -> Result<Option<Timestamp>, StoreError> {
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

    pub(super) fn seqs(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<i64>, StoreError> {
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let rows = select.query_map(params, |row| row.get(0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

fn reached(found: usize, limit: i64) -> bool {
    i64::try_from(found).is_ok_and(|found| found >= limit)
}
