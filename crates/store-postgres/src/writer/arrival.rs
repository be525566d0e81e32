//! Arrivals become jobs: a batch deletes the arrivals and stores their jobs.
//!
//! Which job an arrival becomes was decided before, so the delete is a compare-and-set: an
//! arrival that is gone is skipped, and so is one that another transaction has locked. A request
//! for one arrival waits for its lock instead.
//!
//! An arrival whose job cannot be stored, because another transaction holds what the job needs or
//! because it takes too long, stays for later. That is found out by waiting. So once it has happened each arrival is tried
//! by itself, within a savepoint, until it has not happened for a while: one arrival must not
//! hold up the others.

use std::collections::HashMap;

use outlast_store::StoreError;
use outlast_store::arrival::{ArrivalNumber, ArrivedJob, EnqueueArrived, EnqueuedArrived};
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{get, int};
use crate::writer::Tx;
use crate::writer::classes::Classes;

/// Rows are found by number and id, locked in order, and deleted by their place. Only the ids
/// of those that were found are looked up among the jobs.
macro_rules! take {
    ($lock:literal) => {
        concat!(
            "with found as materialized (
                 select a.ctid as place, a.n, a.id
                 from unnest($1::bigint[], $2::uuid[]) w(n, id)
                     join arrival a on a.n = any(array[w.n]) and a.id = any(array[w.id])
                 order by w.n for update of a ",
            $lock,
            "),
             gone as (
                 delete from arrival where ctid = any(array(select place from found)))
             select n, coalesce((select true from job_row j where j.id = f.id), false)
             from found f"
        )
    };
}

const TAKE: &str = take!("skip locked");
const TAKE_WAITING: &str = take!("");

/// What one server promised, another need not. A promise is kept until half of it is over, so
/// that it is not written with every batch. One that is not made costs programs a notification.
const WATCH: &str = "update arrival_watch w set until = $1
     from (select id from arrival_watch where id = 1 and until < $2 for update skip locked) f
     where w.id = f.id";

/// Most arrivals that a batch tries one by one.
const SINGLES_MAX: usize = 100;
/// Most that a batch passes over: each costs a moment of waiting.
const PASSED_OVER_MAX: usize = 8;

impl Tx<'_> {
    pub(super) async fn take_arrivals(
        &mut self,
        order: &EnqueueArrived,
    ) -> Result<EnqueuedArrived, Failure> {
        let mut done = EnqueuedArrived::default();
        if self.locks.is_hasty() && !order.wait {
            self.enqueue_singly(&order.jobs, &mut done).await?;
        } else {
            let sql = if order.wait { TAKE_WAITING } else { TAKE };
            self.replace(sql, &order.jobs, &mut done).await?;
            done.tried = order.jobs.len();
        }
        if let Some(watch) = order.watch {
            let (until, half) = (
                self.batch.context.now.0 + int(watch.0),
                self.batch.context.now.0 + int(watch.0 / 2),
            );
            self.write(WATCH, values![until, half]);
        }
        Ok(done)
    }

    /// Tries arrivals one by one and passes over those that meet a lock, or take too long.
    async fn enqueue_singly(
        &mut self,
        jobs: &[ArrivedJob],
        done: &mut EnqueuedArrived,
    ) -> Result<(), Failure> {
        let mut passed_over = 0;
        for arrived in jobs.iter().take(SINGLES_MAX) {
            // What was noted before is written before, so that none of it is undone.
            self.query("savepoint arrival", Vec::new()).await?;
            let (events, tally) = (self.batch.outbox.events.len(), self.batch.outbox.tally.clone());
            let (stored, known) = (done.jobs.len(), done.known.len());
            done.tried += 1;
            match self.enqueue_single(arrived, done).await {
                Ok(()) => {}
                Err(missed @ (Failure::Locked(_) | Failure::Slow(_))) => {
                    if matches!(missed, Failure::Locked(_)) {
                        self.locks.patience.was_locked();
                    }
                    let words = StoreError::from(missed).to_string();
                    tracing::debug!(arrival = %arrived.job.id, words, "arrival skipped");
                    self.connection
                        .run(&[Statement::plain("rollback to savepoint arrival")])
                        .await?;
                    drop(self.write_set.take());
                    self.batch.outbox.events.truncate(events);
                    self.batch.outbox.tally = tally;
                    done.jobs.truncate(stored);
                    done.known.truncate(known);
                    self.seen.stored.remove(&arrived.job.id);
                    // One may have been made for it.
                    self.cache.classes = Classes::default();
                    passed_over += 1;
                    if passed_over >= PASSED_OVER_MAX {
                        break;
                    }
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    async fn enqueue_single(
        &mut self,
        arrived: &ArrivedJob,
        done: &mut EnqueuedArrived,
    ) -> Result<(), Failure> {
        self.replace(TAKE, std::slice::from_ref(arrived), done).await?;
        self.query("release savepoint arrival", Vec::new()).await?;
        Ok(())
    }

    /// Deletes those arrivals that are there and stores their jobs.
    async fn replace(
        &mut self,
        sql: &'static str,
        jobs: &[ArrivedJob],
        done: &mut EnqueuedArrived,
    ) -> Result<(), Failure> {
        let numbers: Vec<i64> = jobs.iter().map(|arrived| arrived.number.0).collect();
        let ids: Vec<Uuid> = jobs.iter().map(|arrived| arrived.job.id.0).collect();
        let mut found = HashMap::new();
        for row in &self.query(sql, values![numbers, ids]).await? {
            let is_stored: bool = get(row, 1)?;
            found.insert(ArrivalNumber(get(row, 0)?), is_stored);
        }
        for ArrivedJob { number, job, refused } in jobs {
            match found.remove(number) {
                None => {}
                Some(is_stored) if is_stored || self.seen.stored.contains(&job.id) => {
                    done.known.push(job.id);
                }
                // A job that has expired meanwhile is stored like others, and expires at once.
                Some(_) => done.jobs.push(self.insert_job(job, refused.as_deref()).await?),
            }
        }
        Ok(())
    }
}
