//! Operations.

use outlast_core::operation::OperationId;
use outlast_core::time::Timestamp;
use outlast_store::operation::{NewOperation, OperationQuery, OperationRecord};
use outlast_store::{StoreError, operation_columns};
use outlast_store_rules::codec;
use rusqlite::{Connection, Params, Row};

use crate::row::{self, failed};

/// Reads an operation from [`operation_columns`].
fn record_of(row: &Row<'_>) -> Result<OperationRecord, StoreError> {
    let text = |at: usize| row.get::<_, String>(at).map_err(failed);
    let count = |at: usize| row.get::<_, u64>(at).map_err(failed);
    let time = |at: usize| row.get(at).map(Timestamp).map_err(failed);
    Ok(OperationRecord {
        id: OperationId(row::uuid(row, 0).map_err(failed)?),
        revision: count(1)?,
        new: NewOperation {
            kind: codec::operation_kind(&text(2)?)?,
            about: text(3)?,
            definition: text(4)?,
            by: text(5)?,
        },
        status: codec::operation_status(&text(6)?)?,
        reached: row.get(7).map_err(failed)?,
        runner: row::uuid_opt(row, 8).map_err(failed)?,
        matched: count(9)?,
        changed: count(10)?,
        skipped: codec::skips_of(&text(11)?)?,
        note: text(12)?,
        created: time(13)?,
        updated: time(14)?,
        ended: row::time_opt(row, 15).map_err(failed)?,
    })
}

fn all(
    db: &Connection,
    sql: &'static str,
    values: impl Params,
) -> Result<Vec<OperationRecord>, StoreError> {
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = select.query(values).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        all.push(record_of(row)?);
    }
    Ok(all)
}

pub(crate) fn one(db: &Connection, id: OperationId) -> Result<Option<OperationRecord>, StoreError> {
    let sql = concat!("select ", operation_columns!(), " from operation where id = ?");
    Ok(all(db, sql, [id.0.as_bytes().as_slice()])?.pop())
}

pub(crate) fn page(
    db: &Connection,
    query: &OperationQuery,
) -> Result<Vec<OperationRecord>, StoreError> {
    let sql = concat!(
        "select ",
        operation_columns!(),
        " from operation
         where (?1 is null or (ended is null) = ?1)
             and (?2 is null or (created, id) < (?2, ?3))
         order by created desc, id desc limit ?4"
    );
    let after = query.after.map(|(at, id)| (at.0, *id.0.as_bytes()));
    let (at, id) = after.unzip();
    all(db, sql, (query.running, at, id, query.limit))
}

pub(crate) fn running(db: &Connection) -> Result<Vec<OperationRecord>, StoreError> {
    let sql =
        concat!("select ", operation_columns!(), " from operation where ended is null order by id");
    all(db, sql, [])
}

pub(crate) fn count_running(db: &Connection) -> Result<usize, StoreError> {
    let sql = "select count(*) from operation where ended is null";
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    select.query_row([], |row| row.get(0)).map_err(failed)
}
