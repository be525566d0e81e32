//! Schedules.

use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_store::schedule::{ScheduleQuery, ScheduleRecord, ScheduleState};
use outlast_store::{StoreError, schedule_columns};
use tokio_postgres::Row;

use crate::read::Reader;
use crate::row::{count, get, time, time_opt};

/// Reads a schedule from [`schedule_columns`].
pub(crate) fn record_of(row: &Row) -> Result<ScheduleRecord, StoreError> {
    let name: &str = get(row, 0)?;
    let damaged = |_error| StoreError::Corrupt(format!("schedule {name} cannot be read"));
    let state = ScheduleState {
        configured: get(row, 2)?,
        due: time_opt(row, 3)?,
        definition: get(row, 4)?,
        progress: get(row, 5)?,
        set_by: get(row, 6)?,
    };
    Ok(ScheduleRecord {
        name: ScheduleName::new(name).map_err(damaged)?,
        revision: count(row, 1)?,
        state,
        created: time(row, 7)?,
        updated: time(row, 8)?,
    })
}

pub(crate) async fn one(
    reader: &Reader,
    name: &ScheduleName,
) -> Result<Option<ScheduleRecord>, StoreError> {
    let sql = concat!("select ", schedule_columns!(), " from schedule where name = $1");
    reader.all(sql, &[&name.as_str()]).await?.first().map(record_of).transpose()
}

pub(crate) async fn page(
    reader: &Reader,
    query: &ScheduleQuery,
) -> Result<Vec<ScheduleRecord>, StoreError> {
    let sql = concat!(
        "select ",
        schedule_columns!(),
        " from schedule where name > $1 order by name limit $2"
    );
    let after = query.after.as_ref().map_or("", ScheduleName::as_str);
    reader.all(sql, &[&after, &i64::from(query.limit)]).await?.iter().map(record_of).collect()
}

pub(crate) async fn due(
    reader: &Reader,
    until: Timestamp,
    max: u32,
) -> Result<Vec<ScheduleRecord>, StoreError> {
    let sql = concat!(
        "select ",
        schedule_columns!(),
        " from schedule where due is not null and due <= $1 order by due, name limit $2"
    );
    reader.all(sql, &[&until.0, &i64::from(max)]).await?.iter().map(record_of).collect()
}
