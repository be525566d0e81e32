//! Deleting what need not be kept any longer.

use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{ClassId, Prune};
use outlast_store::partitions::day_of;
use outlast_store::reply::Pruned;
use outlast_store_rules::list::BLOCK_BITS;
use outlast_store_rules::prune::{Deleted, blocks_of};
use outlast_store_rules::retire::{self, Empty, Looked};
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Tx;
use crate::writer::prune_bytes::Room;

/// What a class and its twin count, in all.
const LOOK_AT_CLASSES: &str = "
    select c.id, c.isolated, w.id,
        coalesce((select scheduled + available + pending + active + completed + retryable
            + cancelled + discarded + started + exhausted + abandoned
            from tally t where t.class = c.id), 0)
        + coalesce((select scheduled + available + pending + active + completed + retryable
            + cancelled + discarded + started + exhausted + abandoned
            from tally t where t.class = w.id), 0),
        (select max(id) from class)
    from (select * from class where id > ?1 order by id limit ?2) c
    left join class w on not c.isolated and w.queue = c.queue and w.job_type = c.job_type
        and w.route = c.route and w.tenant = c.tenant and w.keyed = c.keyed and w.isolated = 1
    order by c.id";

/// The next lane that has batches, and the time of its first.
const NEXT_LANE: &str = "select lane, at from event_batch where lane >= ? order by lane, n limit 1";

/// A job that ended long ago: its number, class and state.
type OldJob = (i64, ClassId, State);

/// The next jobs that ended before `?1`, and whether they go.
const OLD_JOBS: &str = "
    select f.seq, (select j.class from job_row j where j.seq = f.seq), f.state, f.at,
        not exists (select 1 from dead_letter_row d where d.seq = f.seq)
        and not exists (select 1 from active a where a.seq = f.seq)
        and not exists (select 1 from idempotency_job i where i.seq = f.seq)
    from finished f where (f.at, f.seq) > (?3, ?4) and f.at < ?1
    order by f.at, f.seq limit ?2";

impl Tx<'_> {
    pub(super) fn delete_old(&mut self, prune: &Prune) -> Result<Pruned, StoreError> {
        let limit = i64::from(prune.limit);
        let prune_now = self.batch.context.now.0.saturating_mul(1000);
        let keys = self.prune_keys(limit)?;
        let mut room = Room::new();
        let (old, looked) = self.old_jobs(prune, &mut room)?;
        for (seq, class, state) in &old {
            self.delete_job(*seq)?;
            self.batch.outbox.tally.deleted(*class, *state);
        }
        for block in blocks_of(old.iter().map(|(seq, ..)| *seq)) {
            self.leave_block(block)?;
        }
        let events = self.prune_events(day_of(prune.finished_before), prune.limit, &mut room)?;
        if events > 0 {
            self.leave_empty_lane()?;
        }
        let workers = self.execute(
            "delete from worker where id in
                 (select id from worker where liveness >= 2 and updated_ms < ?1
                  and not exists (select 1 from active a where a.worker = unhex(replace(worker.id, '-', '')))
                  order by updated_ms limit ?2)",
            (prune.workers_before.0, limit),
        )?;
        self.keep_gates()?;
        // Gates that count nothing, and of which the rate is not used any more.
        let gates = self.execute(
            "delete from gate where id in (
                 select id from gate where in_flight = 0 and used_until < ?1 limit ?2)",
            (prune_now, limit),
        )?;
        self.execute(
            "delete from duty where until < ?1 and name <> ?2",
            (prune.leaders_before(self.batch.context.now).0, &prune.leadership.name),
        )?;
        let workflows = self.prune_workflows(prune)?;
        let sessions = self.prune_sessions(limit)?;
        let operations = self.prune_operations(prune)?;
        let classes = self.retire_classes()?;
        let deleted = Deleted { jobs: old.len(), workers, classes };
        let found = [looked, events, keys, gates, workflows, sessions, operations];
        let reply = deleted.reply(prune, &found);
        Ok(Pruned { more: reply.more || room.is_short, ..reply })
    }

    /// Deletes event batches of before `day`, up to `limit` and as many as there is room for; returns how
    /// many. Time never falls within a lane, so of each only the beginning is read.
    fn prune_events(
        &self,
        day: Timestamp,
        limit: u32,
        room: &mut Room,
    ) -> Result<usize, StoreError> {
        let mut lane = i64::MIN;
        let mut left = i64::from(limit);
        let mut deleted = 0;
        let mut next = self.db.prepare_cached(NEXT_LANE).map_err(failed)?;
        while left > 0 && !room.is_short {
            let begins: Option<(i64, i64)> = next
                .query_row([lane], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
                .map_err(failed)?;
            let Some((found, at)) = begins else { break };
            if at < day.0 {
                let count = self.prune_lane(found, left, day, room)?;
                left -= i64::try_from(count).unwrap_or(i64::MAX);
                deleted += count;
            }
            lane = found + 1;
        }
        Ok(deleted)
    }

    /// Deletes classes that have no jobs left; returns how many. It looks at some of them, and
    /// goes on behind them the next time.
    fn retire_classes(&mut self) -> Result<u32, StoreError> {
        let mut looked = Vec::new();
        let mut latest = ClassId(0);
        let mut select = self.db.prepare_cached(LOOK_AT_CLASSES).map_err(failed)?;
        let from = self.batch.cursors.class.0;
        let mut rows = select.query((from, retire::LOOKED_MAX)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<_> {
                let twin = row.get::<_, Option<i64>>(2)?.map(ClassId);
                let (id, isolated, jobs) = (ClassId(row.get(0)?), row.get(1)?, row.get(3)?);
                Ok((Looked { id, isolated, twin, jobs }, ClassId(row.get(4)?)))
            };
            let (class, highest) = read(row).map_err(failed)?;
            looked.push(class);
            latest = highest;
        }
        drop(rows);
        drop(select);
        self.batch.cursors.class = retire::next(&looked);
        let mut retired = 0;
        for id in retire::empty(&looked, latest, &self.batch.outbox.tally)
            .into_iter()
            .flat_map(Empty::ids)
        {
            for sql in [
                "delete from tally where class = ?",
                "delete from class_block where class = ?",
                "delete from class where id = ?",
            ] {
                self.execute(sql, [id.0])?;
            }
            self.cache.classes.forget(id);
            retired += 1;
        }
        if retired > 0 {
            self.execute(
                "delete from queue_tally where not exists
                     (select 1 from class c where c.queue = queue_tally.queue)",
                [],
            )?;
        }
        Ok(retired)
    }

    fn prune_keys(&self, limit: i64) -> Result<usize, StoreError> {
        self.execute(
            "delete from idempotency_job where key in
                 (select key from idempotency where expires <= ? order by expires, key limit ?)",
            (self.batch.context.now.0, limit),
        )?;
        self.execute(
            "delete from idempotency where key in
                 (select key from idempotency where expires <= ? order by expires, key limit ?)",
            (self.batch.context.now.0, limit),
        )
    }

    /// Looks at jobs that ended long ago; returns those that go, and how many it looked at. It ends at
    /// one that there is no room for: the next prune begins there. Dead letters are kept for an operator, a cancelled job for its process tree, and the job of a key for
    /// its producer.
    fn old_jobs(
        &mut self,
        prune: &Prune,
        room: &mut Room,
    ) -> Result<(Vec<OldJob>, usize), StoreError> {
        let from = self.batch.cursors.job_from(prune.from_start);
        let mut select = self.db.prepare_cached(OLD_JOBS).map_err(failed)?;
        let mut rows =
            select.query((prune.finished_before.0, prune.limit, from.0, from.1)).map_err(failed)?;
        let (mut old, mut looked, mut last) = (Vec::new(), 0, from);
        while let Some(row) = rows.next().map_err(failed)? {
            let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<_> {
                let job = (row.get(0)?, ClassId(row.get(1)?), row::state(row, 2)?);
                Ok((job, row.get(3)?, row.get(4)?))
            };
            let (job, at, goes): (OldJob, i64, bool) = read(row).map_err(failed)?;
            if goes {
                if !self.may_delete(job.0, room)? {
                    break;
                }
                old.push(job);
            }
            last = (at, job.0);
            looked += 1;
        }
        self.batch.cursors.job = last;
        Ok((old, looked))
    }

    fn leave_block(&mut self, block: i64) -> Result<(), StoreError> {
        let gone = self.execute(
            "delete from class_block where block = ?1 and not exists (
                 select 1 from job_row where seq >= ?1 << ?2 and seq < (?1 + 1) << ?2)",
            (block, BLOCK_BITS),
        )?;
        if gone > 0 {
            self.cache.classes.leave(block);
        }
        Ok(())
    }

    fn delete_job(&self, seq: i64) -> Result<(), StoreError> {
        self.execute(
            "delete from expiry where seq = ?1
             and at = (select expires_at from job_row where seq = ?1)",
            [seq],
        )?;
        for sql in [
            "delete from finished where seq = ?",
            "delete from attempt_row where seq = ?",
            "delete from log where seq = ?",
            "delete from log_size where seq = ?",
            "delete from checkpoint where seq = ?",
            "delete from unique_key where seq = ?",
            "delete from job_row where seq = ?",
        ] {
            self.execute(sql, [seq])?;
        }
        Ok(())
    }
}
