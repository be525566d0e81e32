//! Deleting what need not be kept any longer.

use outlast_core::limits::PRUNE_BESIDE_BYTES_MAX;
use outlast_store::StoreError;
use outlast_store::command::{ClassId, Prune};
use outlast_store::reply::Pruned;
use outlast_store_rules::prune::{
    Deleted, OPERATIONS_MAX, WORKFLOWS_MAX, blocks_of, found_of, operations_found,
};

use crate::connection::values;
use crate::failure::Failure;
use crate::row::{self, get, text};
use crate::writer::Tx;

/// The next jobs that ended before `$1`. The limit that the planner knows has it follow the index.
const LOOK_AT_OLD: &str = "select f.seq, f.at
     from (select seq, at
           from (select seq, at from finished
                 where (at, seq) > ($3, $4) and at < $1 order by at, seq limit 10000) first
           limit $2) f
     order by f.at, f.seq";

/// Locks those of them that go. Dead letters wait for an operator, a cancelled job for its process
/// tree, and the job of a key for its producer. Subqueries and not joins: each is one step in an
/// index, whatever the planner expects. How much space a text takes is known without reading it.
const OLD_JOBS: &str = "select f.seq,
         (select j.class from job_row j where j.seq = f.seq), f.state,
         (coalesce((select pg_column_size(j.args) + pg_column_size(j.meta) + pg_column_size(j.extra)
              from job_row j where j.seq = f.seq), 0)
          + coalesce(pg_column_size(f.result), 0) + coalesce(pg_column_size(f.error), 0)
          + coalesce((select pg_column_size(c.bytes) from checkpoint c where c.seq = f.seq), 0)
         )::bigint
     from finished f where f.seq = any($1::bigint[]) and f.at < $2
         and (select true from dead_letter_row d where d.seq = f.seq) is null
         and (select true from active a where a.seq = f.seq) is null
         and (select true from idempotency_job i where i.seq = f.seq) is null
     order by f.at, f.seq for update of f skip locked";

/// Rows are found once, in the order of an index, and then deleted by their place in the
/// table: no plan joins a whole table to the few that are old.
const OLD_KEYS: &str = "with old as materialized (
         select i.ctid as place, i.key from idempotency i where i.expires <= $1
         order by i.expires, i.key limit $2 for update skip locked),
     gone as (
         delete from idempotency where ctid = any(array(select place from old))),
     jobs as (
         delete from idempotency_job where key = any(array(select key from old)))
     select 1 from old";

/// Workflows that ended long ago, with all that is of them. One that is being written stays.
const OLD_WORKFLOWS: &str = "with old as materialized (
         select w.id from workflow w where w.finished is not null and w.finished < $1
         order by w.finished, w.id limit $2 for update skip locked),
     ends as (delete from workflow_end where workflow = any(array(select id from old))),
     items as (delete from workflow_item where workflow = any(array(select id from old))),
     steps as (delete from workflow_step where workflow = any(array(select id from old))),
     gone as (delete from workflow where id = any(array(select id from old)))
     select 1 from old";

const OLD_OPERATIONS: &str = "delete from operation where id = any(array(
         select o.id from operation o where o.ended is not null and o.ended < $1
         order by o.ended, o.id limit $2 for update skip locked))
     returning 1";

/// One that a server takes again at this moment stays.
const OLD_LEADERS: &str = "delete from duty where name in (
         select d.name from duty d where d.until < $1 and d.name <> $2
         for update skip locked)";

/// A block that a server may be storing jobs in is not left: all servers together have fewer than
/// 256 blocks of jobs in transactions under way.
const LEAVE_BLOCKS: &str = "delete from class_block b
     where b.block = any($1::bigint[])
         and b.block < ((select last_value from job_seq) >> 10) - 256
         and not exists (
             select 1 from job_row j
             where j.seq >= b.block << 10 and j.seq < (b.block + 1) << 10)";

/// The next blocks: one step in the index for each.
const NEXT_BLOCKS: &str = "with recursive b(block) as (
         (select block from class_block where block > $1 order by block limit 1)
         union all
         select (select c.block from class_block c where c.block > b.block order by c.block limit 1)
         from b where b.block is not null)
     select block from b where block is not null limit $2";

/// How many blocks one prune looks at, beside those that it deletes jobs of.
const BLOCKS_MAX: i64 = 64;

/// How long a server's row in `server_batch` is kept at least.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A job that ended long ago.
#[derive(Clone, Copy, Debug)]
struct Ended {
    seq: i64,
    at: i64,
}

impl Tx<'_> {
    pub(super) async fn delete_old(&mut self, prune: &Prune) -> Result<Pruned, Failure> {
        let limit = i64::from(prune.limit);
        let before = prune.finished_before.0;
        let keys = self.query(OLD_KEYS, values![self.batch.context.now.0, limit]).await?;
        let ended = self.look_at_old(prune).await?;
        let looked = ended.len();
        let old = match ended.is_empty() {
            true => Vec::new(),
            false => {
                let ended: Vec<i64> = ended.iter().map(|job| job.seq).collect();
                self.query(OLD_JOBS, values![ended, before]).await?
            }
        };
        let mut seqs: Vec<i64> = Vec::with_capacity(old.len());
        let mut room = i64::try_from(PRUNE_BESIDE_BYTES_MAX).unwrap_or(i64::MAX);
        for row in &old {
            room -= get::<i64>(row, 3)?;
            if room < 0 && !seqs.is_empty() {
                self.go_on_at(get(row, 0)?, &ended);
                break;
            }
            seqs.push(get(row, 0)?);
            self.batch.outbox.tally.deleted(ClassId(get(row, 1)?), row::state(row, 2)?);
        }
        if !seqs.is_empty() {
            self.delete_jobs(&seqs);
        }
        let tallies = self.take_tallies_over(limit).await?;
        self.leave_counts(limit);
        let gates = self.prune_gates(limit).await?;
        // A server that has not written for an hour has no lane any more.
        let gone = before.min(self.batch.context.now.0 - DAY_MS);
        self.write("delete from server_batch where lane is null and at < $1", values![gone]);
        let workers = self
            .query(
                "delete from worker where id = any(array(
                     select w.id from worker w where w.liveness >= 2 and w.updated_ms < $1
                         and (select true from active a where a.worker = w.id limit 1) is null
                     order by w.updated_ms limit $2 for update skip locked))
                 returning 1",
                values![prune.workers_before.0, limit],
            )
            .await?;
        let workflows = self.query(OLD_WORKFLOWS, values![before, WORKFLOWS_MAX]).await?;
        let sessions = self.prune_sessions(limit).await?;
        let operations = self.query(OLD_OPERATIONS, values![before, OPERATIONS_MAX]).await?;
        let leaders = prune.leaders_before(self.batch.context.now).0;
        self.write(OLD_LEADERS, values![leaders, text(&prune.leadership.name)]);
        self.leave_old_blocks().await?;
        // Last, as it locks classes that others may be storing jobs in.
        let classes = self.retire_classes().await?;
        let deleted = Deleted { jobs: seqs.len(), workers: workers.len(), classes };
        let workflows = found_of(workflows.len(), prune);
        let operations = operations_found(operations.len(), prune);
        let found = [keys.len(), looked, tallies, gates, workflows, sessions, operations];
        let reply = deleted.reply(prune, &found);
        Ok(Pruned { more: reply.more || seqs.len() < old.len(), ..reply })
    }

    /// Returns the next jobs that ended long ago.
    async fn look_at_old(&mut self, prune: &Prune) -> Result<Vec<Ended>, Failure> {
        let from = self.batch.cursors.job_from(prune.from_start);
        let page = values![prune.finished_before.0, i64::from(prune.limit), from.0, from.1];
        let rows = self.query(LOOK_AT_OLD, page).await?;
        let ended = rows.iter().map(|row| Ok(Ended { seq: get(row, 0)?, at: get(row, 1)? }));
        let ended: Vec<Ended> = ended.collect::<Result<_, StoreError>>()?;
        if let Some(last) = ended.last() {
            self.batch.cursors.job = (last.at, last.seq);
        }
        Ok(ended)
    }

    /// Has the next prune begin at one of these jobs, which is not the first.
    fn go_on_at(&mut self, seq: i64, ended: &[Ended]) {
        let before = ended.iter().take_while(|job| job.seq != seq).last();
        if let Some(before) = before {
            self.batch.cursors.job = (before.at, before.seq);
        }
    }

    /// Leaves some of the blocks that no job is in any more. A prune that deleted their last jobs
    /// may have been too early for them.
    async fn leave_old_blocks(&mut self) -> Result<(), Failure> {
        let from = self.batch.cursors.block;
        let rows = self.query(NEXT_BLOCKS, values![from, BLOCKS_MAX]).await?;
        let blocks: Vec<i64> = rows.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
        let full = i64::try_from(blocks.len()).is_ok_and(|count| count >= BLOCKS_MAX);
        self.batch.cursors.block = blocks.last().filter(|_| full).map_or(-1, |last| *last);
        if !blocks.is_empty() {
            self.write(LEAVE_BLOCKS, values![blocks]);
        }
        Ok(())
    }

    /// Their history stays until its day is dropped. It is not found without the jobs.
    fn delete_jobs(&mut self, seqs: &[i64]) {
        // A job that is named later in the batch is loaded again.
        self.seen.jobs.clear();
        for sql in [
            "delete from expiry where ctid = any(array(
                 select e.ctid from job_row j cross join lateral (
                     select e.ctid from expiry e where e.at = j.expires_at and e.seq = j.seq
                     limit 1) e
                 where j.seq = any($1::bigint[])))",
            "delete from finished where seq = any($1::bigint[])",
            "delete from log_size where seq = any($1::bigint[])",
            "delete from checkpoint where seq = any($1::bigint[])",
            "delete from unique_key where seq = any($1::bigint[])",
            "delete from job_row where seq = any($1::bigint[])",
        ] {
            self.write(sql, values![seqs.to_vec()]);
        }
        self.write(LEAVE_BLOCKS, values![blocks_of(seqs.iter().copied())]);
    }
}
