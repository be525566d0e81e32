//! Taking in what programs stored by SQL: an arrival goes and its job comes, in one batch.
//!
//! Servers pass over what another has locked, so each arrival is taken in by one of them. Who
//! wants a certain one waits for the other instead, and finds the job after that.

use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_store::arrival::{Arrival, TakeIn, TakenIn};
use outlast_store::command::{First, NewJob};
use tokio_postgres::Row;

use crate::failure::Failure;
use crate::link::values;
use crate::row::{get, int};
use crate::writer::Writing;

/// Rows are found once, in order, and deleted by their place. Ids are looked up for those that
/// were found only.
const NEXT: &str = "with found as materialized (
         select a.ctid as place, a.n, a.id, a.tenant, a.envelope from arrival a
         order by a.n limit $1 for update skip locked),
     gone as (
         delete from arrival where ctid = any(array(select place from found)))
     select id, tenant, envelope,
         coalesce((select true from job_row j where j.id = f.id), false)
     from (select * from found order by n) f";

const ONE: &str = "with gone as (
         delete from arrival where id = $1 returning id, tenant, envelope)
     select id, tenant, envelope,
         coalesce((select true from job_row j where j.id = g.id), false)
     from gone g";

/// What one server promised, another need not. A promise is kept until half of it is over, so
/// that it is not written with every batch.
const WATCH: &str = "update arrival_watch set until = $1 where id = 1 and until < $2";

impl Writing<'_> {
    pub(super) async fn take_arrivals(&mut self, order: &TakeIn) -> Result<TakenIn, Failure> {
        let rows = match order.only {
            Some(id) => self.ask(ONE, values![id.0]).await?,
            None => self.ask(NEXT, values![i64::from(order.limit)]).await?,
        };
        let full = u32::try_from(rows.len()).is_ok_and(|found| found >= order.limit);
        let mut taken = TakenIn { more: full && order.only.is_none(), ..TakenIn::default() };
        for row in &rows {
            self.take_arrival(row, order, &mut taken).await?;
        }
        if let Some(watch) = order.watch {
            let (until, half) = (self.now.0 + int(watch.0), self.now.0 + int(watch.0 / 2));
            self.write(WATCH, values![until, half]);
        }
        Ok(taken)
    }

    async fn take_arrival(
        &mut self,
        row: &Row,
        order: &TakeIn,
        taken: &mut TakenIn,
    ) -> Result<(), Failure> {
        let arrival =
            Arrival { id: JobId(get(row, 0)?), tenant: get(row, 1)?, envelope: get(row, 2)? };
        if get(row, 3)? || self.known.contains(&arrival.id) {
            taken.known.push(arrival.id);
            return Ok(());
        }
        let planned = order.planner.plan(&arrival, self.now);
        // Jobs that have expired meanwhile are stored like others, and expire at once.
        let stored = self.insert(&planned.job, planned.refused.as_deref()).await?;
        if planned.refused.is_none() {
            taken.due = [taken.due, due(&planned.job)].into_iter().flatten().min();
        }
        taken.jobs.push(stored);
        Ok(())
    }
}

fn due(job: &NewJob) -> Option<Timestamp> {
    let first = match job.first {
        First::At(at) => Some(at),
        First::Now | First::OnActivation => None,
    };
    [first, job.rules.expires_at].into_iter().flatten().min()
}
