//! Taking in what programs stored by SQL: an arrival goes and its job comes, in one batch.
//!
//! Servers pass over what another has locked, so each arrival is taken in by one of them. Who
//! wants a certain one waits for the other instead, and finds the job after that.
//!
//! An arrival that cannot be taken in, since another transaction holds what it needs, stays for
//! later. That is found out by waiting, so once it was met each is taken in by itself, within a
//! savepoint, until none is met for a while: one must not keep the others from being taken in.

use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_store::arrival::{Arrival, TakeIn, TakenIn};
use outlast_store::command::{First, NewJob};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::failure::Failure;
use crate::link::{Ask, values};
use crate::row::{get, int};
use crate::writer::classes::Classes;
use crate::writer::{HURRY, Writing};

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

const IDS: &str = "select id from arrival order by n limit $1 for update skip locked";

/// What one server promised, another need not. A promise is kept until half of it is over, so
/// that it is not written with every batch. One that is not made costs programs a notification.
const WATCH: &str = "update arrival_watch w set until = $1
     from (select id from arrival_watch where id = 1 and until < $2 for update skip locked) f
     where w.id = f.id";

/// Most arrivals that are taken in one by one by a batch.
const SINGLES_MAX: u32 = 100;
/// Most that a batch waits for in vain: each costs a moment.
const PASSED_OVER_MAX: u32 = 8;

impl Writing<'_> {
    pub(super) async fn take_arrivals(&mut self, order: &TakeIn) -> Result<TakenIn, Failure> {
        let mut taken = TakenIn::default();
        match order.only {
            Some(id) => {
                let rows = self.ask(ONE, values![id.0]).await?;
                self.take_rows(&rows, order, &mut taken).await?;
            }
            None if self.hurries => self.take_singly(order, &mut taken).await?,
            None => {
                let rows = self.ask(NEXT, values![i64::from(order.limit)]).await?;
                taken.more = u32::try_from(rows.len()).is_ok_and(|found| found >= order.limit);
                self.take_rows(&rows, order, &mut taken).await?;
            }
        }
        if let Some(watch) = order.watch {
            let (until, half) = (self.now.0 + int(watch.0), self.now.0 + int(watch.0 / 2));
            self.write(WATCH, values![until, half]);
        }
        Ok(taken)
    }

    /// Takes arrivals in one by one, and passes over those that cannot be now.
    async fn take_singly(&mut self, order: &TakeIn, taken: &mut TakenIn) -> Result<(), Failure> {
        let limit = order.limit.min(SINGLES_MAX);
        let ids = self.ask(IDS, values![i64::from(limit)]).await?;
        let mut passed_over = 0;
        for row in &ids {
            let id: Uuid = get(row, 0)?;
            // What was noted before is written before, so that none of it is undone.
            self.ask("savepoint arrival", Vec::new()).await?;
            let (events, tally) = (self.outbox.events.len(), self.outbox.tally.clone());
            let mut this = TakenIn::default();
            match self.take_single(id, order, &mut this).await {
                Ok(()) => {
                    taken.jobs.append(&mut this.jobs);
                    taken.known.append(&mut this.known);
                    taken.due = [taken.due, this.due].into_iter().flatten().min();
                }
                Err(Failure::Held(words)) => {
                    tracing::debug!(arrival = %id, words, "an arrival is passed over");
                    self.link.run(&[Ask::plain("rollback to savepoint arrival")]).await?;
                    drop(self.tables.take());
                    self.outbox.events.truncate(events);
                    self.outbox.tally = tally;
                    self.known.remove(&JobId(id));
                    // One may have been made for it.
                    *self.classes = Classes::default();
                    *self.held_until = Some(Instant::now() + HURRY);
                    passed_over += 1;
                    if passed_over >= PASSED_OVER_MAX {
                        break;
                    }
                }
                Err(other) => return Err(other),
            }
        }
        let full = u32::try_from(ids.len()).is_ok_and(|found| found >= limit);
        taken.more = full && !taken.jobs.is_empty();
        Ok(())
    }

    async fn take_single(
        &mut self,
        id: Uuid,
        order: &TakeIn,
        taken: &mut TakenIn,
    ) -> Result<(), Failure> {
        let rows = self.ask(ONE, values![id]).await?;
        self.take_rows(&rows, order, taken).await?;
        self.ask("release savepoint arrival", Vec::new()).await?;
        Ok(())
    }

    async fn take_rows(
        &mut self,
        rows: &[Row],
        order: &TakeIn,
        taken: &mut TakenIn,
    ) -> Result<(), Failure> {
        for row in rows {
            self.take_arrival(row, order, taken).await?;
        }
        Ok(())
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
