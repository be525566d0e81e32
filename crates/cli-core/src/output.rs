//! Human-readable output: tables, times, fields of responses. All of it is safe to print on a terminal.

mod escape;
mod field;
mod table;
mod time;

use std::io::Write;

pub use escape::{escape, escape_lines};
pub use field::{at, text_at};
pub use table::{Column, Table, fields, terminal_size, use_colour};
pub use time::{ago, span, when};

/// Writes text to stderr: progress, and what accompanies the data.
pub fn say(text: &str) {
    // A closed stderr must not end the command: data and exit code still count.
    std::io::stderr().lock().write_all(text.as_bytes()).unwrap_or_default();
}
