//! Looking after history: days made ahead, dropped when they are old.
//!
//! It runs on a connection of its own and in small transactions, each of which waits for a
//! lock for a moment only and is put off otherwise: others that want the table meanwhile wait
//! behind it. Locks and the catalog decide, not what was read before, so two servers that
//! do this at once do no harm; leadership only spares them the work.
//!
//! ```text
//! days ahead that are not there ─▶ made, with what the default partition holds of them
//! old days: of events                       ─▶ dropped
//!           no or few jobs of it are stored ─▶ dropped, their rows kept in the default
//!           many                            ─▶ rows of forgotten jobs are deleted, some at a time
//! default partition ─▶ the same row by row
//! ```
//!
//! It also counts claimable jobs by second again where a server of the build before has moved some
//! without counting them.
//!
//! Rows of forgotten jobs are found by reading all of a partition. One that keeps many rows rests for a
//! day when nothing is left to be deleted of it, or when reading it takes too long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_core::leadership::{self, LeadershipRefusal};
use outlast_core::time::Timestamp;
use outlast_store::partitions::{DAY_MS, Maintain, Maintained, day_of};
use outlast_store::{Clock, StoreError};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::connection::Connection;
use crate::failure::{Conflict, Failure};
use crate::row::{self, get};
use crate::silence::Silence;
use crate::writer::NOW;

/// A table that is kept by day.
struct History {
    name: &'static str,
    /// How many rows move to the default partition at most when their day is dropped; `None`
    /// for what is about no job in particular.
    kept_max: Option<i64>,
}

const HISTORY: [History; 3] = [
    History { name: "event_batch", kept_max: None },
    History { name: "attempt_row", kept_max: Some(10_000) },
    // A chunk of output may be long.
    History { name: "log", kept_max: Some(1_000) },
];

/// Days that are made ahead. A day without partition costs nothing but tidiness.
const AHEAD: i64 = 3;
/// Rows of the default partition that move to a day which is made at last.
const MOVED_MAX: i64 = 10_000;
/// Until this long after its end nothing of a day is dropped: the last batches of it may
/// still be under way.
const SETTLED_MS: i64 = 60 * 60 * 1000;
/// Longest that the whole may take, for a PostgreSQL that hangs without a word.
const MAINTAIN_LIMIT: Duration = Duration::from_secs(600);

/// Whether some queue has another number of claimable jobs than are counted by second, or a second that
/// counts fewer than none. Of a server of an older build, which counts no seconds, one job may come and
/// another go: the sums agree then, and two seconds are wrong.
const SECONDS_ARE_WRONG: &str = "with counted as (
         select queue, sum(available) as jobs from live_queue_tally group by queue),
     aged as (
         select queue, sum(jobs) as jobs from live_ready_second where second = -1 group by queue)
     select exists (
         select 1 from counted c full join aged a on a.queue = c.queue
         where coalesce(c.jobs, 0) <> coalesce(a.jobs, 0))
         or exists (
             select 1 from live_ready_second group by queue, second having sum(jobs) < 0)";

/// Which partitions are not read for a while, each with the time until when. It is kept in memory.
#[derive(Debug, Default)]
pub(crate) struct Resting(Mutex<HashMap<String, Timestamp>>);

impl Resting {
    fn has(&self, part: &str, now: Timestamp) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, until| *until > now);
        all.contains_key(part)
    }

    fn add(&self, part: &str, now: Timestamp) {
        let until = Timestamp(now.0.saturating_add(DAY_MS));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part.to_owned(), until);
    }
}

/// How a step ended otherwise than well.
enum Stop {
    Refused(LeadershipRefusal),
    Failed(Failure),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<tokio_postgres::Error> for Stop {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Does all that there is to do now.
pub(crate) async fn maintain(
    silence: &Silence,
    clock: Option<&Arc<dyn Clock>>,
    order: &Maintain,
    resting: &Resting,
) -> Result<Result<Maintained, LeadershipRefusal>, StoreError> {
    let connection = silence.address().maintenance().await?;
    let line = connection.line();
    let (now, done) = (Timestamp::default(), Maintained::default());
    let mut maintenance = Maintenance { connection, order, resting, now, done };
    let maintaining = Box::pin(maintenance.all(clock));
    let Some(ended) = silence.answer(line, MAINTAIN_LIMIT, maintaining).await else {
        return Err(StoreError::Unavailable("no answer in time".into()));
    };
    match ended {
        Ok(()) => Ok(Ok(maintenance.done)),
        Err(Stop::Refused(refusal)) => Ok(Err(refusal)),
        Err(Stop::Failed(failure)) => Err(failure.into()),
    }
}

struct Maintenance<'a> {
    connection: Connection,
    order: &'a Maintain,
    resting: &'a Resting,
    now: Timestamp,
    done: Maintained,
}

impl Maintenance<'_> {
    async fn all(&mut self, clock: Option<&Arc<dyn Clock>>) -> Result<(), Stop> {
        let now = match clock {
            Some(clock) => clock.now(),
            None => row::time(&self.one(NOW, &[]).await?, 0)?,
        };
        self.now = now;
        let counted = self.count_seconds().await;
        self.or_later(counted)?;
        let today = day_of(now).0 / DAY_MS;
        let settled = day_of(Timestamp(now.0.saturating_sub(SETTLED_MS)));
        let before = day_of(self.order.finished_before).min(settled);
        for history in &HISTORY {
            let days = self.days(history).await?;
            for day in today..=today.saturating_add(AHEAD) {
                if !days.contains(&day) {
                    let made = self.add(history, day).await;
                    self.done.made += u32::from(self.or_later(made)?.unwrap_or(false));
                }
            }
            for day in days.into_iter().filter(|day| *day < before.0 / DAY_MS) {
                let dropped = self.drop_or_thin(history, day).await;
                self.or_later(dropped)?;
            }
            let thinned = self.thin_default(history, before).await;
            self.or_later(thinned)?;
        }
        Ok(())
    }

    /// Counts claimable jobs by second again if a server of the build before has moved some.
    async fn count_seconds(&mut self) -> Result<(), Stop> {
        if !get::<bool>(&self.one(SECONDS_ARE_WRONG, &[]).await?, 0)? {
            return Ok(());
        }
        tracing::info!("counting claimable jobs by second again");
        self.begin().await?;
        let counted = self.one("select outlast.count_ready_seconds()", &[]).await;
        self.end(counted).await.map(|_| ())
    }

    /// Puts off a step that met another transaction's lock, or took too long.
    fn or_later<T>(&mut self, step: Result<T, Stop>) -> Result<Option<T>, Stop> {
        match step {
            Ok(done) => Ok(Some(done)),
            Err(Stop::Failed(
                Failure::Locked(words) | Failure::Again(Conflict::Locks | Conflict::Key, words),
            )) => {
                tracing::debug!(
                    error = words,
                    "step put off: another transaction has locked the table"
                );
                self.done.put_off += 1;
                Ok(None)
            }
            Err(Stop::Failed(Failure::Slow(words))) => {
                tracing::warn!(error = words, "a partition of history could not be read in time");
                self.done.put_off += 1;
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Lets a partition rest that took too long.
    fn rest_if_slow<T>(&self, part: &str, done: &Result<T, Stop>) {
        if matches!(done, Err(Stop::Failed(Failure::Slow(_)))) {
            self.resting.add(part, self.now);
        }
    }

    /// Returns the days that have a partition of their own, oldest first.
    async fn days(&self, history: &History) -> Result<Vec<i64>, Stop> {
        let sql = "select (to_date(right(c.relname, 8), 'YYYYMMDD') - date '1970-01-01')::bigint
                   from pg_inherits i join pg_class c on c.oid = i.inhrelid
                   where i.inhparent = $1::text::regclass and c.relname ~ '_[0-9]{8}$' order by 1";
        let rows = self.all_of(sql, &[&history.name]).await?;
        rows.iter().map(|row| get(row, 0)).collect::<Result<_, StoreError>>().map_err(Stop::from)
    }

    async fn add(&mut self, history: &History, day: i64) -> Result<bool, Stop> {
        self.begin().await?;
        let sql = "select outlast.add_day($1, $2, $3)";
        let added = self.one(sql, &[&history.name, &day, &MOVED_MAX]).await;
        self.end(added).await.and_then(|row| get(&row, 0).map_err(Stop::from))
    }

    async fn drop_or_thin(&mut self, history: &History, day: i64) -> Result<(), Stop> {
        let part: String =
            get(&self.one("select outlast.day_name($1, $2)", &[&history.name, &day]).await?, 0)?;
        if self.resting.has(&part, self.now) {
            return Ok(());
        }
        self.begin().await?;
        let done = self.drop_or_thin_part(history, day, &part).await;
        self.rest_if_slow(&part, &done);
        self.end(done).await
    }

    async fn drop_or_thin_part(
        &mut self,
        history: &History,
        day: i64,
        part: &str,
    ) -> Result<(), Stop> {
        let mut keep: Vec<i64> = Vec::new();
        if let Some(most) = history.kept_max {
            // Only an import writes into a day that is over.
            if !self.lock(part).await? {
                return Ok(());
            }
            let sql = format!(
                "select t.seq from {part} t
                 where exists (select 1 from job_row j where j.seq = t.seq) limit $1"
            );
            for row in &self.all_of(&sql, &[&(most + 1)]).await? {
                keep.push(get(row, 0)?);
            }
            if i64::try_from(keep.len()).is_ok_and(|rows| rows > most) {
                if !self.delete(part, FORGOTTEN, None).await? {
                    self.resting.add(part, self.now);
                }
                return Ok(());
            }
            keep.dedup();
        }
        let sql = "select outlast.drop_day($1, $2, $3)";
        let dropped: bool = get(&self.one(sql, &[&history.name, &day, &keep]).await?, 0)?;
        self.done.dropped += u32::from(dropped);
        Ok(())
    }

    /// Locks a day against writers. Returns false if another server has dropped it meanwhile.
    async fn lock(&self, part: &str) -> Result<bool, Stop> {
        let sql = format!("lock table {part} in share row exclusive mode");
        match self.connection.client().batch_execute(&sql).await {
            Ok(()) => Ok(true),
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn thin_default(&mut self, history: &History, before: Timestamp) -> Result<(), Stop> {
        let part = format!("{}_default", history.name);
        if self.resting.has(&part, self.now) {
            return Ok(());
        }
        self.begin().await?;
        let done = match history.kept_max {
            Some(most) => self.thin(&part, most).await,
            None => self.delete(&part, "t.at < $2", Some(before.0)).await.map(drop),
        };
        self.rest_if_slow(&part, &done);
        self.end(done).await
    }

    /// Deletes rows of forgotten jobs; lets the partition rest if it keeps more than `most` others.
    async fn thin(&mut self, part: &str, most: i64) -> Result<(), Stop> {
        if self.delete(part, FORGOTTEN, None).await? {
            return Ok(());
        }
        let sql = format!("select count(*) from (select 1 from {part} limit $1) kept");
        let kept: i64 = get(&self.one(&sql, &[&(most + 1)]).await?, 0)?;
        if kept > most {
            self.resting.add(part, self.now);
        }
        Ok(())
    }

    /// Deletes some rows; returns whether there may be more.
    async fn delete(&mut self, part: &str, which: &str, value: Option<i64>) -> Result<bool, Stop> {
        let sql = format!(
            "delete from {part} where ctid = any(array(
                 select t.ctid from {part} t where {which} limit $1)) returning 1"
        );
        let limit = i64::from(self.order.limit);
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![&limit];
        if let Some(value) = &value {
            values.push(value);
        }
        let gone = u32::try_from(self.all_of(&sql, &values).await?.len()).unwrap_or(u32::MAX);
        self.done.deleted = self.done.deleted.saturating_add(gone);
        let more = gone >= self.order.limit;
        self.done.more |= more;
        Ok(more)
    }

    /// Begins a step, unless another server leads now.
    async fn begin(&self) -> Result<(), Stop> {
        self.say("begin").await?;
        let fence = &self.order.leadership;
        let sql = "select holder, epoch, until from duty where name = $1";
        let checked = self.all_of(sql, &[&fence.name]).await.and_then(|rows| {
            let found = rows.first().map(row::leadership).transpose()?;
            leadership::check(found, fence.holder, fence.epoch).map_err(Stop::Refused)
        });
        if checked.is_err() {
            self.roll_back().await;
        }
        checked
    }

    async fn roll_back(&self) {
        // A connection that is gone has rolled back.
        drop(self.say("rollback").await);
    }

    async fn end<T>(&self, done: Result<T, Stop>) -> Result<T, Stop> {
        match done {
            Ok(done) => {
                self.say("commit").await?;
                Ok(done)
            }
            Err(stop) => {
                self.roll_back().await;
                Err(stop)
            }
        }
    }

    async fn say(&self, sql: &str) -> Result<(), Stop> {
        Ok(self.connection.client().batch_execute(sql).await?)
    }

    async fn all_of(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Stop> {
        Ok(self.connection.client().query(sql, values).await?)
    }

    async fn one(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Row, Stop> {
        Ok(self.connection.client().query_one(sql, values).await?)
    }
}

/// Rows of jobs that are not stored any more.
const FORGOTTEN: &str = "not exists (select 1 from job_row j where j.seq = t.seq)";
