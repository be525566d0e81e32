//! Rows of any section, in and out: out by key, in by the column.

use std::pin::pin;

use futures_util::TryStreamExt as _;
use outlast_store::StoreError;
use outlast_store_rules::transfer::row::{BoundedRows, Cell, Row};
use outlast_store_rules::transfer::section::{Column, Section, Sort};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use crate::connection::Value;
use crate::failure::Failure;
use crate::row::{get, int};

/// A value as the driver takes it.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// Rows asked for first: they may be long.
pub(super) const FIRST_ROWS: usize = 64;

/// Columns of which the value follows from others, with what makes it of a new row `u`.
const DERIVED: &[(&str, &str, &str)] = &[
    ("ready", "expires", "(select j.expires_at from job_row j where j.seq = u.seq)"),
    ("ready", "lane", "coalesce((select j.lane from job_row j where j.seq = u.seq), 0)"),
    (
        "log_size",
        "chunks",
        "(select count(*) from log l where l.seq = u.seq and l.epoch = u.epoch)",
    ),
    (
        "log_size",
        "stored",
        "(select coalesce(range_agg(int8range(l.n, l.n + 1)), '{}')
          from log l where l.seq = u.seq and l.epoch = u.epoch)",
    ),
];

/// Tables that may hold rows of forgotten jobs: no reader sees them, and the number of
/// such a job may be another's elsewhere.
const OF_JOBS: [&str; 2] = ["attempt_row", "log"];

/// Tables that are kept by day, with the column that says which.
const BY_DAY: [(&str, &str); 3] =
    [("event_batch", "at"), ("attempt_row", "finished"), ("log", "at")];

/// Makes the days of what is to be stored, but for those of a clock that was wrong.
pub(super) const ADD_DAYS: &str = "
    select count(outlast.add_day($1, d.day, 0))
    from (select distinct at / 86400000 as day from unnest($2::bigint[]) t(at)) d
    where d.day between extract(epoch from now()) / 86400 - 400
        and extract(epoch from now()) / 86400";

/// Returns the times of rows that are kept by day.
pub(super) fn times(section: &Section, rows: &[Row]) -> Option<Vec<i64>> {
    let (_, name) = BY_DAY.iter().find(|(table, _)| *table == section.name)?;
    let at = section.columns.iter().position(|column| column.name == *name)?;
    let time = |row: &Row| match row.get(at) {
        Some(Cell::Int(time)) => Some(*time),
        _ => None,
    };
    Some(rows.iter().filter_map(time).collect())
}

/// What follows from the rows: the next number of a job, and what planners know of sizes.
pub(super) const SETTLE: &str = "
    select setval('job_seq', greatest((select max(seq) from job_row), 1),
        exists (select 1 from job_row));
    select setval(pg_get_serial_sequence('workflow_end', 'number'),
        greatest((select max(number) from workflow_end), 1), exists (select 1 from workflow_end));
    select outlast.count_tally();
    truncate class_block;
    insert into class_block select distinct class, seq >> 10, 0 from job_row;
    analyze class, tally, queue_tally, ready_second, depth, class_block, queue, job_row, ready,
        waiting, active, finished, attempt_row, expiry,
        dead_letter_row, checkpoint, log, log_size, event_batch, idempotency, idempotency_job,
        unique_key, duty, worker";

fn names(columns: &[Column]) -> String {
    let names: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
    names.join(", ")
}

/// Names the key in an order that is the same in every database: that of bytes.
fn ordered(columns: &[Column]) -> String {
    let name = |column: &Column| match column.sort {
        Sort::Text => format!("\"{}\" collate \"C\"", column.name),
        Sort::Int | Sort::Flag | Sort::Id | Sort::Bytes => format!("\"{}\"", column.name),
    };
    columns.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Returns the statement that reads the first rows, or those after a key.
pub(super) fn select(section: &Section, after: bool) -> String {
    let column = |column: &Column| match column.sort {
        Sort::Int => format!("\"{}\"::bigint", column.name),
        Sort::Flag | Sort::Text | Sort::Id | Sort::Bytes => format!("\"{}\"", column.name),
    };
    let columns: Vec<String> = section.columns.iter().map(column).collect();
    let key = ordered(section.key_columns());
    let places: Vec<String> = (1..=section.key).map(|n| format!("${n}")).collect();
    let mut terms = Vec::new();
    if after {
        terms.push(format!("({key}) > ({})", places.join(", ")));
    }
    if OF_JOBS.contains(&section.name) {
        terms.push("exists (select 1 from job_row j where j.seq = t.seq)".to_owned());
    }
    let limit = if after { section.key + 1 } else { 1 };
    let from =
        if terms.is_empty() { String::new() } else { format!("where {}", terms.join(" and ")) };
    let (columns, table) = (columns.join(", "), section.name);
    format!("select {columns} from {table} t {from} order by {key} limit ${limit}")
}

/// Returns the statement that stores rows, given by the column.
pub(super) fn insert(section: &Section) -> String {
    let array = |(at, column): (usize, &Column)| {
        let of = match column.sort {
            Sort::Int => "bigint",
            Sort::Flag => "boolean",
            Sort::Text => "text",
            Sort::Id => "uuid",
            Sort::Bytes => "bytea",
        };
        format!("${}::{of}[]", at + 1)
    };
    let arrays: Vec<String> = section.columns.iter().enumerate().map(array).collect();
    let plain = names(section.columns);
    let mut into = vec![plain.clone()];
    let mut values: Vec<String> =
        section.columns.iter().map(|column| format!("u.\"{}\"", column.name)).collect();
    for (_, column, made) in DERIVED.iter().filter(|(table, _, _)| *table == section.name) {
        into.push((*column).to_owned());
        values.push((*made).to_owned());
    }
    format!(
        "insert into {} ({}) select {} from unnest({}) u({plain})",
        section.name,
        into.join(", "),
        values.join(", "),
        arrays.join(", ")
    )
}

/// Turns rows into an array for each column.
pub(super) fn columns(section: &Section, rows: Vec<Row>) -> Vec<Value> {
    let mut columns: Vec<Vec<Cell>> =
        section.columns.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for row in rows {
        for (column, cell) in columns.iter_mut().zip(row) {
            column.push(cell);
        }
    }
    section.columns.iter().zip(columns).map(|(column, cells)| array(column.sort, cells)).collect()
}

fn array(sort: Sort, cells: Vec<Cell>) -> Value {
    let cells = cells.into_iter();
    match sort {
        Sort::Int => Box::new(
            cells
                .map(|cell| if let Cell::Int(number) = cell { Some(number) } else { None })
                .collect::<Vec<Option<i64>>>(),
        ),
        Sort::Flag => Box::new(
            cells
                .map(|cell| if let Cell::Flag(flag) = cell { Some(flag) } else { None })
                .collect::<Vec<Option<bool>>>(),
        ),
        Sort::Text => Box::new(
            cells
                .map(|cell| if let Cell::Text(text) = cell { Some(text) } else { None })
                .collect::<Vec<Option<String>>>(),
        ),
        Sort::Id => Box::new(
            cells
                .map(|cell| if let Cell::Id(id) = cell { Some(id) } else { None })
                .collect::<Vec<Option<Uuid>>>(),
        ),
        Sort::Bytes => Box::new(
            cells
                .map(|cell| if let Cell::Bytes(bytes) = cell { Some(bytes) } else { None })
                .collect::<Vec<Option<Vec<u8>>>>(),
        ),
    }
}

/// Returns a cell of a key as a value.
pub(super) fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Null => Box::new(None::<i64>),
        Cell::Int(number) => Box::new(*number),
        Cell::Flag(flag) => Box::new(*flag),
        Cell::Text(text) => Box::new(text.clone()),
        Cell::Id(id) => Box::new(*id),
        Cell::Bytes(bytes) => Box::new(bytes.clone()),
    }
}

/// Returns a number of rows as a value.
pub(super) fn count(rows: usize) -> Value {
    Box::new(int(rows as u64))
}

/// Reads rows until there are enough bytes of them.
pub(super) async fn read(
    client: &Client,
    select: &Statement,
    section: &Section,
    values: Vec<Value>,
    bytes_max: usize,
) -> Result<Vec<Row>, StoreError> {
    let failed = |error: tokio_postgres::Error| StoreError::from(Failure::from(error));
    let params = values.iter().map(|value| &**value as Param<'_>);
    let mut found = pin!(client.query_raw(select, params).await.map_err(failed)?);
    let mut rows = BoundedRows::new(bytes_max);
    while let Some(row) = found.try_next().await.map_err(failed)? {
        let cells = section.columns.iter().enumerate();
        let row =
            cells.map(|(at, column)| cell_of(column, &row, at)).collect::<Result<Row, _>>()?;
        if !rows.push(row) {
            break;
        }
    }
    Ok(rows.into_rows())
}

fn cell_of(column: &Column, row: &tokio_postgres::Row, at: usize) -> Result<Cell, StoreError> {
    let cell = match column.sort {
        Sort::Int => get::<Option<i64>>(row, at)?.map(Cell::Int),
        Sort::Flag => get::<Option<bool>>(row, at)?.map(Cell::Flag),
        Sort::Text => get::<Option<String>>(row, at)?.map(Cell::Text),
        Sort::Id => get::<Option<Uuid>>(row, at)?.map(Cell::Id),
        Sort::Bytes => get::<Option<Vec<u8>>>(row, at)?.map(Cell::Bytes),
    };
    Ok(cell.unwrap_or(Cell::Null))
}
