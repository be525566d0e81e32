//! How full bounded queues are: their jobs as the tallies count them, with what the batch changes.
//!
//! What is read of a queue is remembered, since nothing but this writer moves jobs.

use outlast_core::queue::Depth;
use outlast_store::StoreError;
use rusqlite::Connection;

use crate::row::failed;
use crate::writer::Tx;

pub(super) const WAITING: &str = "
    select coalesce(sum(scheduled + available + pending + retryable), 0)
    from queue_tally where queue = ?";

impl Tx<'_> {
    pub(super) fn depth_of(&mut self, queue: &str) -> Result<Option<Depth>, StoreError> {
        let Some(max) = self.cache.limits.queue(queue).and_then(|settings| settings.max_depth)
        else {
            return Ok(None);
        };
        let before = match self.cache.depths.get(queue) {
            Some(before) => *before,
            None => {
                let before = waiting(self.db, queue)?;
                self.cache.depths.insert(queue.to_owned(), before);
                before
            }
        };
        let of_queue =
            |class| self.cache.classes.known(class).is_some_and(|key| key.queue == queue);
        let changes = self.batch.outbox.tally.more_waiting();
        let more: i64 = changes.filter(|(class, _)| of_queue(*class)).map(|(_, more)| more).sum();
        Ok(Some(Depth { jobs: u64::try_from(before + more).unwrap_or(0), max }))
    }

    /// Adds what the batch changes to what is remembered. If it fails, all of that is forgotten.
    pub(super) fn keep_depths(&mut self) {
        if self.cache.depths.is_empty() {
            return;
        }
        for (class, more) in self.batch.outbox.tally.more_waiting() {
            let key = self.cache.classes.known(class);
            if let Some(depth) = key.and_then(|key| self.cache.depths.get_mut(&key.queue)) {
                *depth += more;
            }
        }
    }
}

fn waiting(db: &Connection, queue: &str) -> Result<i64, StoreError> {
    let mut select = db.prepare_cached(WAITING).map_err(failed)?;
    select.query_row([queue], |row| row.get(0)).map_err(failed)
}
