//! Rows of any section, in and out.

use outlast_store::StoreError;
use outlast_store_rules::transfer::PageQuery;
use outlast_store_rules::transfer::row::{BoundedRows, Cell, Row, plain_text};
use outlast_store_rules::transfer::section::{Column, Section, Sort};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use uuid::Uuid;

use crate::row::failed;

/// Columns of which the value follows from another: the table, the column, that other, and what
/// makes it of that one's value `{}`.
const DERIVED: &[[&str; 4]] = &[
    ["worker", "last_heartbeat", "last_heartbeat_ms", TIME],
    ["worker", "created", "created_ms", TIME],
    ["worker", "updated", "updated_ms", TIME],
    ["ready", "lane", "seq", "coalesce((select lane from job_row where seq = {}), 0)"],
];

const TIME: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', {} / 1000.0, 'unixepoch')";

/// Reads the next rows.
pub(super) fn page(db: &Connection, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
    let PageQuery { section, after, page } = query;
    let key = names(section.key_columns());
    let sql = format!(
        "select {} from {} {} order by {key} limit {}",
        names(section.columns),
        section.name,
        match after {
            Some(_) => format!("where ({key}) > ({})", places(section.key)),
            None => String::new(),
        },
        page.rows
    );
    let mut select = db.prepare_cached(&sql).map_err(failed)?;
    let from = after.map(Vec::as_slice).unwrap_or_default();
    let values = from.iter().take(section.key).map(|cell| value_of(section, cell));
    let mut found = select.query(params_from_iter(values)).map_err(failed)?;
    let mut rows = BoundedRows::new(page.bytes);
    while let Some(row) = found.next().map_err(failed)? {
        let cells = section.columns.iter().enumerate().map(|(at, column)| {
            let value = row.get_ref(at).map_err(failed)?;
            cell_of(column, value).ok_or_else(|| {
                let (table, name) = (section.name, column.name);
                StoreError::Corrupt(format!("{table}.{name} holds what it must not: {value:?}"))
            })
        });
        if !rows.push(cells.collect::<Result<Row, StoreError>>()?) {
            break;
        }
    }
    Ok(rows.into_rows())
}

/// Stores rows; the caller has a transaction.
pub(super) fn insert(db: &Connection, section: &Section, rows: &[Row]) -> Result<(), StoreError> {
    let mut columns = vec![names(section.columns)];
    let mut values = vec![places(section.columns.len())];
    for [table, column, from, made] in DERIVED {
        if *table == section.name {
            let at = section.columns.iter().position(|column| column.name == *from);
            let place = at.map_or(0, |at| at + 1);
            columns.push((*column).to_owned());
            values.push(made.replace("{}", &format!("?{place}")));
        }
    }
    let (columns, values) = (columns.join(", "), values.join(", "));
    let sql = format!("insert into {} ({columns}) values ({values})", section.name);
    let mut insert = db.prepare_cached(&sql).map_err(failed)?;
    for row in rows {
        let values = row.iter().map(|cell| value_of(section, cell));
        insert.execute(params_from_iter(values)).map_err(failed)?;
    }
    Ok(())
}

fn names(columns: &[Column]) -> String {
    let names: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
    names.join(", ")
}

fn places(count: usize) -> String {
    let places: Vec<String> = (1..=count).map(|n| format!("?{n}")).collect();
    places.join(", ")
}

fn cell_of(column: &Column, value: ValueRef<'_>) -> Option<Cell> {
    match (column.sort, value) {
        (_, ValueRef::Null) => column.nullable.then_some(Cell::Null),
        (Sort::Int, ValueRef::Integer(number)) => Some(Cell::Int(number)),
        (Sort::Flag, ValueRef::Integer(number)) => Some(Cell::Flag(number != 0)),
        (Sort::Text, ValueRef::Text(text)) => {
            std::str::from_utf8(text).ok().map(|text| Cell::Text(plain_text(text)))
        }
        (Sort::Id, ValueRef::Blob(bytes)) => Uuid::from_slice(bytes).ok().map(Cell::Id),
        (Sort::Id, ValueRef::Text(text)) => Uuid::try_parse_ascii(text).ok().map(Cell::Id),
        (Sort::Bytes, ValueRef::Blob(bytes)) => Some(Cell::Bytes(bytes.to_vec())),
        (Sort::Int | Sort::Flag | Sort::Text | Sort::Id | Sort::Bytes, _) => None,
    }
}

fn value_of(section: &Section, cell: &Cell) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(number) => Value::Integer(*number),
        Cell::Flag(flag) => Value::Integer(i64::from(*flag)),
        Cell::Text(text) => Value::Text(text.clone()),
        // People query workers by their ids, so there they are text.
        Cell::Id(id) if section.name == "worker" => Value::Text(id.to_string()),
        Cell::Id(id) => Value::Blob(id.as_bytes().to_vec()),
        Cell::Bytes(bytes) => Value::Blob(bytes.clone()),
    }
}
