//! What goes to stdout: tables for people, JSON for programs. Nothing else writes there.

use std::io::{ErrorKind, IsTerminal, Write};

use clap::ValueEnum;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table};
use serde_json::Value;

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
}

/// Writes text to stdout as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        // The reader has seen enough (`| head`): that is an end, not a fault.
        ErrorKind::BrokenPipe => Failure::new(Exit::Ok, ""),
        _ => Failure::failed(format!("cannot write to stdout: {error}")),
    })
}

pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Prints a list of objects.
pub(crate) fn print_list(
    format: Format,
    items: &[Value],
    columns: &[Column],
) -> Result<(), Failure> {
    match format {
        Format::Table if is_terminal() => print(&Table::of(items, columns).to_string()),
        Format::Table => print(&Table::for_pipe(items, columns).to_string()),
        Format::Json => print_json(&Value::Array(items.to_vec())),
        Format::Jsonl => items.iter().try_for_each(|item| print(&format!("{item}\n"))),
    }
}

/// Prints one object: as JSON, or as `table` words it.
pub(crate) fn print_one<F>(format: Format, item: &Value, table: F) -> Result<(), Failure>
where
    F: FnOnce(&Value) -> String,
{
    match format {
        Format::Table => print(&table(item)),
        Format::Json => print_json(item),
        Format::Jsonl => print(&format!("{item}\n")),
    }
}

fn print_json(value: &Value) -> Result<(), Failure> {
    // `{:#}` is serde_json's pretty form.
    print(&format!("{value:#}\n"))
}
