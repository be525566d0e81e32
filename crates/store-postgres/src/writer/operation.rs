//! Operations. As with schedules, a batch locks those that it names before it reads them, and one that
//! another transaction has locked is not there for it.

use outlast_store::operation::OperationRecord;
use outlast_store::{StoreError, operation_columns};
use outlast_store_rules::codec;
use tokio_postgres::Row;

use crate::connection::values;
use crate::failure::Failure;
use crate::read::operation::record_of;
use crate::row::{get, int, text};
use crate::writer::Tx;

pub(super) const LOCK_OPERATIONS: &str = concat!(
    "select ",
    operation_columns!(),
    " from operation where id = any($1::uuid[]) order by id for update skip locked"
);

impl Tx<'_> {
    pub(super) fn take_operations(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let record = record_of(row)?;
            self.seen.operations.insert(record.id, record);
        }
        Ok(())
    }

    /// Counts the operations that run, with those that the batch begins and ends as far as it has.
    pub(super) async fn running_operations(&mut self) -> Result<usize, Failure> {
        let sql = "select count(*) from operation where ended is null";
        let rows = self.query(sql, Vec::new()).await?;
        let count: i64 = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Stores an operation. One that another server begins meanwhile has the same key: the batch is tried
    /// again.
    pub(super) fn insert_operation(&mut self, record: &OperationRecord) {
        let new = &record.new;
        let values = values![
            record.id.0,
            int(record.revision),
            new.kind.as_str(),
            text(&new.about),
            text(&new.definition),
            text(&new.by),
            record.status.as_str(),
            record.reached.as_deref().map(text),
            record.runner,
            int(record.matched),
            int(record.changed),
            codec::skips_text(&record.skipped),
            text(&record.note),
            record.created.0,
            record.updated.0,
            record.ended.map(|at| at.0),
        ];
        self.write(
            "insert into operation
                 (id, revision, kind, about, definition, made_by, status, reached, runner, matched,
                  changed, skipped, note, created, updated, ended)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
            values,
        );
        self.seen.operations.insert(record.id, record.clone());
    }

    pub(super) fn update_operation(&mut self, record: &OperationRecord) {
        let values = values![
            record.id.0,
            int(record.revision),
            record.status.as_str(),
            record.reached.as_deref().map(text),
            record.runner,
            int(record.matched),
            int(record.changed),
            codec::skips_text(&record.skipped),
            text(&record.note),
            record.updated.0,
            record.ended.map(|at| at.0),
        ];
        self.write(
            "update operation set revision = $2, status = $3, reached = $4, runner = $5,
                 matched = $6, changed = $7, skipped = $8, note = $9, updated = $10, ended = $11
             where id = $1",
            values,
        );
        self.seen.operations.insert(record.id, record.clone());
    }
}
