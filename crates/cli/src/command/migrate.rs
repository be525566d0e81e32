//! `outlast migrate`: bring the store to this version, as the server also does at its start;
//! or with `--check` tell what would be done.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::Column;
use outlast_cli_core::output::{say, text_at};
use outlast_store_rules::migration::SchemaStatus;
use serde_json::{Value, json};

use super::store;
use crate::config::{Environment, Flag, Settings, value};
use crate::output::{Format, print_list};

const AFTER_HELP: &str = "\
Exit codes: 0 the store is up to date, 4 (with --check) migrations are pending, 1 the store cannot
be used or was made by another build of outlast.";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Store, as sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:outlast.db]
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print which migrations would run and change nothing; servers may be running
    #[arg(long)]
    check: bool,
    /// Output format of --check: table, json or jsonl
    #[arg(
        short,
        long,
        value_enum,
        requires = "check",
        hide_possible_values = true,
        value_name = "FORMAT"
    )]
    output: Option<Format>,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let flags = vec![Flag::new("server.database", "--database", args.database)];
    let settings = Settings::load(args.config.as_deref(), environment, flags)?;
    let database = settings.get("server.database", value::database)?;
    let shown = settings.setting("server.database")?.shown();
    if args.check {
        let status = store::schema_status(&database).await?;
        return print_status(&status, &shown, args.output.unwrap_or(Format::Table));
    }
    let ran = store::migrate(&database).await?;
    say(&match ran.as_slice() {
        [] => format!("{shown} was up to date\n"),
        ran => format!("{shown} is up to date; applied {}\n", ran.join(", ")),
    });
    Ok(Exit::Ok)
}

fn print_status(status: &SchemaStatus, shown: &str, format: Format) -> Result<Exit, Failure> {
    let item = |state: &'static str| move |name: &&'static str| json!({ "migration": name, "state": state });
    let applied = status.applied.iter().map(item("applied"));
    let items: Vec<Value> = applied.chain(status.pending.iter().map(item("pending"))).collect();
    let columns: &[Column] = &[
        ("MIGRATION", |item| text_at(item, "migration")),
        ("STATE", |item| text_at(item, "state")),
    ];
    print_list(format, &items, columns)?;
    let count = status.pending.len();
    if count == 0 {
        say(&format!("{shown} is up to date\n"));
        return Ok(Exit::Ok);
    }
    say(&format!(
        "{shown} lacks {count} of {}; `outlast migrate` applies them, and so does a server at its \
         start\n",
        items.len()
    ));
    Ok(Exit::Conflict)
}
