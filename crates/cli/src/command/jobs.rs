//! `outlast jobs`: list, show, cancel, retry, logs.

pub(crate) mod show;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::follow::{Follow, LogSink};
use super::job_id;
use super::round::Round;
use super::{Target, workers};
use crate::client::Client;
use crate::config::Environment;
use crate::exit::{Exit, Failure};
use crate::output::{self, Column, Format, ago, at, text_at};

/// Longest page asked for at once.
const PAGE_MAX: u32 = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List jobs, newest first
    List(List),
    /// Show one job: its attempts, and why it waits
    Show(One),
    /// Cancel jobs, by id or by filter
    Cancel(Many),
    /// Give failed and abandoned jobs a new life, by id or by filter
    Retry(Many),
    /// Enqueue jobs that have ended again, each under another id
    Rerun(Ids),
    /// Let jobs run now that wait for a time: delayed ones, and retries
    RunNow(Ids),
    /// Print a job's output
    Logs(Logs),
}

/// Which jobs.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only this status: requested, scheduled (claimed, not started), running, completed, failed,
    /// timeout, cancelled, abandoned
    #[arg(long)]
    status: Option<String>,
    /// Only this action or job type
    #[arg(long, value_name = "REF", alias = "type")]
    action: Option<String>,
    /// Only this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs of this worker, by id or name
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// Only jobs made since: a time, or how long ago, such as 2h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only jobs made before: a time, or how long ago
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
}

impl Filter {
    const fn is_empty(&self) -> bool {
        self.status.is_none()
            && self.action.is_none()
            && self.queue.is_none()
            && self.worker.is_none()
            && self.since.is_none()
            && self.before.is_none()
    }

    async fn query(&self, client: &Client) -> Result<Vec<crate::client::Query<'_>>, Failure> {
        let worker = match &self.worker {
            Some(worker) => Some(workers::resolve(client, worker).await?),
            None => None,
        };
        Ok(vec![
            ("status", self.status.clone()),
            ("action_ref", self.action.clone()),
            ("queue", self.queue.clone()),
            ("worker", worker),
            ("created_after", self.since.clone()),
            ("created_before", self.before.clone()),
        ])
    }
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Go on where an earlier list ended, as it said
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Job, by id or the beginning of it
    id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Ids {
    /// Jobs, by id or the beginning of it
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Many {
    /// Jobs, by id or the beginning of it; or all that the filters below find
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Only show which jobs it would be
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Job, by id or the beginning of it
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
        Command::Cancel(args) => many(&args, environment, CANCEL).await,
        Command::Retry(args) => many(&args, environment, RETRY).await,
        Command::Rerun(args) => ids(&args, environment, "rerun").await,
        Command::RunNow(args) => ids(&args, environment, "run-now").await,
        Command::Logs(args) => logs(&args, environment).await,
    }
}

const COLUMNS: &[Column] = &[
    ("ID", |job| text_at(job, "id")),
    ("ACTION", |job| text_at(job, "action_ref")),
    ("STATUS", |job| text_at(job, "status")),
    ("QUEUE", |job| text_at(job, "queue")),
    ("ATTEMPT", show::attempt),
    ("WORKER", |job| text_at(job, "worker.name")),
    ("AGE", |job| ago(job, "created").trim_end_matches(" ago").to_owned()),
    ("WAITING", waiting),
];

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let filters = args.filter.query(&client).await?;
    let found = pages(&client, &filters, args.limit, args.cursor.clone()).await?;
    output::print_list(args.target.output, &found.items, COLUMNS)?;
    if found.more {
        let total = found.total.map_or_else(|| "more".to_owned(), |total| total.to_string());
        let shown = found.items.len();
        let next = found.cursor.map_or_else(String::new, |at| format!(", --cursor {at} the next"));
        output::say(&format!("{shown} of {total} shown; --limit shows more{next}\n"));
    }
    Ok(Exit::Ok)
}

/// Most empty pages that are read one after the other, unless all jobs are wanted.
const EMPTY_MAX: u32 = 200;

/// Items of a list that comes in pages.
#[derive(Debug)]
pub(crate) struct Found {
    /// The items, as many as were asked for at most.
    pub(crate) items: Vec<Value>,
    /// Whether there are more.
    pub(crate) more: bool,
    /// How many there are in all, if the server says.
    pub(crate) total: Option<u64>,
    /// Where the next ones begin.
    pub(crate) cursor: Option<String>,
}

/// Reads pages until there are `limit` items or no more.
async fn pages(
    client: &Client,
    filters: &[crate::client::Query<'_>],
    limit: u32,
    mut cursor: Option<String>,
) -> Result<Found, Failure> {
    let mut found = Found { items: Vec::new(), more: true, total: None, cursor: None };
    let mut empty = 0;
    while found.more {
        let missing = limit.saturating_sub(u32::try_from(found.items.len()).unwrap_or(u32::MAX));
        if missing == 0 {
            break;
        }
        let mut query = filters.to_vec();
        query.push(("limit", Some(missing.min(PAGE_MAX).to_string())));
        query.push(("cursor", cursor.take()));
        let page = client.get(&["api", "v1", "executions"], &query).await?;
        let items = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        found.total = at(&page, "pagination.total").and_then(Value::as_u64);
        cursor = at(&page, "pagination.next_cursor").map(cursor_text);
        // What is far apart comes in short pages, or empty ones.
        empty = if items.is_empty() { empty + 1 } else { 0 };
        found.more = cursor.is_some();
        if empty >= EMPTY_MAX && limit < u32::MAX {
            break;
        }
        found.items.extend(items);
    }
    found.cursor = cursor;
    Ok(found)
}

fn cursor_text(cursor: &Value) -> String {
    cursor.as_str().map_or_else(|| cursor.to_string(), ToOwned::to_owned)
}

/// When it runs next, or why it does not run.
fn waiting(job: &Value) -> String {
    match at(job, "due") {
        Some(_) => format!("due {}", ago(job, "due")),
        None => text_at(job, "waiting_reason"),
    }
}

/// An order that can be given to all jobs of a filter.
#[derive(Clone, Copy, Debug)]
struct Order {
    verb: &'static str,
    /// The statuses that allow it.
    allowed_by: &'static [&'static str],
}

const CANCEL: Order = Order { verb: "cancel", allowed_by: &["requested", "scheduled", "running"] };
const RETRY: Order = Order { verb: "retry", allowed_by: &["failed", "timeout", "abandoned"] };

/// Does the same to every job that is named or found, whatever becomes of the others.
async fn many(args: &Many, environment: &Environment, order: Order) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    if args.ids.is_empty() == args.filter.is_empty() {
        let message = "name jobs by id, or give filters such as --status or --queue, not both";
        return Err(Failure::usage(message).with_hint("--dry-run shows which jobs it would be"));
    }
    let mut jobs = Vec::new();
    let mut round = Round::default();
    for given in &args.ids {
        match one(&client, given).await {
            Ok(job) => jobs.push(job),
            Err(failure) => round.note(given, Err(failure)),
        }
    }
    if !args.filter.is_empty() {
        let filters = args.filter.query(&client).await?;
        let found = pages(&client, &filters, u32::MAX, None).await?.items;
        let allows = |job: &Value| order.allowed_by.contains(&text_at(job, "status").as_str());
        jobs.extend(found.into_iter().filter(allows));
    }
    if args.dry_run {
        output::print_list(args.target.output, &jobs, COLUMNS)?;
        output::say(&format!("{} jobs; nothing was changed\n", jobs.len()));
        return round.end();
    }
    for job in &jobs {
        give(&client, &mut round, &text_at(job, "id"), order.verb).await;
    }
    output::print_list(args.target.output, round.done(), COLUMNS)?;
    round.end()
}

async fn ids(args: &Ids, environment: &Environment, verb: &str) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let mut round = Round::default();
    for given in &args.ids {
        match job_id::whole(&client, given).await {
            Ok(id) => give(&client, &mut round, &id, verb).await,
            Err(failure) => round.note(given, Err(failure)),
        }
    }
    output::print_list(args.target.output, round.done(), COLUMNS)?;
    round.end()
}

async fn give(client: &Client, round: &mut Round, id: &str, verb: &str) {
    let answer = client.post(&["api", "v1", "executions", id, verb], &json!({})).await;
    round.note(id, answer.map(|answer| answer.get("data").cloned().unwrap_or(answer)));
}

/// A job that is named, without asking for more of it than its id.
async fn one(client: &Client, given: &str) -> Result<Value, Failure> {
    Ok(json!({"id": job_id::whole(client, given).await?}))
}

async fn logs(args: &Logs, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let format = args.target.output;
    let sink = match format {
        Format::Table => LogSink::Streams,
        Format::Json => LogSink::Kept,
        Format::Jsonl => LogSink::Lines,
    };
    let id = job_id::whole(&client, &args.id).await?;
    let mut follow = Follow::new(&client, &id, sink);
    if args.follow {
        follow.until_it_ends(None).await?;
        // One document is whole when the job has ended.
        if format == Format::Json {
            output::print_list(format, &follow.into_kept(), &[])?;
        }
        return Ok(Exit::Ok);
    }
    // A job without output still has to exist.
    let job = client.get(&["api", "v1", "executions", &id], &[]).await?;
    follow.has_seen(job.get("data").unwrap_or(&job));
    follow.print_new().await?;
    follow.end_line()?;
    if format == Format::Json {
        output::print_list(format, &follow.into_kept(), &[])?;
    }
    Ok(Exit::Ok)
}
