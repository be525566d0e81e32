//! `outlast doctor`: is all well with client, server, worker and this host?
//!
//! ```text
//! configuration ─▶ files: config, packs, port, a store on this host ─┐
//!                ─▶ host: interpreters, containment, limits, stop     ├─▶ checks ─▶ exit code
//!                ─▶ postgres: a database that was named              ─┤
//! server ────────▶ reach, versions, clocks, store, queues, workers ───┘
//! ```
//!
//! Every check has a fact, a verdict and, where something is wrong, a fix. A check that cannot
//! be made says so and does not stop the others. Warnings show and do not fail.

mod check;
mod files;
mod host;
mod postgres;
mod server;
mod tls;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use outlast_cli_core::client::{Client, ClientConfig};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;
use outlast_packs::PackSet;
use serde_json::{Value, json};

use self::check::{Check, Level};
use super::Target;
use crate::config::{Environment, Flag, Settings};
use crate::output::{self, Format};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// YAML file of the server or worker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store to check from this host, sqlite:PATH or postgres://USER@HOST/NAME
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// Folder with packs; may be given several times
    #[arg(long, value_name = "DIR")]
    packs: Vec<String>,
    #[command(flatten)]
    target: Target,
}

/// What the local checks examine.
struct Subject<'a> {
    settings: Settings,
    environment: &'a Environment,
    packs: PackSet,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let mut checks = Vec::new();
    let (settings, unusable) = files::configuration(&args, environment, &mut checks);
    let packs = files::packs(&settings, &mut checks);
    let subject = Subject { settings, environment, packs };
    files::environments(&subject, &mut checks).await;
    host::check(&subject, &mut checks).await;
    if let Some(url) = files::store(&subject, &mut checks) {
        postgres::check(&url, &mut checks).await;
    }
    tls::files(&subject, &mut checks);
    match unusable.map_or_else(|| client(&subject.settings), Err) {
        Ok((target, client)) => {
            tls::server(&target, &mut checks).await;
            server::check(&client, &mut checks).await;
            server::compare(&target, &mut checks).await;
        }
        Err(failure) => server::unasked(failure, &mut checks),
    }
    files::port(&subject, &mut checks).await;
    show(args.target.format(), &checks)?;
    let failed = checks.iter().any(|check| check.level == Level::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// The server to ask; its token and certificates are read from files.
fn client(settings: &Settings) -> Result<(ClientConfig, Client), Failure> {
    let target = crate::config::client::of(settings)?;
    let client = Client::new(target.clone())?;
    Ok((target, client))
}

/// The flags as settings, so that file and environment apply by the same rules as in
/// `outlast server` and `outlast worker`.
fn flags(args: &Args) -> Vec<Flag> {
    let mut flags = args.target.flags();
    flags.push(Flag::new("server.database", "--database", args.database.clone()));
    flags.push(Flag::many("worker.packs", "--packs", args.packs.clone()));
    flags
}

fn show(format: Format, checks: &[Check]) -> Result<(), Failure> {
    let items: Vec<Value> = checks.iter().map(Check::to_json).collect();
    match format {
        Format::Table => output::print(&check::page(checks))?,
        Format::Json => {
            let worst = checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok);
            let all = json!({"verdict": worst.word(), "checks": items});
            output::print_one(format, &all, Value::to_string)?;
        }
        Format::Jsonl => output::print_list(format, &items, &[])?,
    }
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    say(&format!(
        "{} ok, {} warn, {} fail, {} skipped\n",
        count(Level::Ok),
        count(Level::Warn),
        count(Level::Fail),
        count(Level::Skipped)
    ));
    Ok(())
}
