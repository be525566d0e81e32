//! `outlast jobs`: list, show, cancel, retry, logs.

pub(crate) mod show;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::follow::{Follow, LogSink};
use super::round::Round;
use super::{Target, workers};
use crate::client::Client;
use crate::config::Environment;
use crate::exit::{Exit, Failure};
use crate::output::{self, Column, Format, text_at, when};

/// Longest page asked for at once.
const PAGE_MAX: u32 = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List jobs, newest first
    List(List),
    /// Show one job: its attempts, and why it waits
    Show(One),
    /// Cancel jobs
    Cancel(Many),
    /// Give failed and abandoned jobs a new life
    Retry(Many),
    /// Print a job's output
    Logs(Logs),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only this status: requested, scheduled, running, completed, failed, timeout, cancelled, abandoned
    #[arg(long)]
    status: Option<String>,
    /// Only this action or job type
    #[arg(long, value_name = "REF")]
    action: Option<String>,
    /// Only this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs of this worker, by id or name
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Job
    id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Many {
    /// Jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Job
    id: String,
    /// Go on until the job has ended
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show::run(&args, environment).await,
        Command::Cancel(args) => each(&args, environment, "cancel").await,
        Command::Retry(args) => each(&args, environment, "retry").await,
        Command::Logs(args) => logs(&args, environment).await,
    }
}

const COLUMNS: &[Column] = &[
    ("ID", |job| text_at(job, "id")),
    ("ACTION", |job| text_at(job, "action_ref")),
    ("STATUS", |job| text_at(job, "status")),
    ("QUEUE", |job| text_at(job, "queue")),
    ("ATTEMPT", |job| text_at(job, "attempt")),
    ("WORKER", |job| text_at(job, "worker.name")),
    ("CREATED", |job| when(job, "created")),
    ("WAITING", |job| text_at(job, "waiting_reason")),
];

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let worker = match &args.worker {
        Some(worker) => Some(workers::resolve(&client, worker).await?),
        None => None,
    };
    let filters = [
        ("status", args.status.clone()),
        ("action_ref", args.action.clone()),
        ("queue", args.queue.clone()),
        ("worker", worker),
    ];
    let found = pages(&client, &["api", "v1", "executions"], &filters, args.limit).await?;
    output::print_list(args.target.output, &found.items, COLUMNS)?;
    if found.more {
        let total = found.total.map_or_else(|| "more".to_owned(), |total| total.to_string());
        output::say(&format!("{} of {total} shown; --limit shows more\n", found.items.len()));
    }
    Ok(Exit::Ok)
}

/// Items of a list that comes in pages.
#[derive(Debug)]
pub(crate) struct Found {
    /// The items, as many as were asked for at most.
    pub(crate) items: Vec<Value>,
    /// Whether there are more.
    pub(crate) more: bool,
    /// How many there are in all, if the server says.
    pub(crate) total: Option<u64>,
}

/// Reads pages until there are `limit` items or no more.
async fn pages(
    client: &Client,
    path: &[&str],
    filters: &[crate::client::Query<'_>],
    limit: u32,
) -> Result<Found, Failure> {
    let mut found = Found { items: Vec::new(), more: true, total: None };
    let mut cursor = None;
    while found.more {
        let missing = limit.saturating_sub(u32::try_from(found.items.len()).unwrap_or(u32::MAX));
        if missing == 0 {
            break;
        }
        let mut query = filters.to_vec();
        query.push(("limit", Some(missing.min(PAGE_MAX).to_string())));
        query.push(("cursor", cursor.take()));
        let page = client.get(path, &query).await?;
        let items = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        found.total = output::at(&page, "pagination.total").and_then(Value::as_u64);
        cursor = output::at(&page, "pagination.next_cursor").map(cursor_text);
        // A page without items ends the list, whatever it says about a next one.
        found.more = cursor.is_some() && !items.is_empty();
        found.items.extend(items);
    }
    Ok(found)
}

fn cursor_text(cursor: &Value) -> String {
    cursor.as_str().map_or_else(|| cursor.to_string(), ToOwned::to_owned)
}

/// Does the same to every job, whatever becomes of the others.
async fn each(args: &Many, environment: &Environment, verb: &str) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let mut round = Round::default();
    for id in &args.ids {
        let path = ["api", "v1", "executions", id, verb];
        let answer = client.post(&path, &json!({})).await;
        round.note(id, answer.map(|answer| answer.get("data").cloned().unwrap_or(answer)));
    }
    output::print_list(args.target.output, round.done(), COLUMNS)?;
    round.end()
}

async fn logs(args: &Logs, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let format = args.target.output;
    let sink = match format {
        Format::Table => LogSink::Streams,
        Format::Json => LogSink::Kept,
        Format::Jsonl => LogSink::Lines,
    };
    let mut follow = Follow::new(&client, &args.id, sink);
    if args.follow {
        follow.until_it_ends(None).await?;
        // One document is whole when the job has ended.
        if format == Format::Json {
            output::print_list(format, &follow.into_kept(), &[])?;
        }
        return Ok(Exit::Ok);
    }
    // A job without output still has to exist.
    let job = client.get(&["api", "v1", "executions", &args.id], &[]).await?;
    follow.has_seen(job.get("data").unwrap_or(&job));
    follow.print_new().await?;
    follow.end_line()?;
    if format == Format::Json {
        output::print_list(format, &follow.into_kept(), &[])?;
    }
    Ok(Exit::Ok)
}
