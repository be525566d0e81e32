//! `outlast packs`: what packs hold, on a server or in a folder; and how a server reads them.

pub(super) mod environments;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, at, say, text_at};
use outlast_packs::{Origin, PackSet};
use outlast_server::Packs;
use serde_json::{Value, json};

use super::Target;
use crate::config::Environment;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the packs that a server knows
    List(List),
    /// Check packs in folders, without a server; exit code 1 if one is faulty
    Check(Check),
    /// Install what packs list in requirements.txt, pyproject.toml or package.json
    Sync(environments::Sync),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Folder of packs, or a single pack
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Exit with 1 on notes too, such as an action whose runner_type is not run here, and on
    /// environments that are missing or stale
    #[arg(long)]
    strict: bool,
    /// Output format: table, json or jsonl
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_possible_values = true,
          value_name = "FORMAT")]
    output: Format,
}

const COLUMNS: &[Column] = &[
    ("PACK", |pack| text_at(pack, "ref")),
    ("VERSION", |pack| text_at(pack, "version")),
    ("DIGEST", |pack| text_at(pack, "digest").chars().take(12).collect()),
    ("ACTIONS", |pack| count(pack, "actions")),
    ("WORKFLOWS", |pack| count(pack, "workflows")),
    ("FAULTS", |pack| count(pack, "faults")),
    ("WORKERS", workers),
    ("LABEL", |pack| text_at(pack, "label")),
];

const FINDINGS: &[Column] = &[
    ("PACK", |finding| text_at(finding, "pack")),
    ("FINDING", |finding| text_at(finding, "kind")),
    ("WHAT", |finding| text_at(finding, "what")),
];

/// How many workers have the same files as the server, and how many have others or none.
fn workers(pack: &Value) -> String {
    let of = |name: &str| at(pack, &format!("workers.{name}"));
    let number = |name: &str| of(name).and_then(Value::as_u64).unwrap_or(0);
    let other = of("other").and_then(Value::as_array).map_or(0, Vec::len);
    let mut words = vec![number("same").to_string()];
    if other > 0 {
        words.push(format!("{other} other"));
    }
    if number("without") > 0 {
        words.push(format!("{} without", number("without")));
    }
    words.join(", ")
}

fn count(pack: &Value, list: &str) -> String {
    pack.get(list).and_then(Value::as_array).map_or(0, Vec::len).to_string()
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => {
            let client = args.target.client(environment)?;
            let answer = client.get(&["api", "v1", "packs"], &[]).await?;
            let packs = answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
            output::print_list(args.target.output, &packs, COLUMNS)?;
            output::say_if_empty(args.target.output, &packs, "there are no packs");
            Ok(Exit::Ok)
        }
        Command::Check(args) => check(&args, environment).await,
        Command::Sync(args) => environments::sync(args, environment).await,
    }
}

async fn check(args: &Check, environment: &Environment) -> Result<Exit, Failure> {
    let set = PackSet::load(&args.folders).map_err(|fault| Failure::usage(fault.to_string()))?;
    let read: Vec<_> = set.packs().filter(|pack| pack.origin != Origin::BuiltIn).collect();
    let mut findings: Vec<Value> = Vec::new();
    let mut add = |pack: &str, kind: &str, what: String| {
        findings.push(json!({"pack": pack, "kind": kind, "what": what}));
    };
    for fault in set.faults() {
        add(pack_of(&set, fault.file()), "fault", fault.to_string());
    }
    let notes: usize = read.iter().map(|pack| pack.notes().len()).sum();
    for pack in &read {
        pack.notes().iter().for_each(|note| add(&pack.reference, "note", note.to_string()));
    }
    let (lacking, _) = environments::find(&set, environment).await;
    for finding in &lacking {
        add(&finding.pack, "environment", format!("{}; {}", finding.what, finding.fix));
    }
    match args.output {
        Format::Table if findings.is_empty() => {}
        format => output::print_list(format, &findings, FINDINGS)?,
    }
    let faults = set.faults().count();
    let actions: usize = read.iter().map(|pack| pack.actions().len()).sum();
    let workflows: usize = read.iter().map(|pack| pack.workflows().len()).sum();
    say(&format!(
        "packs: {}, actions: {actions}, workflows: {workflows}, faults: {faults}, notes: {notes}\n",
        read.len()
    ));
    let is_refused = faults > 0 || (args.strict && notes + lacking.len() > 0);
    Ok(if is_refused { Exit::Failed } else { Exit::Ok })
}

/// The pack that a file belongs to, as far as packs could be read.
fn pack_of<'a>(set: &'a PackSet, file: &str) -> &'a str {
    let holds = |pack: &&outlast_packs::Pack| pack.faults().any(|(_, fault)| fault.file() == file);
    set.packs().find(holds).map_or("-", |pack| pack.reference.as_str())
}

/// Logs what an operator should know about packs that were read.
pub(super) fn log(packs: &PackSet) {
    for pack in packs.packs().filter(|pack| pack.origin == Origin::Replacement) {
        tracing::info!(pack = pack.reference, "a pack from a folder replaces the built-in one");
    }
    for fault in packs.faults() {
        tracing::error!("left out: {fault}");
    }
}

/// Reads the packs again from disk. If that fails, the packs in force stay.
pub(super) fn read_again(folders: &[PathBuf], in_force: &Packs) {
    match PackSet::load(folders) {
        Ok(read) => {
            log(&read);
            let (packs, actions) = (read.packs().count(), read.actions().count());
            in_force.replace(read);
            tracing::info!(packs, actions, "packs reloaded");
        }
        Err(fault) => tracing::error!("packs not reloaded: {fault}"),
    }
}
