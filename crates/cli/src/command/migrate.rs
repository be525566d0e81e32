//! `outlast migrate`: bring the store to this version, as the server also does at its start.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::store;
use crate::config::{Environment, Flag, Settings, value};
use crate::exit::{Exit, Failure};
use crate::output::say;

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Store, as sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:outlast.db]
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let flags = vec![Flag::new("server.database", "--database", args.database)];
    let settings = Settings::load(args.config.as_deref(), environment, flags)?;
    let database = settings.get("server.database", value::database)?;
    store::migrate(&database).await?;
    say(&format!("{} is up to date\n", settings.setting("server.database")?.shown()));
    Ok(Exit::Ok)
}
