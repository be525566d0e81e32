//! Tables: a header and aligned columns without lines, fit for people and for `grep`.

use std::fmt;

use comfy_table::{ContentArrangement, presets};
use serde_json::Value;

/// A column: its header and the cell of an item.
pub(crate) type Column = (&'static str, fn(&Value) -> String);

/// A table to be printed.
#[derive(Debug)]
pub(crate) struct Table {
    inner: comfy_table::Table,
}

impl Table {
    pub(crate) fn new(headers: &[&str]) -> Self {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if !headers.is_empty() {
            inner.set_header(headers.iter().copied());
        }
        Self { inner }
    }

    /// The items, one a row.
    pub(crate) fn of(items: &[Value], columns: &[Column]) -> Self {
        let headers: Vec<&str> = columns.iter().map(|(header, _)| *header).collect();
        let mut table = Self::new(&headers);
        for item in items {
            table.row(columns.iter().map(|(_, cell)| cell(item)).collect());
        }
        table
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.inner.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Cells are padded on both sides; a line that starts or ends with blanks helps nobody.
        for line in self.inner.lines() {
            let line = line.strip_prefix(' ').unwrap_or(&line);
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Names and values, one pair a line.
pub(crate) fn fields(pairs: &[(&str, String)]) -> String {
    let mut table = Table::new(&[]);
    for (name, value) in pairs.iter().filter(|(_, value)| value != "-") {
        table.row(vec![(*name).to_owned(), value.clone()]);
    }
    table.to_string()
}
