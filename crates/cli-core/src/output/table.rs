//! Tables: a header and aligned columns without lines, fit for people and for `grep`.

use std::fmt;

use comfy_table::{ContentArrangement, presets};
use serde_json::Value;

/// Widest line of a table that is not on a wider terminal.
const WIDTH: usize = 100;
/// Columns that are never cut, because their text is copied.
const WHOLE: &[&str] = &["ID", "KEY", "VALUE", "ORIGIN"];
/// A column is not cut below this.
const COLUMN_MIN: usize = 8;

/// A column: its header and the cell of an item.
pub type Column = (&'static str, fn(&Value) -> String);

/// A table to be printed.
#[derive(Debug)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(headers: &[&str]) -> Self {
        Self { headers: headers.iter().copied().map(ToOwned::to_owned).collect(), rows: Vec::new() }
    }

    /// The items, one a row.
    pub fn of(items: &[Value], columns: &[Column]) -> Self {
        let headers: Vec<&str> = columns.iter().map(|(header, _)| *header).collect();
        let mut table = Self::new(&headers);
        for item in items {
            table.row(columns.iter().map(|(_, cell)| cell(item)).collect());
        }
        table
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The width of each column: the widest ones are cut until a line fits, except ids.
    fn widths(&self) -> Vec<usize> {
        let all = || self.rows.iter().chain([&self.headers]);
        let columns = all().map(Vec::len).max().unwrap_or(0);
        let widest = |at: usize| {
            all().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(widest).collect();
        let gaps = columns.saturating_sub(1) * 2;
        while widths.iter().sum::<usize>() + gaps > WIDTH {
            let is_whole = |at: usize| {
                self.headers.get(at).is_some_and(|header| WHOLE.contains(&header.as_str()))
            };
            let wide = (0..columns).filter(|at| !is_whole(*at)).max_by_key(|at| widths[*at]);
            let Some(wide) = wide.and_then(|at| widths.get_mut(at)) else { break };
            if *wide <= COLUMN_MIN {
                break;
            }
            *wide -= 1;
        }
        widths
    }
}

/// Cuts a cell to the width of its column, with an ellipsis.
fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let mut shown: String = cell.chars().take(width.saturating_sub(1)).collect();
    shown.push('…');
    shown
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Cells are padded on both sides; blanks at the ends of a line are removed.
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let widths = if self.headers.is_empty() { Vec::new() } else { self.widths() };
        let fit = |row: &Vec<String>| -> Vec<String> {
            let cells = row.iter().enumerate();
            cells
                .map(|(at, cell)| widths.get(at).map_or_else(|| cell.clone(), |w| cut(cell, *w)))
                .collect()
        };
        if !self.headers.is_empty() {
            inner.set_header(fit(&self.headers));
        }
        self.rows.iter().for_each(|row| {
            inner.add_row(fit(row));
        });
        for line in inner.lines() {
            let line = line.strip_prefix(' ').unwrap_or(&line);
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Names and values, one pair a line.
pub fn fields(pairs: &[(&str, String)]) -> String {
    let mut table = Table::new(&[]);
    for (name, value) in pairs.iter().filter(|(_, value)| value != "-") {
        table.row(vec![(*name).to_owned(), value.clone()]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_table_fits_a_hundred_columns_and_never_cuts_an_id() {
        let mut table = Table::new(&["ID", "STATUS", "WAITING"]);
        let id = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";
        table.row(vec![id.to_owned(), "requested".to_owned(), "no eligible worker ".repeat(9)]);
        let shown = table.to_string();
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        assert!(shown.contains(id) && shown.contains('…'), "{shown}");
    }
}
