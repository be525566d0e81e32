//! `outlast backup`: a copy of an embedded store as it is at one moment, while servers run.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;

use super::store;
use crate::config::{Environment, Flag, Settings, value};

const AFTER_HELP: &str = "\
For a store in SQLite. A server may be using it. The copy is checked and on disk when the command
ends; `outlast restore FILE` brings it back. PostgreSQL is backed up by its own tools, pg_dump or
pg_basebackup.
Exit codes: 0 the copy is whole and on disk, 4 FILE exists, 2 the store is not in SQLite, 1 it failed.";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// File to write; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Store, as sqlite:PATH [default: sqlite:outlast.db]
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, environment: &Environment) -> Result<Exit, Failure> {
    let flags = vec![Flag::new("server.database", "--database", args.database.clone())];
    let settings = Settings::load(args.config.as_deref(), environment, flags)?;
    let database = settings.get("server.database", value::database)?;
    let shown = settings.setting("server.database")?.shown();
    if args.file.exists() {
        let message = format!("{} exists", args.file.display());
        return Err(Failure::new(Exit::Conflict, message).with_hint("name a new file"));
    }
    let bytes = store::back_up(&database, &args.file)?;
    say(&format!("{shown} is copied to {}, {bytes} bytes\n", args.file.display()));
    Ok(Exit::Ok)
}
