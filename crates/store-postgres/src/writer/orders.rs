//! What people order about jobs and queues, and what attempts print.

use outlast_core::job::{DeadLetterReason, Event as JobEvent};
use outlast_core::limits;
use outlast_store::apply::loaded::Loaded;
use outlast_store::apply::order;
use outlast_store::command::{JobOrder, LogChunk, QueueOrder, Stream};
use outlast_store::reply::{MoveRefusal, Moved, Reply};
use outlast_store::settle::{purged_event, queue_event};

use crate::failure::Failure;
use crate::link::values;
use crate::row::{self, int, text};
use crate::writer::Writing;
use crate::writer::classes::Classes;

type Outcome = Result<Moved, MoveRefusal>;

/// What is kept of each attempt tells whether the chunk is there and which is the next
/// number: history is written, and not looked into.
const STORE_CHUNK: &str = "with job as (
         select j.seq,
             (select coalesce(sum(s.chunks), 0)::bigint from log_size s where s.seq = j.seq)
                 as chunks
         from job_row j where j.id = $1),
     stored as (
         insert into log (seq, id, epoch, n, stream, at, bytes)
         select j.seq, j.chunks + 1, $2, $3, $4, $5, $6 from job j
         where not exists (
             select 1 from log_size s where s.seq = j.seq and s.epoch = $2
                 and (s.stored @> $3::bigint or s.bytes > $8::bigint - $7::bigint))
             and $7::bigint <= $8::bigint
         returning seq)
     insert into log_size as s (seq, epoch, bytes, chunks, stored)
     select seq, $2, $7::bigint, 1, int8multirange(int8range($3, $3::bigint + 1)) from stored
     on conflict (seq, epoch) do update set bytes = s.bytes + excluded.bytes,
         chunks = s.chunks + 1, stored = s.stored + excluded.stored";

impl Writing<'_> {
    pub(super) async fn cancel(&mut self, order: &JobOrder) -> Result<Outcome, Failure> {
        self.order(order, JobEvent::Cancel).await
    }

    pub(super) async fn activate(&mut self, order: &JobOrder) -> Result<Outcome, Failure> {
        self.order(order, JobEvent::Activate).await
    }

    pub(super) async fn run_now(&mut self, order: &JobOrder) -> Result<Outcome, Failure> {
        self.order(order, JobEvent::Due).await
    }

    pub(super) async fn replay(&mut self, order: &JobOrder) -> Result<Outcome, Failure> {
        self.order(order, JobEvent::Replay).await
    }

    async fn order(&mut self, order: &JobOrder, event: JobEvent<'_>) -> Result<Outcome, Failure> {
        let Some(loaded) = self.find_for(order).await? else {
            return Ok(Err(MoveRefusal::NotFound));
        };
        match order::order(&loaded, order, event, &self.bench()) {
            Ok(decided) => self.carry_out(&loaded, &decided).await.map(Ok),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    async fn find_for(&mut self, order: &JobOrder) -> Result<Option<Loaded>, Failure> {
        Ok(self.find(order.job).await?.filter(|loaded| order::may_see(order, loaded)))
    }

    pub(super) async fn forget_dead_letter(&mut self, order: &JobOrder) -> Result<Reply, Failure> {
        let Some(loaded) = self.find_for(order).await? else { return Ok(Reply::NotFound) };
        let gone = self
            .ask("delete from dead_letter_row where seq = $1 returning reason", values![loaded.seq])
            .await?;
        let Some(row) = gone.first() else { return Ok(Reply::NotFound) };
        let reason = row::parsed(row, 0, DeadLetterReason::parse)?;
        self.outbox.tally.letter_gone(loaded.stored.class, reason);
        self.outbox.events.push(purged_event(&loaded.stored, self.now, &order.by));
        Ok(Reply::Done)
    }

    pub(super) fn queue(&mut self, order: &QueueOrder) -> Reply {
        self.write(
            "insert into queue (name, paused) values ($1, $2)
             on conflict (name) do update set paused = excluded.paused",
            values![text(&order.queue), order.paused],
        );
        self.outbox.events.push(queue_event(&order.queue, order.paused, self.now, &order.by));
        Reply::Done
    }

    /// Stores a piece of output unless it is there already or the attempt has printed
    /// enough. What the worker remarks (that output was cut, why) is never itself cut.
    pub(super) fn log(&mut self, chunk: &LogChunk) -> Reply {
        let stream: i16 = match chunk.stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
            Stream::Worker => 2,
        };
        let limit = match chunk.stream {
            Stream::Worker => i64::MAX,
            Stream::Stdout | Stream::Stderr => {
                i64::try_from(limits::LOG_BYTES_MAX).unwrap_or(i64::MAX)
            }
        };
        let size = i64::try_from(chunk.bytes.len()).unwrap_or(i64::MAX);
        // Output of one job is numbered by one server at a time.
        self.write("select 1 from job_row where id = $1 for no key update", values![chunk.job.0]);
        self.write(
            STORE_CHUNK,
            values![
                chunk.job.0,
                int(chunk.epoch.0),
                i64::from(chunk.n),
                stream,
                self.now.0,
                chunk.bytes.clone(),
                size,
                limit,
            ],
        );
        Reply::Done
    }

    pub(super) async fn reset(&mut self) -> Result<Reply, Failure> {
        self.ask(
            "truncate job_row, ready, waiting, expiry, active, attempt_row, finished,
                 dead_letter_row, checkpoint, log, log_size, event_batch, worker, queue, class,
                 idempotency, idempotency_job, arrival, tally, class_block
                 restart identity",
            Vec::new(),
        )
        .await?;
        *self.classes = Classes::default();
        self.outbox.events.clear();
        self.outbox.tally.clear();
        self.lives.clear();
        self.remembered.clear();
        self.workers.clear();
        self.held.clear();
        self.known.clear();
        Ok(Reply::Done)
    }
}
