//! Deleting what need not be kept any longer.

use outlast_core::duty::DutyRefusal;
use outlast_store::backend::duty;
use outlast_store::command::{ClassId, Prune};
use outlast_store::list::BLOCK_BITS;
use outlast_store::reply::Pruned;

use crate::failure::Failure;
use crate::link::values;
use crate::row::{self, get};
use crate::writer::Writing;

/// Dead letters wait for a person, a cancelled job for its process tree, and the job of a
/// key for its producer.
const OLD_JOBS: &str = "select f.seq,
         (select j.class from job_row j where j.seq = f.seq), f.state
     from finished f where f.at < $1
         and not exists (select 1 from dead_letter_row d where d.seq = f.seq)
         and not exists (select 1 from active a where a.seq = f.seq)
         and not exists (select 1 from idempotency_job i where i.seq = f.seq)
     order by f.at, f.seq limit $2 for update of f skip locked";

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

/// A block that somebody may be storing jobs in is not left.
const LEAVE_BLOCKS: &str = "delete from class_block b
     where b.block = any($1::bigint[])
         and b.block < ((select last_value from job_seq) >> 10) - 4096
         and not exists (
             select 1 from job_row j
             where j.seq >= b.block << 10 and j.seq < (b.block + 1) << 10)";

/// How long a server's row in `server_batch` is kept at least.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Writing<'_> {
    pub(super) async fn delete_old(
        &mut self,
        prune: &Prune,
    ) -> Result<Result<Pruned, DutyRefusal>, Failure> {
        if let Err(refusal) = duty::check(self, &prune.duty).await? {
            return Ok(Err(refusal));
        }
        let limit = i64::from(prune.limit);
        let classes = self.retire_classes().await?;
        let before = prune.finished_before.0;
        let keys = self.ask(OLD_KEYS, values![self.context.now.0, limit]).await?;
        let old = self.ask(OLD_JOBS, values![before, limit]).await?;
        let mut seqs: Vec<i64> = Vec::with_capacity(old.len());
        for row in &old {
            seqs.push(get(row, 0)?);
            self.outbox.tally.deleted(ClassId(get(row, 1)?), row::state(row, 2)?);
        }
        if !seqs.is_empty() {
            self.delete_jobs(&seqs);
        }
        let tallies = self.take_tallies_over(limit).await?;
        // Each server that writes changes its own row all the time.
        let gone = before.min(self.context.now.0 - DAY_MS);
        self.write("delete from server_batch where at < $1", values![gone]);
        let workers = self
            .ask(
                "delete from worker where id in
                         (select w.id from worker w where w.liveness >= 2 and w.updated_ms < $1
                          and not exists (select 1 from active a where a.worker = w.id)
                          order by w.updated_ms limit $2 for update skip locked)
                     returning 1",
                values![prune.workers_before.0, limit],
            )
            .await?;
        let full = |count: usize| i64::try_from(count).is_ok_and(|count| count >= limit);
        Ok(Ok(Pruned {
            jobs: u32::try_from(seqs.len()).unwrap_or(u32::MAX),
            workers: u32::try_from(workers.len()).unwrap_or(u32::MAX),
            classes,
            more: [keys.len(), seqs.len(), workers.len(), tallies].into_iter().any(full),
        }))
    }

    /// What history says of the jobs stays until its day goes; nobody finds it without them.
    fn delete_jobs(&mut self, seqs: &[i64]) {
        // Whoever is named later in the batch is looked for again.
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
            "delete from job_row where seq = any($1::bigint[])",
        ] {
            self.write(sql, values![seqs.to_vec()]);
        }
        let mut blocks: Vec<i64> = seqs.iter().map(|seq| seq >> BLOCK_BITS).collect();
        blocks.sort_unstable();
        blocks.dedup();
        self.write(LEAVE_BLOCKS, values![blocks]);
    }
}
