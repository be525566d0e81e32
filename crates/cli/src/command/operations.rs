//! `outlast operations`: list, show, stop; and following one to its end.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::clock;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, escape, fields, say, span, text_at, when};
use serde_json::{Value, json};

use super::follow::AWAY_MAX;
use super::newest::{self, Wanted};
use super::{Target, field_flags};
use crate::config::Environment;
use crate::output;
use crate::signals::Interrupts;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List operations, the latest first
    List(List),
    /// Show an operation: which jobs it is about, and how far it has come
    Show(Show),
    /// Stop an operation; what it changed stays so
    Stop(One),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only operations that run
    #[arg(long)]
    running: bool,
    /// Most operations to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue an earlier list, with the cursor it printed
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Operation, by id, or by how its id begins or ends
    id: String,
    /// Follow it to its end
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Operation, by id, or by how its id begins or ends
    id: String,
    #[command(flatten)]
    target: Target,
}

pub(super) const OPERATIONS: [&str; 3] = ["api", "v1", "operations"];

/// How often an operation is looked at that is followed.
const LOOK: Duration = Duration::from_millis(250);

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show(&args, environment).await,
        Command::Stop(args) => stop(&args, environment).await,
    }
}

const COLUMNS: &[Column] = &[
    ("ID", |it| text_at(it, "id")),
    ("KIND", |it| text_at(it, "kind")),
    ("SELECTION", |it| text_at(it, "selection")),
    ("STATUS", status),
    ("MATCHED", |it| text_at(it, "matched")),
    ("CHANGED", |it| text_at(it, "changed")),
    ("SKIPPED", |it| text_at(it, "skipped")),
    ("AGE", |it| ago(it, "created").trim_end_matches(" ago").to_owned()),
];

/// How an operation stands, in one word: also that its server cannot read it.
fn status(operation: &Value) -> String {
    let is_damaged = at(operation, "damaged").is_some();
    if is_damaged { "damaged".to_owned() } else { text_at(operation, "status") }
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let running = [("running", args.running.then(|| "true".to_owned()))];
    let wanted = Wanted {
        path: &OPERATIONS,
        filters: &running,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let listed = newest::list(&client, wanted).await;
    let (found, cursor) = listed.map_err(|failure| field_flags::in_flags(failure, &[]))?;
    output::print_list(args.target.output, &found, COLUMNS)?;
    let words = if args.running { "no operation runs" } else { "there are no operations" };
    output::say_if_empty(args.target.output, &found, words);
    newest::say_goes_on(found.len(), cursor);
    Ok(Exit::Ok)
}

async fn show(args: &Show, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = newest::whole_id(&client, &OPERATIONS, "operation", &args.id).await?;
    if args.follow {
        return follow(&client, &id, &args.target).await;
    }
    let operation = read(&client, &id).await?;
    output::print_one(args.target.output, &operation, details)?;
    Ok(Exit::Ok)
}

async fn stop(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = newest::whole_id(&client, &OPERATIONS, "operation", &args.id).await?;
    let [api, version, operations] = OPERATIONS;
    let path = [api, version, operations, &id, "stop"];
    let operation = output::data(client.post(&path, &json!({})).await?);
    output::print_one(args.target.output, &operation, details)?;
    Ok(Exit::Ok)
}

async fn read(client: &Client, id: &str) -> Result<Value, Failure> {
    let [api, version, operations] = OPERATIONS;
    Ok(output::data(client.get(&[api, version, operations, id], &[]).await?))
}

/// Follows an operation to its end, and prints it. An interrupt leaves it running.
pub(super) async fn follow(client: &Client, id: &str, target: &Target) -> Result<Exit, Failure> {
    let is_watched = std::io::stderr().is_terminal();
    let mut interrupts = Interrupts::new()?;
    let (mut away, mut seen) = (None, None);
    let operation = loop {
        match read(client, id).await {
            Ok(operation) if text_at(&operation, "status") != "running" => break operation,
            Ok(operation) => {
                away = None;
                if is_watched {
                    say(&format!("\r\x1b[K{}", progress(&operation)));
                }
                seen = Some(operation);
            }
            // A server that is away for a moment is waited for; another one goes on meanwhile.
            Err(failure) if failure.exit == Exit::Unreachable => {
                let now = clock::moment();
                if now.since(*away.get_or_insert(now)) > AWAY_MAX {
                    return Err(failure.with_hint(left_running(id)));
                }
            }
            Err(failure) => return Err(failure),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = interrupts.next() => {
                let line = if is_watched { "\n" } else { "" };
                say(&format!("{line}{}\n", left_running(id)));
                if let Some(seen) = &seen {
                    output::print_one(target.output, seen, details)?;
                }
                // A script does not go on as if it were done.
                return Ok(Exit::WaitTimedOut);
            }
        }
    };
    if is_watched {
        say("\r\x1b[K");
    }
    output::print_one(target.output, &operation, details)?;
    let outcome = outcome(&operation);
    match text_at(&operation, "status").as_str() {
        "done" => {
            say(&format!("{outcome}\n"));
            Ok(Exit::Ok)
        }
        status => Err(Failure::failed(format!("operation {id} {status}: {outcome}"))),
    }
}

/// What to say about an operation that is not followed any more.
pub(super) fn left_running(id: &str) -> String {
    format!(
        "operation {id} goes on at the server: `outlast operations show {id} --follow`; \
         `outlast operations stop {id}` stops it"
    )
}

fn progress(operation: &Value) -> String {
    let text = |name: &str| text_at(operation, name);
    let all = number(operation, "estimate").or_else(|| number(operation, "expected"));
    let of = all.map(|all| format!(" of about {all}")).unwrap_or_default();
    let left = number(operation, "seconds_left");
    let left = left.map(|left| format!(", {} left", span(Duration::from_secs(left))));
    format!(
        "{}{of} looked at, {} changed, {} skipped, {}/s{}",
        text("matched"),
        text("changed"),
        text("skipped"),
        text("rate_per_second"),
        left.unwrap_or_default()
    )
}

fn number(operation: &Value, name: &str) -> Option<u64> {
    at(operation, name).and_then(Value::as_u64)
}

/// What became of the jobs: `1180 cancelled, 24 skipped: 24 already running`.
fn outcome(operation: &Value) -> String {
    let done = match text_at(operation, "kind").as_str() {
        "cancel" => "cancelled",
        "retry" => "retried",
        _ => "changed",
    };
    let changed = format!("{} {done}", text_at(operation, "changed"));
    let reasons = at(operation, "skipped_by_reason").and_then(Value::as_object);
    let reasons = reasons.into_iter().flatten();
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{count} {}", escape(reason))).collect();
    match reasons.is_empty() {
        true => changed,
        false => {
            let skipped = text_at(operation, "skipped");
            format!("{changed}, {skipped} skipped: {}", reasons.join(", "))
        }
    }
}

fn details(operation: &Value) -> String {
    let text = |name: &str| text_at(operation, name);
    fields(&[
        ("id", text("id")),
        ("kind", text("kind")),
        ("selection", text("selection")),
        ("as of", when(operation, "as_of")),
        ("status", text("status")),
        ("damaged", text("damaged")),
        ("matched", text("matched")),
        ("result", outcome(operation)),
        ("reason", text("reason")),
        ("note", text("note")),
        ("by", text("by")),
        ("began", when(operation, "created")),
        ("ended", when(operation, "ended")),
        ("jobs a second", text("rate_per_second")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_and_outcome_are_said_in_one_line() {
        let mut operation = json!({"kind": "cancel", "matched": 300, "changed": 280, "skipped": 20,
            "skipped_by_reason": {"already completed": 4, "already running": 16},
            "rate_per_second": 5000, "estimate": 1204, "seconds_left": 1});
        assert_eq!(
            progress(&operation),
            "300 of about 1204 looked at, 280 changed, 20 skipped, 5000/s, 1.0s left"
        );
        let words = "280 cancelled, 20 skipped: 4 already completed, 16 already running";
        assert_eq!(outcome(&operation), words);
        operation["skipped_by_reason"] = json!({});
        assert_eq!(outcome(&operation), "280 cancelled");
    }
}
