//! `outlast config show`: every key with its value, and where it came from.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, text_at};
use serde_json::{Value, json};

use crate::config::server::{ServerConfig, Switches};
use crate::config::worker::WorkerConfig;
use crate::config::{Environment, Setting, Settings};
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show every key with its value
    Show(Show),
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Also show where each value came from
    #[arg(long)]
    origin: bool,
    /// YAML file to read
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

pub(crate) fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    let Command::Show(show) = command;
    let settings = Settings::load(show.config.as_deref(), environment, Vec::new())?;
    // What would refuse to start says so here as well. The open door is a matter of flags that
    // are not known here, so it is not checked.
    ServerConfig::new(&settings, Switches { insecure: true, ..Switches::default() })?;
    WorkerConfig::new(&settings)?;
    let items: Vec<Value> = settings.iter().map(|setting| item(setting, show.origin)).collect();
    output::print_list(show.output, &items, &columns(show.origin))?;
    Ok(Exit::Ok)
}

/// In a pipe, where lines are not cut, what does not fit is left to JSON.
fn columns(with_origin: bool) -> Vec<Column> {
    let is_wide = output::is_terminal();
    let mut columns: Vec<Column> =
        vec![("KEY", |item| text_at(item, "key")), ("VALUE", |item| text_at(item, "value"))];
    if is_wide || !with_origin {
        columns.push(("UNIT", |item| text_at(item, "unit")));
    }
    if with_origin {
        columns.push(("ORIGIN", |item| text_at(item, "origin")));
    }
    if is_wide {
        columns.push(("MEANING", |item| text_at(item, "about")));
    }
    columns
}

fn item(setting: &Setting, with_origin: bool) -> Value {
    // Text may be an address with a password in it; lists and mappings are none.
    let value = if setting.key.secret || setting.value.is_string() {
        Value::String(setting.shown())
    } else {
        setting.value.clone()
    };
    let mut item = json!({
        "key": setting.key.name,
        "value": value,
        "unit": setting.key.kind.unit,
    });
    if with_origin {
        item["origin"] = Value::String(setting.origin.to_string());
    }
    item["about"] = Value::String(setting.key.about.to_owned());
    item
}
