//! Tables: a header and aligned columns without lines, readable and easy to `grep`.
//!
//! Cells are cut on a terminal, to its width. What a pipe reads is whole, but for prose that makes
//! a line too long; JSON has that, too. A pipe gets the same columns whatever is in them.

use std::fmt;
use std::io::IsTerminal as _;

use comfy_table::{ContentArrangement, presets};
use serde_json::Value;

/// Columns that are never cut, because their text is copied, compared or all that a row is for.
const WHOLE: &[&str] =
    &["ID", "KEY", "VALUE", "ORIGIN", "STATUS", "STATE", "JOB", "WHAT", "OUTCOME"];
/// Columns that are cut in a pipe, too.
const PROSE: &[&str] = &["BY", "EVIDENCE", "ERROR", "SETTINGS", "UNIT"];
/// The width to which they are cut there.
const PIPE_WIDTH: usize = 100;
/// A column is not cut below this, on a terminal and in a pipe.
const COLUMN_MIN: usize = 8;
const PROSE_MIN: usize = 6;

/// A column: its header and the cell of an item.
pub type Column = (&'static str, fn(&Value) -> String);

/// A table to be printed.
#[derive(Debug)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Widest line; any width if not set.
    width: Option<usize>,
    /// Whether only prose is cut.
    for_pipe: bool,
}

impl Table {
    /// A table for stdout.
    pub fn new(headers: &[&str]) -> Self {
        let headers = headers.iter().copied().map(ToOwned::to_owned).collect();
        Self { headers, rows: Vec::new(), width: terminal_width(), for_pipe: false }
    }

    /// The items, one a row. A column without any value is left out.
    pub fn of(items: &[Value], columns: &[Column]) -> Self {
        let cells: Vec<Vec<String>> =
            columns.iter().map(|(_, cell)| items.iter().map(cell).collect()).collect();
        let has_value =
            |cells: &Vec<String>| cells.is_empty() || cells.iter().any(|cell| cell != "-");
        let used: Vec<(&str, Vec<String>)> = columns
            .iter()
            .map(|(header, _)| *header)
            .zip(cells)
            .filter(|(_, cells)| has_value(cells))
            .collect();
        let headers: Vec<&str> = used.iter().map(|(header, _)| *header).collect();
        let mut table = Self::new(&headers);
        for at in 0..items.len() {
            table.row(used.iter().filter_map(|(_, cells)| cells.get(at).cloned()).collect());
        }
        table
    }

    /// The items, one a row, with every column: for stdout that is no terminal.
    pub fn for_pipe(items: &[Value], columns: &[Column]) -> Self {
        let headers: Vec<&str> = columns.iter().map(|(header, _)| *header).collect();
        let mut table = Self { for_pipe: true, ..Self::new(&headers).fit(Some(PIPE_WIDTH)) };
        for item in items {
            table.row(columns.iter().map(|(_, cell)| cell(item)).collect());
        }
        table
    }

    /// Cuts cells until lines are no longer than `width`, where that is possible.
    #[must_use]
    pub const fn fit(mut self, width: Option<usize>) -> Self {
        self.width = width;
        self
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The width of each column: the widest ones are cut until a line fits, except whole ones.
    fn widths(&self) -> Vec<usize> {
        let all = || self.rows.iter().chain([&self.headers]);
        let columns = all().map(Vec::len).max().unwrap_or(0);
        let widest = |at: usize| {
            all().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(widest).collect();
        let gaps = columns.saturating_sub(1) * 2;
        let Some(limit) = self.width else { return widths };
        let least = if self.for_pipe { PROSE_MIN } else { COLUMN_MIN };
        while widths.iter().sum::<usize>() + gaps > limit {
            let is_one_of = |names: &[&str], at: usize| {
                self.headers.get(at).is_some_and(|header| names.contains(&header.as_str()))
            };
            let is_whole = |at: usize| {
                if self.for_pipe { !is_one_of(PROSE, at) } else { is_one_of(WHOLE, at) }
            };
            let wide = (0..columns).filter(|at| !is_whole(*at)).max_by_key(|at| widths[*at]);
            let Some(wide) = wide.and_then(|at| widths.get_mut(at)) else { break };
            if *wide <= least {
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

/// The width of the terminal that stdout is; `None` if it is none.
fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
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
    use serde_json::json;

    use super::{Column, Table};
    use crate::output::text_at;

    const ID: &str = "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c";

    fn table(waiting: &str) -> Table {
        let mut table = Table::new(&["ID", "STATUS", "WAITING"]);
        table.row(vec![ID.to_owned(), "requested".to_owned(), waiting.to_owned()]);
        table
    }

    #[test]
    fn a_table_fits_a_terminal_and_never_cuts_an_id_or_a_status() {
        let waiting = "no eligible worker ".repeat(9);
        let shown = table(&waiting).fit(Some(100)).to_string();
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        assert!(shown.contains(ID) && shown.contains('…'), "{shown}");
        let narrow = table(&waiting).fit(Some(40)).to_string();
        assert!(narrow.contains(ID) && narrow.contains("requested"), "{narrow}");
    }

    #[test]
    fn a_pipe_reads_every_cell_whole() {
        let waiting = "no eligible worker ".repeat(9);
        let shown = table(&waiting).fit(None).to_string();
        assert!(shown.contains(waiting.trim_end()), "{shown}");
    }

    #[test]
    fn a_column_without_values_is_left_out() {
        let columns: &[Column] =
            &[("NAME", |item| text_at(item, "name")), ("ERROR", |item| text_at(item, "error"))];
        let items = [json!({"name": "a"}), json!({"name": "b"})];
        assert_eq!(Table::of(&items, columns).to_string(), "NAME\na\nb\n");
        assert_eq!(Table::of(&[], columns).to_string(), "NAME  ERROR\n");
    }

    #[test]
    fn a_pipe_reads_the_same_columns_whatever_is_in_them_and_prose_is_cut() {
        let columns: &[Column] = &[
            ("NAME", |item| text_at(item, "name")),
            ("ERROR", |item| text_at(item, "error")),
            ("QUEUE", |item| text_at(item, "queue")),
        ];
        let shown = Table::for_pipe(&[json!({"name": "a"})], columns).to_string();
        assert_eq!(shown, "NAME  ERROR  QUEUE\na     -      -\n");
        let long = json!({"name": ID, "error": "no such file ".repeat(9), "queue": ID});
        let shown = Table::for_pipe(&[long], columns).to_string();
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        assert!(shown.contains('…') && shown.matches(ID).count() == 2, "{shown}");
    }
}
