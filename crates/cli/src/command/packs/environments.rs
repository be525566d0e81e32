//! `outlast packs sync`, and what other commands say about the environments of packs.

use std::path::PathBuf;

use clap::Args;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, say, text_at};
use outlast_packs::PackSet;
use outlast_packs::environment::{EnvironmentState, PackEnvironment};
use outlast_worker::environment::HostEnvironment;
use outlast_worker::installer::{Installer, Synced};
use serde_json::{Value, json};

use crate::config::{Environment, Settings, value};
use crate::output::{self, Format};

#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Folder of packs, or a single pack; without one those of `worker.packs`
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// YAML file of the worker
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change nothing; exit with 1 if an environment is missing or stale
    #[arg(long)]
    check: bool,
    /// Python for virtual environments: a program in PATH, or a path; the first `python3` in PATH
    /// if not given
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// Output format: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

const COLUMNS: &[Column] = &[
    ("PACK", |row| text_at(row, "pack")),
    ("ENVIRONMENT", |row| text_at(row, "environment")),
    ("STATE", |row| text_at(row, "state")),
    ("WHAT", |row| text_at(row, "what")),
];

/// What became of one environment.
struct Row {
    state: &'static str,
    what: String,
    is_well: bool,
}

impl Row {
    const fn well(state: &'static str, what: String) -> Self {
        Self { state, what, is_well: true }
    }

    const fn ill(state: &'static str, what: String) -> Self {
        Self { state, what, is_well: false }
    }
}

/// Something about an environment that an operator should act on.
pub(in crate::command) struct Finding {
    pub(in crate::command) pack: String,
    pub(in crate::command) what: String,
    pub(in crate::command) fix: String,
}

/// What environments of packs are missing or stale on this host, and how many there are in all.
pub(in crate::command) async fn find(
    packs: &PackSet,
    environment: &Environment,
) -> (Vec<Finding>, usize) {
    let all: Vec<_> = packs.packs().flat_map(|pack| pack.environments()).collect();
    let mut findings = Vec::new();
    // Interpreters are asked only if there is something to ask them for.
    if all.is_empty() {
        return (findings, 0);
    }
    let Ok(installer) = Installer::find(&path_of(environment), None).await else {
        return (findings, 0);
    };
    for one in &all {
        let what = match installer.state(one).await {
            EnvironmentState::Fresh | EnvironmentState::ByHand => continue,
            EnvironmentState::Stale(why) => format!("is stale: {why}"),
            EnvironmentState::Missing(why) => why,
        };
        let (pack, what) = (one.pack().to_owned(), one.says(&what));
        findings.push(Finding { pack, what, fix: one.remedy() });
    }
    (findings, all.len())
}

pub(super) async fn sync(args: Sync, environment: &Environment) -> Result<Exit, Failure> {
    let folders = folders(&args, environment)?;
    let packs = PackSet::load(&folders).map_err(|fault| Failure::usage(fault.to_string()))?;
    for fault in packs.faults() {
        say(&format!("left out: {fault}\n"));
    }
    let path = path_of(environment);
    let installer = Installer::find(&path, args.python.as_deref()).await;
    let installer = installer.map_err(|error| Failure::usage(error.to_string()))?;
    let mut is_well = packs.faults().next().is_none();
    let mut rows: Vec<Value> = Vec::new();
    for one in packs.packs().flat_map(|pack| pack.environments()) {
        let row = if args.check {
            looked_at(&installer, one).await
        } else {
            synced(&installer, one).await
        };
        is_well &= row.is_well;
        rows.push(json!({
            "pack": one.pack(),
            "environment": one.kind().as_str(),
            "state": row.state,
            "what": row.what,
        }));
    }
    match args.output {
        Format::Table if rows.is_empty() => {}
        format => output::print_list(format, &rows, COLUMNS)?,
    }
    output::say_if_empty(args.output, &rows, "no pack asks for an environment");
    Ok(if is_well { Exit::Ok } else { Exit::Failed })
}

async fn looked_at(installer: &Installer, environment: &PackEnvironment) -> Row {
    match installer.state(environment).await {
        EnvironmentState::Fresh => Row::well("fresh", place(environment)),
        EnvironmentState::ByHand => by_hand(environment),
        EnvironmentState::Stale(why) => Row::ill("stale", why),
        EnvironmentState::Missing(why) => Row::ill("missing", why),
    }
}

async fn synced(installer: &Installer, environment: &PackEnvironment) -> Row {
    let mut progress = |line: &str| say(&format!("{line}\n"));
    match installer.sync(environment, &mut progress).await {
        Ok(Synced::Fresh) => Row::well("fresh", place(environment)),
        Ok(Synced::Made) => Row::well("made", place(environment)),
        Ok(Synced::ByHand) => by_hand(environment),
        Err(error) => Row::ill("failed", error.to_string()),
    }
}

/// Where it is.
fn place(environment: &PackEnvironment) -> String {
    environment.folder().join(environment.kind().link()).display().to_string()
}

fn by_hand(environment: &PackEnvironment) -> Row {
    let what = "left alone: it was not made by this command; move it away to have one made";
    Row::well("by hand", format!("{}: {what}", place(environment)))
}

/// The folders that were named, or else those of a worker that is started like this.
fn folders(args: &Sync, environment: &Environment) -> Result<Vec<PathBuf>, Failure> {
    if !args.folders.is_empty() {
        return Ok(args.folders.clone());
    }
    let settings = Settings::load(args.config.as_deref(), environment, Vec::new())?;
    let folders = settings.get("worker.packs", value::paths)?;
    if folders.is_empty() {
        let failure = Failure::usage("no packs: neither DIR nor worker.packs names a folder");
        return Err(failure.with_hint("name it: `outlast packs sync DIR`"));
    }
    Ok(folders)
}

/// The PATH that jobs get.
fn path_of(environment: &Environment) -> String {
    HostEnvironment::allowed_of(environment.variables().iter().cloned()).path().to_owned()
}
