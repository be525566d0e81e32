//! Schedules.

use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_store::schedule::{ScheduleQuery, ScheduleRecord, ScheduleState};
use outlast_store::{StoreError, schedule_columns};
use rusqlite::{Connection, Params, Row};

use crate::row::{self, failed};

/// Reads a schedule from [`schedule_columns`].
fn record_of(row: &Row<'_>) -> Result<ScheduleRecord, StoreError> {
    let name: String = row.get(0).map_err(failed)?;
    let damaged = |_error| StoreError::Corrupt(format!("schedule {name} cannot be read"));
    let read = || {
        let state = ScheduleState {
            configured: row.get(2)?,
            due: row::time_opt(row, 3)?,
            definition: row.get(4)?,
            progress: row.get(5)?,
            set_by: row.get(6)?,
        };
        Ok((row.get(1)?, state, row::time(row, 7)?, row::time(row, 8)?))
    };
    let (revision, state, created, updated) = read().map_err(failed)?;
    let name = ScheduleName::new(&name).map_err(damaged)?;
    Ok(ScheduleRecord { name, revision, state, created, updated })
}

fn all(
    db: &Connection,
    sql: &'static str,
    values: impl Params,
) -> Result<Vec<ScheduleRecord>, StoreError> {
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let mut rows = select.query(values).map_err(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        all.push(record_of(row)?);
    }
    Ok(all)
}

pub(crate) fn one(
    db: &Connection,
    name: &ScheduleName,
) -> Result<Option<ScheduleRecord>, StoreError> {
    let sql = concat!("select ", schedule_columns!(), " from schedule where name = ?");
    Ok(all(db, sql, [name.as_str()])?.pop())
}

pub(crate) fn page(
    db: &Connection,
    query: &ScheduleQuery,
) -> Result<Vec<ScheduleRecord>, StoreError> {
    let sql = concat!(
        "select ",
        schedule_columns!(),
        " from schedule where name > ? order by name limit ?"
    );
    all(db, sql, (query.after.as_ref().map_or("", ScheduleName::as_str), query.limit))
}

pub(crate) fn due(
    db: &Connection,
    until: Timestamp,
    max: u32,
) -> Result<Vec<ScheduleRecord>, StoreError> {
    let sql = concat!(
        "select ",
        schedule_columns!(),
        " from schedule where due is not null and due <= ? order by due, name limit ?"
    );
    all(db, sql, (until.0, max))
}

pub(crate) fn count(db: &Connection) -> Result<usize, StoreError> {
    let mut select = db.prepare_cached("select count(*) from schedule").map_err(failed)?;
    select.query_row([], |row| row.get(0)).map_err(failed)
}
