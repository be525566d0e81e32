//! What attempts print.

use outlast_core::id::Epoch;
use outlast_store::command::LogChunk;
use outlast_store::query::LogLine;
use outlast_store_rules::rules::output_bytes_max;

use crate::model::tables::Row;
use crate::model::tx::Tx;

impl Tx<'_> {
    /// Keeps a chunk, once, while the attempt's output is within its bound. A superseded
    /// attempt may still deliver; output of an attempt that never was goes nowhere.
    pub(super) fn log(&mut self, chunk: &LogChunk) {
        let now = self.now();
        let Some((seq, _)) = self.tables.find(chunk.job) else { return };
        self.tables.change(seq, |row| {
            let of_attempt = || row.log.iter().filter(|(_, line)| line.epoch == chunk.epoch);
            let known = of_attempt().any(|(n, _)| *n == chunk.n);
            let kept: usize = of_attempt().map(|(_, line)| line.bytes.len()).sum();
            let full = kept.saturating_add(chunk.bytes.len()) > output_bytes_max(chunk.stream);
            if known || full || !has_attempt(row, chunk.epoch) {
                return;
            }
            let id = row.log.last().map_or(1, |(_, line)| line.id + 1);
            let (epoch, stream, bytes) = (chunk.epoch, chunk.stream, chunk.bytes.clone());
            row.log.push((chunk.n, LogLine { id, epoch, stream, at: now, bytes }));
        });
    }
}

fn has_attempt(row: &Row, epoch: Epoch) -> bool {
    let is_held = row.in_flight.is_some() && row.job.epoch == epoch;
    is_held || row.attempts.iter().any(|attempt| attempt.epoch == epoch)
}
