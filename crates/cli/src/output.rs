//! What goes to stdout: tables for people, JSON for programs. Nothing else writes there.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, say};
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

/// Whether the reader of stdout has gone.
static READER_GONE: AtomicBool = AtomicBool::new(false);

/// Writes text to stdout as it is. A reader that has seen enough (`| head`) is no fault: nothing
/// more is written, and the command ends as it would have.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    if READER_GONE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            READER_GONE.store(true, Ordering::Relaxed);
            Ok(())
        }
        other => other.map_err(|error| Failure::failed(format!("cannot write to stdout: {error}"))),
    }
}

/// Ends a command that does nothing but print what comes, once its reader has gone.
pub(crate) fn end_without_reader() -> Result<(), Failure> {
    match READER_GONE.load(Ordering::Relaxed) {
        true => Err(Failure::new(Exit::Ok, "")),
        false => Ok(()),
    }
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

/// Says that a table is empty, which its heading alone does not.
pub(crate) fn say_if_empty(format: Format, items: &[Value], words: &str) {
    if items.is_empty() && format == Format::Table {
        say(&format!("{words}\n"));
    }
}

/// Returns what an answer of the API is about, without its envelope.
pub(crate) fn data(answer: Value) -> Value {
    answer.get("data").cloned().unwrap_or(answer)
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
