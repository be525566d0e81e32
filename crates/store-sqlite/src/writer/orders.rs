//! What people order about jobs and queues, and what attempts print.

use outlast_core::job::Event as JobEvent;
use outlast_core::limits;
use outlast_store::StoreError;
use outlast_store::apply::loaded::Loaded;
use outlast_store::apply::order;
use outlast_store::command::{JobOrder, LogChunk, QueueOrder, Stream};
use outlast_store::reply::{MoveRefusal, Moved, Reply};
use outlast_store::settle::{purged_event, queue_event};
use rusqlite::OptionalExtension as _;

use crate::row::{failed, int};
use crate::writer::Writing;
use crate::writer::classes::Classes;

type Outcome = Result<Moved, MoveRefusal>;

impl Writing<'_> {
    pub(super) fn cancel(&mut self, order: &JobOrder) -> Result<Outcome, StoreError> {
        self.order(order, JobEvent::Cancel)
    }

    pub(super) fn activate(&mut self, order: &JobOrder) -> Result<Outcome, StoreError> {
        self.order(order, JobEvent::Activate)
    }

    pub(super) fn run_now(&mut self, order: &JobOrder) -> Result<Outcome, StoreError> {
        self.order(order, JobEvent::Due)
    }

    pub(super) fn replay(&mut self, order: &JobOrder) -> Result<Outcome, StoreError> {
        self.order(order, JobEvent::Replay)
    }

    fn order(&mut self, order: &JobOrder, event: JobEvent<'_>) -> Result<Outcome, StoreError> {
        let Some(loaded) = self.find_for(order)? else { return Ok(Err(MoveRefusal::NotFound)) };
        match order::order(&loaded, order, event, &self.bench()) {
            Ok(decided) => self.carry_out(&loaded, &decided).map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    fn find_for(&self, order: &JobOrder) -> Result<Option<Loaded>, StoreError> {
        Ok(self.find(order.job)?.filter(|loaded| order::may_see(order, loaded)))
    }

    pub(super) fn forget_dead_letter(&mut self, order: &JobOrder) -> Result<Reply, StoreError> {
        let Some(loaded) = self.find_for(order)? else { return Ok(Reply::NotFound) };
        let Some(reason) = self.take_letter(loaded.seq)? else { return Ok(Reply::NotFound) };
        self.outbox.tally.letter_gone(loaded.stored.class, reason);
        self.outbox.events.push(purged_event(&loaded.stored, self.now, &order.by));
        Ok(Reply::Done)
    }

    pub(super) fn queue(&mut self, order: &QueueOrder) -> Result<Reply, StoreError> {
        self.execute(
            "insert into queue (name, paused) values (?1, ?2)
             on conflict (name) do update set paused = ?2",
            (&order.queue, order.paused),
        )?;
        self.classes.set_paused(&order.queue, order.paused);
        self.outbox.events.push(queue_event(&order.queue, order.paused, self.now, &order.by));
        Ok(Reply::Done)
    }

    pub(super) fn log(&mut self, chunk: &LogChunk) -> Result<Reply, StoreError> {
        let Some(seq) = self.seq_of(chunk.job)? else { return Ok(Reply::Done) };
        let stream = match chunk.stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
            Stream::Worker => 2,
        };
        // What the worker remarks (that output was cut, why) is never itself cut.
        if chunk.stream != Stream::Worker && self.log_size(seq, chunk)? > limits::LOG_BYTES_MAX {
            return Ok(Reply::Done);
        }
        let stored = self.execute(
            "insert or ignore into log (seq, id, epoch, n, stream, at, bytes)
             values (?1, (select coalesce(max(id), 0) + 1 from log where seq = ?1),
                     ?2, ?3, ?4, ?5, ?6)",
            (seq, int(chunk.epoch.0), chunk.n, stream, self.now.0, &chunk.bytes),
        )?;
        if stored == 1 {
            let bytes = i64::try_from(chunk.bytes.len()).unwrap_or(i64::MAX);
            self.execute(
                "insert into log_size (seq, epoch, bytes) values (?1, ?2, ?3)
                 on conflict (seq, epoch) do update set bytes = bytes + ?3",
                (seq, int(chunk.epoch.0), bytes),
            )?;
        }
        Ok(Reply::Done)
    }

    /// Returns what the attempt's output would come to with this chunk.
    fn log_size(&self, seq: i64, chunk: &LogChunk) -> Result<usize, StoreError> {
        let mut select = self
            .db
            .prepare_cached("select bytes from log_size where seq = ? and epoch = ?")
            .map_err(failed)?;
        let kept = select.query_row((seq, int(chunk.epoch.0)), |row| row.get(0)).optional();
        let kept: u64 = kept.map_err(failed)?.unwrap_or(0);
        Ok(usize::try_from(kept).unwrap_or(usize::MAX).saturating_add(chunk.bytes.len()))
    }

    pub(super) fn reset(&mut self) -> Result<Reply, StoreError> {
        self.db
            .execute_batch(
                "delete from job_row; delete from ready; delete from waiting; delete from expiry;
                 delete from active; delete from attempt_row; delete from finished;
                 delete from dead_letter_row; delete from checkpoint; delete from log;
                 delete from log_size;
                 delete from event_batch; delete from worker; delete from queue;
                 delete from class; delete from idempotency; delete from idempotency_job;
                 delete from tally; delete from class_block;",
            )
            .map_err(failed)?;
        self.leave_empty_lane()?;
        *self.classes = Classes::load(self.db)?;
        self.outbox.events.clear();
        self.outbox.tally.clear();
        Ok(Reply::Done)
    }
}
