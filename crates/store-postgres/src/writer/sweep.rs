//! What time alone does. Jobs that someone is moving are passed over: they are looked at
//! again by the next sweep.

use outlast_core::id::JobId;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{Strand, Sweep};
use outlast_store_rules::apply::loaded::Loaded;
use outlast_store_rules::apply::sweep::{Due, reached};
use outlast_store_rules::backend::Found;
use tokio::time::Instant;
use uuid::Uuid;

use crate::connection::values;
use crate::failure::Failure;
use crate::row::moving_columns;
use crate::row::{get, int};
use crate::writer::Tx;
use crate::writer::load::{moving, of_active, select_active, select_ready, select_waiting};
use crate::writer::write_set::ExpiryRow;

const DUE_TIMERS: &str = select_waiting!(
    "where w.due <= $1 and w.due >= $3 order by w.due, w.seq limit $2 for update of w skip locked"
);
const DUE_VISIBILITIES: &str = select_active!(
    "where a.visible_until <= $1 and a.visible_until >= $4 and a.visibility_ms <= $3
     order by a.visible_until, a.seq limit $2 for update of a skip locked"
);
const DUE_DEADLINES: &str = select_active!(
    "where a.deadline <= $1 and a.deadline >= $3 and not a.cancelled
     order by a.deadline, a.seq limit $2 for update of a skip locked"
);
/// Deletes expiries that are due. A job that is held runs on. When it comes back, it gets a new one.
const TAKE_EXPIRED: &str = "with due as materialized (
         select e.ctid as place, e.at, e.seq from expiry e where e.at <= $1 and e.at >= $3
             and not exists (select 1 from active a where a.seq = any(array[e.seq]))
         order by e.at, e.seq limit $2 for update skip locked),
     gone as (
         delete from expiry where ctid = any(array(select place from due)))
     select j.id, due.at, due.seq from due join job_row j on j.seq = any(array[due.seq])
     order by due.at, due.seq";

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

/// Whether a sweep leaves nothing out that is due: attempts that were not watched for as long as their
/// visibility stay.
fn takes_all(due: Due, sweep: &Sweep) -> bool {
    due != Due::Visibility || sweep.watched == Span(u64::MAX)
}

impl Tx<'_> {
    pub(super) async fn load_due(&mut self, due: Due, sweep: &Sweep) -> Result<Found, Failure> {
        let begin = self.holds.sweeps.sweeps().begin(due, Instant::now());
        let found = self.load_due_from(due, begin.from, sweep).await?;
        let upto = (!found.more && takes_all(due, sweep)).then_some(self.batch.context.now);
        let swept = self.holds.sweeps.sweeps().end(due, begin, upto, Instant::now());
        self.holds.sweeps.sweep(swept);
        Ok(found)
    }

    async fn load_due_from(
        &mut self,
        due: Due,
        [from]: [i64; 1],
        sweep: &Sweep,
    ) -> Result<Found, Failure> {
        let limit = i64::from(sweep.limit);
        let now = self.batch.context.now.0;
        let rows = match due {
            Due::Timer => self.query(DUE_TIMERS, values![now, limit, from]).await?,
            Due::Expiry => return self.load_expired(limit, from).await,
            Due::Visibility => {
                let watched = int(sweep.watched.0);
                self.query(DUE_VISIBILITIES, values![now, limit, watched, from]).await?
            }
            Due::Deadline => self.query(DUE_DEADLINES, values![now, limit, from]).await?,
        };
        let of = if due == Due::Timer { Self::of_waiting } else { Self::of_active };
        Ok(Found { more: reached(rows.len(), limit), jobs: self.load_rows(&rows, of).await? })
    }

    async fn load_expired(&mut self, limit: i64, from: i64) -> Result<Found, Failure> {
        let due = self.query(TAKE_EXPIRED, values![self.batch.context.now.0, limit, from]).await?;
        let mut entries = Vec::with_capacity(due.len());
        for row in &due {
            entries.push((JobId(get(row, 0)?), get(row, 1)?, get(row, 2)?));
        }
        let strangers = entries.iter().filter(|(id, ..)| !self.seen.jobs.contains_key(id));
        let strangers: Vec<Uuid> = strangers.map(|(id, ..)| id.0).collect();
        let locked = self.look_for_free(strangers).await?;
        let mut jobs = Vec::with_capacity(entries.len());
        for (id, at, seq) in entries {
            if locked.contains(&id.0) {
                // Another transaction is moving it. The next sweep looks at it again.
                self.holds.sweeps.put(Due::Expiry, at, self.batch.context.now);
                self.write_set.expiries.push(ExpiryRow { at, seq });
            } else {
                jobs.extend(self.take_loaded(id).await?);
            }
        }
        Ok(Found { more: reached(due.len(), limit), jobs })
    }

    pub(super) async fn load_stranded(&mut self, strand: &Strand) -> Result<Vec<Loaded>, Failure> {
        let limit = i64::from(strand.limit);
        let values = values![strand.class.0, strand.since.0, self.batch.context.now.0, limit];
        let rows = self.query(STRANDED, values).await?;
        self.load_rows(&rows, Self::of_ready).await
    }

    pub(super) async fn next_strand(
        &mut self,
        strand: &Strand,
    ) -> Result<Option<Timestamp>, Failure> {
        let rows = self.query(NEXT_STRANDED, values![strand.class.0, strand.since.0]).await?;
        let next: Option<i64> = rows.first().map(|row| get(row, 0)).transpose()?.flatten();
        Ok(next.map(Timestamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_leaves_attempts_that_it_may_not_judge_yet_to_the_next_one() {
        let watched = |watched| Sweep { limit: 10, watched: Span(watched) };
        assert!(!takes_all(Due::Visibility, &watched(30_000)));
        assert!(takes_all(Due::Visibility, &watched(u64::MAX)));
        assert!(takes_all(Due::Timer, &watched(0)));
    }
}
