//! What time alone does. Jobs that someone is moving are passed over: they are looked at
//! again by the next sweep.

use outlast_core::time::Timestamp;
use outlast_store::apply::loaded::Loaded;
use outlast_store::apply::sweep::{Due, due, reached, strand};
use outlast_store::command::{Strand, Sweep};
use outlast_store::reply::{Stranded, Swept};

use crate::failure::Failure;
use crate::link::values;
use crate::row::moving_columns;
use crate::row::{get, int};
use crate::writer::Writing;
use crate::writer::live::{moving, select_active, select_ready, select_waiting};
use crate::writer::tables::ExpiryRow;

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
/// The different limits of a class's claimable jobs, each with the time since when the first
/// of them waits: one step in the index for each, however many jobs wait.
macro_rules! limits {
    () => {
        "with recursive l(ms, since) as (
             (select strand_ms, since from ready where class = $1 and strand_ms is not null
              order by class, strand_ms, since, seq limit 1)
             union all
             select n.strand_ms, n.since from l cross join lateral (
                 select r.strand_ms, r.since from ready r
                 where r.class = $1 and r.strand_ms > l.ms
                 order by r.class, r.strand_ms, r.since, r.seq limit 1) n)"
    };
}

/// When the first of a class's jobs will have waited for its whole limit.
const NEXT_STRANDED: &str =
    concat!(limits!(), " select min(greatest(l.since, $2::bigint) + l.ms) from l");

/// Jobs that waited for their whole limit, longest overdue first. They are found without a lock
/// and then locked one by one, so that no more are locked than are moved.
const STRANDED: &str = concat!(
    limits!(),
    ", due as materialized (
         select d.rank, d.seq, d.since + l.ms as at
         from l cross join lateral (
             select r.rank, r.seq, r.since from ready r
             where r.class = $1 and r.strand_ms = l.ms and r.since <= $3::bigint - l.ms
             order by r.class, r.strand_ms, r.since, r.seq limit $4) d
         where $2::bigint <= $3::bigint - l.ms
         order by at, d.seq)
     select x.*
     from due d cross join lateral (",
    select_ready!(
        "where r.class = $1 and r.rank = d.rank and r.seq = d.seq for update of r skip locked"
    ),
    ") x limit $4"
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
            self.sweep_due(&self.of_waiting(row)?, Due::Timer, swept).await?;
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
                 select j.id, due.at, due.seq from due join job_row j on j.seq = due.seq
                 order by due.at, due.seq",
                values![self.now.0, limit],
            )
            .await?;
        swept.more |= reached(due.len(), limit);
        let mut entries = Vec::with_capacity(due.len());
        for row in &due {
            entries.push((outlast_core::id::JobId(get(row, 0)?), get(row, 1)?, get(row, 2)?));
        }
        let strangers = entries.iter().filter(|(id, ..)| !self.lives.contains_key(id));
        let strangers: Vec<uuid::Uuid> = strangers.map(|(id, ..)| id.0).collect();
        let held = self.look_for_free(strangers).await?;
        for (id, at, seq) in entries {
            if held.contains(&id.0) {
                // Someone is moving it: it is looked at again by the next sweep.
                self.tables.expiries.push(ExpiryRow { at, seq });
                continue;
            }
            let Some(loaded) = self.find(id).await? else { continue };
            self.sweep_due(&loaded, Due::Expiry, swept).await?;
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
            self.sweep_due(&self.of_active(row)?, Due::Visibility, swept).await?;
        }
        Ok(())
    }

    async fn sweep_deadlines(&mut self, limit: i64, swept: &mut Swept) -> Result<(), Failure> {
        let due = self.ask(DUE_DEADLINES, values![self.now.0, limit]).await?;
        self.learn_classes_of(&due).await?;
        swept.more |= reached(due.len(), limit);
        for row in &due {
            self.sweep_due(&self.of_active(row)?, Due::Deadline, swept).await?;
        }
        Ok(())
    }

    async fn sweep_due(
        &mut self,
        loaded: &Loaded,
        what: Due,
        swept: &mut Swept,
    ) -> Result<(), Failure> {
        // The nth move of a command draws the nth jitter, of whatever kind it is.
        if let Some(decided) = due(loaded, what, swept.moved.len(), &self.bench()) {
            swept.moved.push(self.carry_out(loaded, &decided).await?);
        }
        Ok(())
    }

    pub(super) async fn strand(&mut self, order: &Strand) -> Result<Stranded, Failure> {
        let mut found = Stranded::default();
        for (nth, loaded) in self.stranded(order).await?.into_iter().enumerate() {
            if let Some(decided) = strand(&loaded, order, nth, &self.bench()) {
                found.moved.push(self.carry_out(&loaded, &decided).await?);
            }
        }
        let rows = self.ask(NEXT_STRANDED, values![order.class.0, order.since.0]).await?;
        let next: Option<i64> = rows.first().map(|row| get(row, 0)).transpose()?.flatten();
        found.next = next.map(Timestamp);
        Ok(found)
    }

    /// Returns the jobs that waited for their whole limit since they became claimable and
    /// since the class has no eligible worker, longest overdue first.
    async fn stranded(&mut self, strand: &Strand) -> Result<Vec<Loaded>, Failure> {
        let limit = i64::from(strand.limit);
        let values = values![strand.class.0, strand.since.0, self.now.0, limit];
        let rows = self.ask(STRANDED, values).await?;
        self.learn_classes_of(&rows).await?;
        let mut lives = Vec::with_capacity(rows.len());
        for row in &rows {
            lives.push(self.of_ready(row)?);
        }
        Ok(lives)
    }
}
