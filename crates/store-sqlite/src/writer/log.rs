//! What attempts print; and deleting everything.

use outlast_store::StoreError;
use outlast_store::command::LogChunk;
use outlast_store_rules::rules::output_bytes_max;

use crate::row::{failed, int, stream_number};
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn insert_log(&mut self, chunk: &LogChunk) -> Result<(), StoreError> {
        let Some(seq) = self.seq_of(chunk.job)? else { return Ok(()) };
        let stream = stream_number(chunk.stream);
        let size = self.log_size(seq, chunk)?;
        if size.is_none_or(|size| size > output_bytes_max(chunk.stream)) {
            return Ok(());
        }
        let stored = self.execute(
            "insert or ignore into log (seq, id, epoch, n, stream, at, bytes)
             values (?1, (select coalesce(max(id), 0) + 1 from log where seq = ?1),
                     ?2, ?3, ?4, ?5, ?6)",
            (seq, int(chunk.epoch.0), chunk.n, stream, self.batch.context.now.0, &chunk.bytes),
        )?;
        if stored == 1 {
            let bytes = i64::try_from(chunk.bytes.len()).unwrap_or(i64::MAX);
            self.execute(
                "insert into log_size (seq, epoch, bytes) values (?1, ?2, ?3)
                 on conflict (seq, epoch) do update set bytes = bytes + ?3",
                (seq, int(chunk.epoch.0), bytes),
            )?;
        }
        Ok(())
    }

    /// Returns what the attempt's output would come to with this chunk; `None` if there was no
    /// such attempt.
    fn log_size(&self, seq: i64, chunk: &LogChunk) -> Result<Option<usize>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select coalesce(
                     (select bytes from log_size where seq = ?1 and epoch = ?2),
                     (select 0 from active where seq = ?1 and epoch = ?2),
                     (select 0 from attempt_row where seq = ?1 and epoch = ?2))",
            )
            .map_err(failed)?;
        let kept: Option<u64> =
            select.query_row((seq, int(chunk.epoch.0)), |row| row.get(0)).map_err(failed)?;
        Ok(kept.map(|kept| {
            usize::try_from(kept).unwrap_or(usize::MAX).saturating_add(chunk.bytes.len())
        }))
    }

    pub(super) fn delete_all(&mut self) -> Result<(), StoreError> {
        self.db
            .execute_batch(
                "delete from job_row; delete from ready; delete from waiting; delete from expiry;
                 delete from active; delete from attempt_row; delete from finished;
                 delete from dead_letter_row; delete from checkpoint; delete from log;
                 delete from log_size;
                 delete from event_batch; delete from worker; delete from worker_order;
                 delete from queue;
                 delete from class; delete from idempotency; delete from idempotency_job;
                 delete from tally; delete from queue_tally; delete from ready_second;
                 delete from class_block;
                 delete from limit_rule; delete from gate; delete from unique_key;
                 delete from schedule; delete from browser_session; delete from operation;
                 delete from workflow; delete from workflow_step; delete from workflow_item;
                 delete from workflow_end;",
            )
            .map_err(failed)?;
        self.leave_empty_lane()
    }
}
