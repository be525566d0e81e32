//! What people order about jobs and queues, and what attempts print.

use outlast_core::job::Event as JobEvent;
use outlast_core::limits;
use outlast_store::command::{EndDetail, JobOrder, LogChunk, QueueOrder, Stream};
use outlast_store::reply::{MoveRefusal, Moved, Reply};
use outlast_store::settle::queue_event;

use crate::failure::Failure;
use crate::link::values;
use crate::row::{int, text};
use crate::writer::Writing;
use crate::writer::classes::Classes;
use crate::writer::live::Live;
use crate::writer::transition::Trace;

type Outcome = Result<Moved, MoveRefusal>;

impl Writing<'_> {
    pub(super) async fn cancel(&mut self, order: &JobOrder) -> Result<Outcome, Failure> {
        self.order(order, JobEvent::Cancel, "cancelled").await
    }

    pub(super) async fn activate(&mut self, order: &JobOrder) -> Result<Outcome, Failure> {
        self.order(order, JobEvent::Activate, "").await
    }

    pub(super) async fn replay(&mut self, order: &JobOrder) -> Result<Outcome, Failure> {
        self.order(order, JobEvent::Replay, "").await
    }

    async fn order(
        &mut self,
        order: &JobOrder,
        event: JobEvent<'_>,
        ended_by: &'static str,
    ) -> Result<Outcome, Failure> {
        let Some(live) = self.find_of_tenant(order).await? else {
            return Ok(Err(MoveRefusal::NotFound));
        };
        let transition = match self.bench().decide(&live.job, event, 0) {
            Ok(transition) => transition,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let detail = EndDetail::default();
        let trace = Trace { kind: event.kind(), by: &order.by, detail: &detail, ended_by };
        self.carry_out(&live, &transition, &trace).await.map(Ok)
    }

    async fn find_of_tenant(&mut self, order: &JobOrder) -> Result<Option<Live>, Failure> {
        let live = self.find(order.job).await?;
        Ok(live.filter(|live| order.tenant.is_none() || live.stored.key.tenant == order.tenant))
    }

    pub(super) async fn forget_dead_letter(&mut self, order: &JobOrder) -> Result<Reply, Failure> {
        let Some(live) = self.find_of_tenant(order).await? else { return Ok(Reply::NotFound) };
        let gone = self
            .ask("delete from dead_letter_row where seq = $1 returning 1", values![live.seq])
            .await?;
        Ok(if gone.len() == 1 { Reply::Done } else { Reply::NotFound })
    }

    pub(super) fn queue(&mut self, order: &QueueOrder) -> Reply {
        self.write(
            "insert into queue (name, paused) values ($1, $2)
             on conflict (name) do update set paused = excluded.paused",
            values![text(&order.queue), order.paused],
        );
        self.events.push(queue_event(&order.queue, order.paused, self.now, &order.by));
        Reply::Done
    }

    /// Stores a piece of output unless it is there already or the attempt has printed
    /// enough. What the worker remarks (that output was cut, why) is never itself cut.
    pub(super) async fn log(&mut self, chunk: &LogChunk) -> Result<Reply, Failure> {
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
        self.ask(
            "with fits as (
                 select j.seq from job_row j
                 where j.id = $1 and $8::bigint <= $9::bigint - coalesce(
                     (select s.bytes from log_size s where s.seq = j.seq and s.epoch = $2), 0)),
             stored as (
                 insert into log (seq, id, epoch, n, stream, at, bytes)
                 select f.seq,
                     (select coalesce(max(l.id), 0) + 1 from log l where l.seq = f.seq),
                     $2, $3, $4, $5, $6
                 from fits f
                 on conflict (seq, epoch, n) do nothing returning seq)
             insert into log_size as s (seq, epoch, bytes)
             select seq, $2, $7::bigint from stored
             on conflict (seq, epoch) do update set bytes = s.bytes + excluded.bytes",
            values![
                chunk.job.0,
                int(chunk.epoch.0),
                i64::from(chunk.n),
                stream,
                self.now.0,
                chunk.bytes.clone(),
                size,
                size,
                limit,
            ],
        )
        .await?;
        Ok(Reply::Done)
    }

    pub(super) async fn reset(&mut self) -> Result<Reply, Failure> {
        self.ask(
            "truncate job_row, ready, waiting, expiry, active, attempt_row, finished,
                 dead_letter_row, checkpoint, log, log_size, event_batch, worker, queue, class,
                 idempotency, idempotency_job, arrival restart identity",
            Vec::new(),
        )
        .await?;
        *self.classes = Classes::default();
        self.events.clear();
        self.lives.clear();
        self.workers.clear();
        self.held.clear();
        self.known.clear();
        Ok(Reply::Done)
    }
}
