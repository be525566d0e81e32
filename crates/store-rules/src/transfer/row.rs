//! A row and its text: a JSON object with every column, in the order of the section. There
//! is one text for a row only, so that sums of texts can be compared across stores. Columns that
//! earlier builds did not have are left out where they are empty or false.
//!
//! Bytes that are UTF-8 are a JSON string, so that output can be read in an export; others
//! are `{"hex":"…"}`.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::section::{Column, Section, Sort};

/// The cells of a row, in the order of the section's columns.
pub type Row = Vec<Cell>;

/// What is in a column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// Yes or no.
    Flag(bool),
    /// Text.
    Text(String),
    /// A UUID.
    Id(Uuid),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Cell {
    /// Returns about how much memory the cell takes.
    #[must_use]
    pub fn size(&self) -> usize {
        let more = match self {
            Self::Null | Self::Int(_) | Self::Flag(_) | Self::Id(_) => 0,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        };
        size_of::<Self>() + more
    }
}

/// Returns about how much memory a row takes.
#[must_use]
pub fn size(row: &[Cell]) -> usize {
    row.iter().map(Cell::size).sum()
}

/// Rows that are read until they have enough bytes.
#[derive(Debug)]
pub struct BoundedRows {
    rows: Vec<Row>,
    bytes: usize,
    bytes_max: usize,
}

impl BoundedRows {
    /// No rows yet.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { rows: Vec::new(), bytes: 0, bytes_max }
    }

    /// Adds a row; returns whether there is room for another.
    pub fn push(&mut self, row: Row) -> bool {
        self.bytes += size(&row);
        self.rows.push(row);
        self.bytes < self.bytes_max
    }

    /// Returns the rows.
    #[must_use]
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

/// Returns text as every store takes it: PostgreSQL knows no NUL.
#[must_use]
pub fn plain_text(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text.to_owned() }
}

/// Appends the text of a row.
pub fn write(section: &Section, row: &[Cell], out: &mut String) {
    out.push('{');
    let cells = section.columns.iter().zip(row);
    let written = cells.filter(|(column, cell)| !column.added || **cell != absent(column));
    for (at, (column, cell)) in written.enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push('"');
        out.push_str(column.name);
        out.push_str("\":");
        write_cell(cell, out);
    }
    out.push('}');
}

/// Returns what is in a column that the text of a row leaves out.
const fn absent(column: &Column) -> Cell {
    if column.nullable { Cell::Null } else { Cell::Flag(false) }
}

fn write_cell(cell: &Cell, out: &mut String) {
    match cell {
        Cell::Null => out.push_str("null"),
        Cell::Int(number) => out.push_str(&number.to_string()),
        Cell::Flag(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Cell::Text(text) => write_text(text, out),
        Cell::Id(id) => write_text(&id.to_string(), out),
        Cell::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => write_text(text, out),
            Err(_) => {
                out.push_str("{\"hex\":\"");
                write_hex(bytes, out);
                out.push_str("\"}");
            }
        },
    }
}

fn write_text(text: &str, out: &mut String) {
    // Writing a string to memory cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// Appends bytes as hexadecimal digits.
pub fn write_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
}

/// Reads the text of a row.
///
/// # Errors
/// Says what is not as it should be.
pub fn parse(section: &Section, text: &str) -> Result<Row, String> {
    let mut map: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("not a row: {error}"))?;
    let mut row = Vec::with_capacity(section.columns.len());
    for column in section.columns {
        let cell = match map.remove(column.name) {
            Some(value) => cell_of(column, value),
            None if column.added => Some(absent(column)),
            None => return Err(format!("`{}` is missing", column.name)),
        };
        row.push(cell.ok_or_else(|| format!("`{}` has no value of its sort", column.name))?);
    }
    match map.keys().next() {
        None => Ok(row),
        Some(more) => Err(format!("`{more}` is not a column of {}", section.name)),
    }
}

fn cell_of(column: &Column, value: Value) -> Option<Cell> {
    match (column.sort, value) {
        (_, Value::Null) => column.nullable.then_some(Cell::Null),
        (Sort::Int, Value::Number(number)) => number.as_i64().map(Cell::Int),
        (Sort::Flag, Value::Bool(flag)) => Some(Cell::Flag(flag)),
        (Sort::Text, Value::String(text)) => Some(Cell::Text(text)),
        (Sort::Id, Value::String(text)) => Uuid::parse_str(&text).ok().map(Cell::Id),
        (Sort::Bytes, Value::String(text)) => Some(Cell::Bytes(text.into_bytes())),
        (Sort::Bytes, Value::Object(map)) => {
            map.get("hex").and_then(Value::as_str).and_then(hex_of).map(Cell::Bytes)
        }
        (Sort::Int | Sort::Flag | Sort::Text | Sort::Id | Sort::Bytes, _) => None,
    }
}

/// Reads hexadecimal digits.
#[must_use]
pub fn hex_of(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(pair.first()? << 4 | pair.get(1)?)).collect()
}

#[cfg(test)]
mod tests;
