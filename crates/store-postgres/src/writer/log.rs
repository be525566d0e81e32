//! What attempts print; and deleting everything.

use outlast_store::command::LogChunk;
use outlast_store_rules::apply::claim::fair::Shares;
use outlast_store_rules::apply::claim::gates::Gates;
use outlast_store_rules::rules::output_bytes_max;

use crate::connection::values;
use crate::failure::Failure;
use crate::row::{int, stream_number};
use crate::writer::Tx;
use crate::writer::classes::Classes;

/// What is kept of each attempt tells whether the chunk is there and which is the next
/// number: history is written, and not looked into, unless the attempt has ended and had printed
/// nothing before. Output of an attempt that never was is not stored.
const STORE_CHUNK: &str = "with job as (
         select j.seq,
             (select coalesce(sum(s.chunks), 0)::bigint from log_size s where s.seq = j.seq)
                 as chunks
         from job_row j where j.id = $1),
     stored as (
         insert into log (seq, id, epoch, n, stream, at, bytes)
         select j.seq, j.chunks + 1, $2, $3, $4, $5, $6 from job j
         where (select true from log_size s where s.seq = j.seq and s.epoch = $2
                 and (s.stored @> $3::bigint or s.bytes > $8::bigint - $7::bigint)) is null
             and $7::bigint <= $8::bigint
             and coalesce(
                 (select true from active a where a.seq = j.seq and a.epoch = $2),
                 (select true from log_size s where s.seq = j.seq and s.epoch = $2),
                 (select true from attempt_row t where t.seq = j.seq and t.epoch = $2 limit 1),
                 false)
         returning seq)
     insert into log_size as s (seq, epoch, bytes, chunks, stored)
     select seq, $2, $7::bigint, 1, int8multirange(int8range($3, $3::bigint + 1)) from stored
     on conflict (seq, epoch) do update set bytes = s.bytes + excluded.bytes,
         chunks = s.chunks + 1, stored = s.stored + excluded.stored";

impl Tx<'_> {
    /// Stores a piece of output of an attempt unless it is there already or the attempt has
    /// printed enough.
    pub(super) fn note_log(&mut self, chunk: &LogChunk) {
        let stream = stream_number(chunk.stream);
        let limit = i64::try_from(output_bytes_max(chunk.stream)).unwrap_or(i64::MAX);
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
                self.batch.context.now.0,
                chunk.bytes.clone(),
                size,
                limit,
            ],
        );
    }

    pub(super) async fn delete_all(&mut self) -> Result<(), Failure> {
        self.query(
            "truncate job_row, ready, waiting, expiry, active, attempt_row, finished,
                 dead_letter_row, checkpoint, log, log_size, event_batch, worker, worker_order, queue,
                 class,
                 idempotency, idempotency_job, arrival, tally, tally_slot, queue_tally,
                 ready_second, ready_second_slot, depth, depth_slot,
                 class_block,
                 limit_rule, gate, gate_held, unique_key, schedule, browser_session, operation,
                 workflow, workflow_step, workflow_item, workflow_end restart identity",
            Vec::new(),
        )
        .await?;
        self.holds.ready.floors().forget();
        self.holds.active.floors().forget();
        self.limits_changed();
        self.forget_depths();
        self.cache.shares = Shares::default();
        self.gates = Gates::default();
        self.cache.classes = Classes::default();
        self.seen.jobs.clear();
        self.seen.remembered.clear();
        self.seen.workers.clear();
        self.seen.labels.clear();
        self.seen.orders.clear();
        self.seen.in_flight.clear();
        self.seen.stored.clear();
        self.seen.keys.clear();
        self.seen.schedules.clear();
        self.seen.operations.clear();
        self.seen.workflows.clear();
        Ok(())
    }
}
