//! Operations.

use outlast_core::operation::OperationId;
use outlast_store::operation::{NewOperation, OperationQuery, OperationRecord};
use outlast_store::{StoreError, operation_columns};
use outlast_store_rules::codec;
use tokio_postgres::Row;

use crate::read::Reader;
use crate::row::{count, get, time, time_opt};

/// Reads an operation from [`operation_columns`].
pub(crate) fn record_of(row: &Row) -> Result<OperationRecord, StoreError> {
    Ok(OperationRecord {
        id: OperationId(get(row, 0)?),
        revision: count(row, 1)?,
        new: NewOperation {
            kind: codec::operation_kind(get(row, 2)?)?,
            about: get(row, 3)?,
            definition: get(row, 4)?,
            by: get(row, 5)?,
        },
        status: codec::operation_status(get(row, 6)?)?,
        reached: get(row, 7)?,
        runner: get(row, 8)?,
        matched: count(row, 9)?,
        changed: count(row, 10)?,
        skipped: codec::skips_of(get(row, 11)?)?,
        note: get(row, 12)?,
        created: time(row, 13)?,
        updated: time(row, 14)?,
        ended: time_opt(row, 15)?,
    })
}

pub(crate) async fn one(
    reader: &Reader,
    id: OperationId,
) -> Result<Option<OperationRecord>, StoreError> {
    let sql = concat!("select ", operation_columns!(), " from operation where id = $1");
    reader.all(sql, &[&id.0]).await?.first().map(record_of).transpose()
}

pub(crate) async fn page(
    reader: &Reader,
    query: &OperationQuery,
) -> Result<Vec<OperationRecord>, StoreError> {
    let sql = concat!(
        "select ",
        operation_columns!(),
        " from operation
         where ($1::boolean is null or (ended is null) = $1)
             and ($2::bigint is null or (created, id) < ($2, $3::uuid))
         order by created desc, id desc limit $4"
    );
    let (at, id) = query.after.map(|(at, id)| (at.0, id.0)).unzip();
    let limit = i64::from(query.limit);
    let rows = reader.all(sql, &[&query.running, &at, &id, &limit]).await?;
    rows.iter().map(record_of).collect()
}

pub(crate) async fn running(reader: &Reader) -> Result<Vec<OperationRecord>, StoreError> {
    let sql =
        concat!("select ", operation_columns!(), " from operation where ended is null order by id");
    reader.all(sql, &[]).await?.iter().map(record_of).collect()
}
