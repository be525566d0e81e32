//! The live counts that a batch changes: one row for each class that it touched.

use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::tally::{COLUMNS, Counts};

use crate::row::failed;
use crate::writer::Tx;

impl Tx<'_> {
    /// Writes by how much the batch changed the counts.
    pub(super) fn keep_tally(&mut self) -> Result<(), StoreError> {
        let changes = self.batch.outbox.tally.take();
        if changes.is_empty() {
            return Ok(());
        }
        for (class, counts) in changes {
            if !self.add_to_tally(class, &counts)? {
                self.insert_tally(class, &counts)?;
            }
        }
        Ok(())
    }

    /// Changes a row; returns whether there is one.
    ///
    /// This names only the columns that change, and is no upsert: SQLite would copy each page that
    /// an upsert touches, to undo it alone.
    fn add_to_tally(&self, class: ClassId, counts: &Counts) -> Result<bool, StoreError> {
        let changed = || COLUMNS.iter().zip(counts.values()).filter(|(_, count)| **count != 0);
        let sets: Vec<String> = changed().map(|(name, _)| format!("{name} = {name} + ?")).collect();
        let sql = format!("update tally set {} where class = ?", sets.join(", "));
        let row = changed().map(|(_, count)| *count).chain(std::iter::once(class.0));
        let mut update = self.db.prepare_cached(&sql).map_err(failed)?;
        Ok(update.execute(rusqlite::params_from_iter(row)).map_err(failed)? > 0)
    }

    fn insert_tally(&self, class: ClassId, counts: &Counts) -> Result<(), StoreError> {
        let marks = ["?"; COLUMNS.len()].join(", ");
        let sql = format!("insert into tally (class, {}) values (?, {marks})", COLUMNS.join(", "));
        let row = std::iter::once(class.0).chain(counts.values().iter().copied());
        let mut insert = self.db.prepare_cached(&sql).map_err(failed)?;
        insert.execute(rusqlite::params_from_iter(row)).map_err(failed)?;
        Ok(())
    }
}
