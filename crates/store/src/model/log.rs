//! What attempts print.

use outlast_core::limits::LOG_BYTES_MAX;

use crate::command::{LogChunk, Stream};
use crate::model::tx::Tx;
use crate::query::LogLine;
use crate::reply::Reply;

impl Tx<'_> {
    /// Keeps a chunk, once, while the attempt's output is within its bound. A superseded
    /// attempt may still deliver; output of a job that is not known goes nowhere.
    pub(super) fn log(&mut self, chunk: &LogChunk) -> Reply {
        let now = self.now();
        let Some((seq, _)) = self.tables.find(chunk.job) else { return Reply::Done };
        self.tables.change(seq, |row| {
            let of_attempt = || row.log.iter().filter(|(_, line)| line.epoch == chunk.epoch);
            let known = of_attempt().any(|(n, _)| *n == chunk.n);
            let kept: usize = of_attempt().map(|(_, line)| line.bytes.len()).sum();
            // What the worker remarks (that output was cut, why) is never itself cut.
            let full = chunk.stream != Stream::Worker
                && kept.saturating_add(chunk.bytes.len()) > LOG_BYTES_MAX;
            if known || full {
                return;
            }
            let id = row.log.last().map_or(1, |(_, line)| line.id + 1);
            let (epoch, stream, bytes) = (chunk.epoch, chunk.stream, chunk.bytes.clone());
            row.log.push((chunk.n, LogLine { id, epoch, stream, at: now, bytes }));
        });
        Reply::Done
    }
}
