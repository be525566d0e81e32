//! Tables: a header and aligned columns without lines, readable and easy to `grep`.
//!
//! What a pipe or a file receives is whole, with the same columns whatever is in them. On a terminal,
//! a table fits its width: text such as an error is wrapped within its column, or below its row if
//! that column would be narrow; what is still too wide is cut, but never an id or a status.

mod layout;
mod paint;

use std::fmt;
use std::io::IsTerminal as _;

use serde_json::Value;

use layout::{Layout, Place};
pub use paint::use_colour;

/// A column: its header and the cell of an item.
pub type Column = (&'static str, fn(&Value) -> String);

/// A table to be printed.
#[derive(Debug)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Widest line; any width if not set.
    width: Option<usize>,
    /// Whether states are coloured.
    has_colour: bool,
}

impl Table {
    /// A table for stdout.
    pub fn new(headers: &[&str]) -> Self {
        let headers = headers.iter().copied().map(ToOwned::to_owned).collect();
        let stdout = std::io::stdout();
        let has_colour = stdout.is_terminal() && paint::is_used();
        Self { headers, rows: Vec::new(), width: terminal_width(), has_colour }
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

    /// The items, one a row, with every column and every cell whole: for stdout that is no terminal.
    pub fn for_pipe(items: &[Value], columns: &[Column]) -> Self {
        let headers: Vec<&str> = columns.iter().map(|(header, _)| *header).collect();
        let mut table = Self::new(&headers).fit(None);
        for item in items {
            table.row(columns.iter().map(|(_, cell)| cell(item)).collect());
        }
        table
    }

    /// Wraps and cuts cells until lines are no longer than `width`, where that is possible.
    #[must_use]
    pub const fn fit(mut self, width: Option<usize>) -> Self {
        self.width = width;
        self
    }

    /// Colours states, whatever stdout is.
    #[cfg(test)]
    const fn coloured(mut self) -> Self {
        self.has_colour = true;
        self
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn write_row(
        &self,
        f: &mut fmt::Formatter<'_>,
        layout: &Layout,
        row: &[String],
        part: Part,
    ) -> fmt::Result {
        let mut columns: Vec<(usize, usize, Vec<String>)> = Vec::with_capacity(row.len());
        let mut below: Vec<(usize, &str)> = Vec::new();
        for (at, cell) in row.iter().enumerate() {
            match layout.place(at) {
                Place::Column(width) => columns.push((at, width, layout.lines(at, cell))),
                Place::Below => below.push((at, cell)),
            }
        }
        let height = columns.iter().map(|(.., lines)| lines.len()).max().unwrap_or(0);
        for number in 0..height {
            let mut text = String::new();
            let mut pad = 0;
            for (at, width, lines) in &columns {
                let cell = lines.get(number).map_or("", String::as_str);
                text.extend(std::iter::repeat_n(' ', pad));
                let is_coloured = self.has_colour && part == Part::Row;
                text.push_str(&paint::painted(is_coloured, self.name(row, *at), cell));
                pad = width.saturating_sub(layout::width(cell)) + layout::GAP;
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        for (at, cell) in below.into_iter().filter(|(_, cell)| part == Part::Row && *cell != "-") {
            let name = self.headers.get(at).map_or("", String::as_str).to_lowercase();
            for line in layout.below(&format!("{name}: {cell}")) {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }

    /// What a cell says something about: its header, or its first cell in a table of names and
    /// values.
    fn name<'a>(&'a self, row: &'a [String], at: usize) -> &'a str {
        match self.headers.get(at) {
            Some(header) => header,
            None => row.first().filter(|_| at > 0).map_or("", String::as_str),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Row,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = Layout::of(&self.headers, &self.rows, self.width);
        if !self.headers.is_empty() {
            self.write_row(f, &layout, &self.headers, Part::Header)?;
        }
        self.rows.iter().try_for_each(|row| self.write_row(f, &layout, row, Part::Row))
    }
}

/// The width of the terminal that stdout is; `None` if it is none.
fn terminal_width() -> Option<usize> {
    terminal_size().map(|(columns, _)| columns)
}

/// Columns and lines of the terminal that stdout is, if it is one.
pub fn terminal_size() -> Option<(usize, usize)> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    let (columns, lines) = (usize::from(size.ws_col), usize::from(size.ws_row));
    Some((columns, lines)).filter(|(columns, _)| *columns > 0)
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
mod tests;
