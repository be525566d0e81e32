//! What time alone does. Jobs that someone is moving are passed over: they are looked at
//! again by the next sweep.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::{Event as JobEvent, EventKind};
use outlast_core::time::Timestamp;
use outlast_store::command::{EndDetail, Strand, Sweep};
use outlast_store::reply::{Stranded, Swept};
use outlast_store::settle::{strand_error, timeout_detail, visibility_detail};
use tokio_postgres::Row;

use crate::failure::Failure;
use crate::link::values;
use crate::row::moving_columns;
use crate::row::{get, int};
use crate::writer::Writing;
use crate::writer::live::{Live, Spot, moving, select_active, select_ready, select_waiting};
use crate::writer::transition::Trace;

const SWEEPER: &str = "sweeper";

const DUE_TIMERS: &str =
    select_waiting!("where w.due <= $1 order by w.due, w.seq limit $2 for update of w skip locked");
const DUE_VISIBILITIES: &str = select_active!(
    "where a.visible_until <= $1 and a.visibility_ms <= $3
     order by a.visible_until, a.seq limit $2 for update of a skip locked"
);
const DUE_DEADLINES: &str = select_active!(
    "where a.deadline <= $1 and not a.cancelled
     order by a.deadline, a.seq limit $2 for update of a skip locked"
);
const STRANDED: &str = select_ready!(
    "where r.class = $1 and r.strand_ms = $2 and r.since <= $3
     order by r.since, r.seq limit $4 for update of r skip locked"
);

impl Writing<'_> {
    pub(super) async fn sweep(&mut self, sweep: &Sweep) -> Result<Swept, Failure> {
        let mut swept = Swept::default();
        let limit = i64::from(sweep.limit);
        self.sweep_timers(limit, &mut swept).await?;
        self.sweep_expiries(limit, &mut swept).await?;
        self.sweep_visibilities(limit, int(sweep.watched.0), &mut swept).await?;
        self.sweep_deadlines(limit, &mut swept).await?;
        Ok(swept)
    }

    async fn sweep_timers(&mut self, limit: i64, swept: &mut Swept) -> Result<(), Failure> {
        let due = self.ask(DUE_TIMERS, values![self.now.0, limit]).await?;
        self.learn_classes_of(&due).await?;
        swept.more |= reached(due.len(), limit);
        for row in &due {
            let live = self.of_waiting(row)?;
            self.step(&live, JobEvent::Due, &EndDetail::default(), swept).await?;
        }
        Ok(())
    }

    async fn sweep_expiries(&mut self, limit: i64, swept: &mut Swept) -> Result<(), Failure> {
        // A job that is held runs on, and is looked at again should it come back.
        let due = self
            .ask(
                "with due as materialized (
                     select e.ctid as place, e.at, e.seq from expiry e where e.at <= $1
                         and not exists (select 1 from active a where a.seq = e.seq)
                     order by e.at, e.seq limit $2 for update skip locked),
                 gone as (
                     delete from expiry where ctid = any(array(select place from due)))
                 select j.id from due join job_row j on j.seq = due.seq order by due.at, due.seq",
                values![self.now.0, limit],
            )
            .await?;
        swept.more |= reached(due.len(), limit);
        let mut ids = Vec::with_capacity(due.len());
        for row in &due {
            ids.push(outlast_core::id::JobId(get(row, 0)?));
        }
        let strangers = ids.iter().filter(|id| !self.lives.contains_key(id)).map(|id| id.0);
        let strangers: Vec<uuid::Uuid> = strangers.collect();
        if !strangers.is_empty() {
            self.look_for(strangers).await?;
        }
        for id in ids {
            let Some(live) = self.find(id).await? else { continue };
            // Claimed since: it gets a new entry when it comes back.
            if matches!(live.spot, Spot::Active(_)) {
                continue;
            }
            if !live.job.state.is_terminal() {
                let detail = EndDetail { evidence: "expired".into(), ..EndDetail::default() };
                self.step(&live, JobEvent::Expire, &detail, swept).await?;
            }
        }
        Ok(())
    }

    async fn sweep_visibilities(
        &mut self,
        limit: i64,
        watched: i64,
        swept: &mut Swept,
    ) -> Result<(), Failure> {
        let due = self.ask(DUE_VISIBILITIES, values![self.now.0, limit, watched]).await?;
        self.learn_classes_of(&due).await?;
        swept.more |= reached(due.len(), limit);
        for row in &due {
            let live = self.of_active(row)?;
            let Spot::Active(held) = &live.spot else { continue };
            let detail = visibility_detail(held.visibility.unwrap_or_default());
            self.step(&live, JobEvent::ExpireVisibility, &detail, swept).await?;
        }
        Ok(())
    }

    async fn sweep_deadlines(&mut self, limit: i64, swept: &mut Swept) -> Result<(), Failure> {
        let due = self.ask(DUE_DEADLINES, values![self.now.0, limit]).await?;
        self.learn_classes_of(&due).await?;
        swept.more |= reached(due.len(), limit);
        for row in &due {
            let live = self.of_active(row)?;
            let detail = timeout_detail(live.stored.timeout.unwrap_or_default());
            self.step(&live, JobEvent::TimeOut, &detail, swept).await?;
        }
        Ok(())
    }

    async fn step(
        &mut self,
        live: &Live,
        event: JobEvent<'_>,
        detail: &EndDetail,
        swept: &mut Swept,
    ) -> Result<(), Failure> {
        // The nth move of a command draws the nth jitter, whatever sort it is.
        let Ok(transition) = self.bench().decide(&live.job, event, swept.moved.len()) else {
            return Ok(());
        };
        let kind = event.kind();
        let ended_by = if kind == EventKind::Expire { "expired" } else { "" };
        let trace = Trace { kind, by: SWEEPER, detail, ended_by };
        let moved = self.carry_out(live, &transition, &trace).await?;
        swept.moved.push(moved);
        Ok(())
    }

    pub(super) async fn strand(&mut self, strand: &Strand) -> Result<Stranded, Failure> {
        let due = self.stranded(strand).await?;
        let mut found = Stranded::default();
        for (nth, live) in due.into_iter().enumerate() {
            let (Spot::Ready { since, .. }, ScheduledTimeout::After(limit)) =
                (&live.spot, live.stored.scheduled_timeout)
            else {
                continue;
            };
            let error = strand_error(limit, self.now.since(*since), &strand.reason);
            let detail = EndDetail {
                error: Some(error),
                evidence: strand.reason.clone(),
                ..EndDetail::default()
            };
            let Ok(transition) = self.bench().decide(&live.job, JobEvent::Strand, nth) else {
                continue;
            };
            let by = "execution_timeout_monitor";
            let trace =
                Trace { kind: EventKind::Strand, by, detail: &detail, ended_by: "stranded" };
            found.moved.push(self.carry_out(&live, &transition, &trace).await?);
        }
        let limits = self.limits_of(strand).await?;
        let next = limits
            .into_iter()
            .map(|(limit_ms, since)| since.max(strand.since.0).saturating_add(limit_ms))
            .min();
        found.next = next.map(Timestamp);
        Ok(found)
    }

    /// Returns the jobs that waited for their whole limit since they became claimable and
    /// since the class has no eligible worker, longest overdue first.
    async fn stranded(&mut self, strand: &Strand) -> Result<Vec<Live>, Failure> {
        let mut due: Vec<(i64, i64, Row)> = Vec::new();
        let limit = i64::from(strand.limit);
        for (limit_ms, _) in self.limits_of(strand).await? {
            let since_max = self.now.0.saturating_sub(limit_ms);
            if strand.since.0 > since_max {
                continue;
            }
            let values = values![strand.class.0, limit_ms, since_max, limit];
            let rows = self.ask(STRANDED, values).await?;
            for row in rows {
                let since: i64 = get(&row, SINCE)?;
                due.push((since.saturating_add(limit_ms), get(&row, 0)?, row));
            }
        }
        due.sort_by_key(|(at, seq, _)| (*at, *seq));
        due.truncate(usize::try_from(strand.limit).unwrap_or(usize::MAX));
        let rows: Vec<Row> = due.into_iter().map(|(.., row)| row).collect();
        self.learn_classes_of(&rows).await?;
        let mut lives = Vec::with_capacity(rows.len());
        for row in &rows {
            lives.push(self.of_ready(row)?);
        }
        Ok(lives)
    }

    /// Returns the different limits of a class's claimable jobs, each with the time since
    /// when the first of them waits: one step in the index for each, however many jobs wait.
    async fn limits_of(&mut self, strand: &Strand) -> Result<Vec<(i64, i64)>, Failure> {
        let mut limits: Vec<(i64, i64)> = Vec::new();
        loop {
            let after = limits.last().map_or(-1, |(limit_ms, _)| *limit_ms);
            let rows = self
                .ask(
                    "select strand_ms, since from ready where class = $1 and strand_ms > $2
                     order by class, strand_ms, since, seq limit 1",
                    values![strand.class.0, after],
                )
                .await?;
            let Some(row) = rows.first() else { return Ok(limits) };
            limits.push((get(row, 0)?, get(row, 1)?));
        }
    }
}

/// The last column of a claimable job: since when it waits.
const SINCE: usize = crate::row::STORED + 9;

fn reached(found: usize, limit: i64) -> bool {
    i64::try_from(found).is_ok_and(|found| found >= limit)
}
