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
use outlast_packs::PackSet;
use serde_json::{Value, json};

use self::check::{Check, Verdict};
use super::Target;
use crate::client::Client;
use crate::config::client::ClientConfig;
use crate::config::{Environment, Flag, Settings};
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, say};

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// YAML file that server or worker are started with
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store to look at from here, sqlite:PATH or postgres://USER@HOST/NAME
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// Folder with packs; may be given several times
    #[arg(long, value_name = "DIR")]
    packs: Vec<String>,
    #[command(flatten)]
    target: Target,
}

/// What the local checks look at.
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
    host::check(&subject, &mut checks).await;
    if let Some(url) = files::store(&subject, &mut checks) {
        postgres::check(&url, &mut checks).await;
    }
    tls::files(&subject, &mut checks);
    match unusable.map_or_else(|| client(&subject.settings), Err) {
        Ok((target, client)) => {
            tls::server(&target, &mut checks).await;
            server::check(&client, &mut checks).await;
        }
        Err(failure) => server::unasked(failure, &mut checks),
    }
    files::port(&subject, &mut checks).await;
    show(args.target.format(), &checks)?;
    let failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// Whom to ask, and with what: its token and certificates are read from files.
fn client(settings: &Settings) -> Result<(ClientConfig, Client), Failure> {
    let target = ClientConfig::of(settings)?;
    let client = Client::new(target.clone())?;
    Ok((target, client))
}

/// The flags of the command as settings, so that they meet file and environment by the same
/// rules as in `outlast server` and `outlast worker`.
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
            let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
            let all = json!({"verdict": worst.word(), "checks": items});
            output::print_one(format, &all, Value::to_string)?;
        }
        Format::Jsonl => output::print_list(format, &items, &[])?,
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    say(&format!(
        "{} ok, {} warn, {} fail, {} skipped\n",
        count(Verdict::Ok),
        count(Verdict::Warn),
        count(Verdict::Fail),
        count(Verdict::Skipped)
    ));
    Ok(())
}
