//! The live counts that a batch changes: one row for each class that it touched.

use outlast_store::StoreError;

use crate::row::failed;
use crate::writer::Tx;

impl Tx<'_> {
    /// Writes by how much the batch changed the counts.
    pub(super) fn keep_tally(&mut self) -> Result<(), StoreError> {
        let changes = self.outbox.tally.take();
        if changes.is_empty() {
            return Ok(());
        }
        let mut upsert = self
            .db
            .prepare_cached(
                "insert into tally (class, scheduled, available, pending, active, completed,
                                    retryable, cancelled, discarded, started, exhausted, abandoned)
                 values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                 on conflict (class) do update set
                     scheduled = scheduled + excluded.scheduled,
                     available = available + excluded.available,
                     pending = pending + excluded.pending,
                     active = active + excluded.active,
                     completed = completed + excluded.completed,
                     retryable = retryable + excluded.retryable,
                     cancelled = cancelled + excluded.cancelled,
                     discarded = discarded + excluded.discarded,
                     started = started + excluded.started,
                     exhausted = exhausted + excluded.exhausted,
                     abandoned = abandoned + excluded.abandoned",
            )
            .map_err(failed)?;
        for (class, counts) in changes {
            let row = std::iter::once(class.0).chain(counts.values().iter().copied());
            upsert.execute(rusqlite::params_from_iter(row)).map_err(failed)?;
        }
        Ok(())
    }
}
