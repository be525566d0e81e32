//! Operations.

use outlast_store::StoreError;
use outlast_store::command::Prune;
use outlast_store::operation::OperationRecord;
use outlast_store_rules::codec;
use outlast_store_rules::prune::{OPERATIONS_MAX, operations_found};

use crate::row::int;
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn insert_operation(&self, record: &OperationRecord) -> Result<(), StoreError> {
        let new = &record.new;
        self.execute(
            "insert into operation
                 (id, revision, kind, about, definition, made_by, status, reached, runner, matched,
                  changed, skipped, note, created, updated, ended)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                record.id.0.as_bytes().as_slice(),
                int(record.revision),
                new.kind.as_str(),
                new.about,
                new.definition,
                new.by,
                record.status.as_str(),
                record.reached,
                record.runner.map(|it| *it.as_bytes()),
                int(record.matched),
                int(record.changed),
                codec::skips_text(&record.skipped),
                record.note,
                record.created.0,
                record.updated.0,
                record.ended.map(|at| at.0),
            ],
        )?;
        Ok(())
    }

    pub(super) fn update_operation(&self, record: &OperationRecord) -> Result<(), StoreError> {
        self.execute(
            "update operation set revision = ?, status = ?, reached = ?, runner = ?, matched = ?,
                 changed = ?, skipped = ?, note = ?, updated = ?, ended = ?
             where id = ?",
            rusqlite::params![
                int(record.revision),
                record.status.as_str(),
                record.reached,
                record.runner.map(|it| *it.as_bytes()),
                int(record.matched),
                int(record.changed),
                codec::skips_text(&record.skipped),
                record.note,
                record.updated.0,
                record.ended.map(|at| at.0),
                record.id.0.as_bytes().as_slice(),
            ],
        )?;
        Ok(())
    }

    /// Deletes operations that ended long ago, some at a time. Returns how many it found, as the prune
    /// counts.
    pub(super) fn prune_operations(&self, prune: &Prune) -> Result<usize, StoreError> {
        let gone = self.execute(
            "delete from operation where id in (
                 select id from operation where ended is not null and ended < ?
                 order by ended, id limit ?)",
            (prune.finished_before.0, OPERATIONS_MAX),
        )?;
        Ok(operations_found(gone, prune))
    }
}
