//! `outlast jobs`: list, show, cancel, retry, logs.

mod bulk;
mod errors;
pub(crate) mod show;
mod wait;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, say, text_at};
use serde_json::{Value, json};

use super::batch::Batch;
use super::follow::{Follow, LogSink};
use super::job_id;
use super::{Target, field_flags, queues, workers};
use crate::command::search;
use crate::config::Environment;
use crate::output::{self, Format};

/// Longest page to request.
const PAGE_MAX: u32 = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List jobs, newest first
    List(List),
    /// Group failed jobs by action and error, the most frequent first
    Errors(errors::Args),
    /// Show one job: its attempts and why it waits
    Show(One),
    /// Cancel jobs, by id or by filter
    Cancel(Many),
    /// Retry failed and abandoned jobs with fresh budgets, by id or by filter
    Retry(Many),
    /// Enqueue ended jobs again, each with a new id
    Rerun(Ids),
    /// Run delayed jobs and waiting retries now
    RunNow(Ids),
    /// Print a job's output
    Logs(Logs),
    /// Wait for a job's end and exit with its outcome
    Wait(wait::Wait),
}

/// Selects jobs.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only these statuses: requested, scheduled (claimed, not started), running, completed, failed,
    /// timeout, cancelled, abandoned; such as failed,timeout
    #[arg(long, value_name = "STATUSES", value_delimiter = ',',
          value_parser = NonEmptyStringValueParser::new())]
    status: Vec<String>,
    /// Only this action or job type
    #[arg(long, value_name = "REF", visible_alias = "type", value_parser = NonEmptyStringValueParser::new())]
    action: Option<String>,
    /// Only this queue
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    queue: Option<String>,
    /// Only jobs with this key; may be given several times
    #[arg(long = "key", value_name = "NAME=VALUE", value_parser = key)]
    keys: Vec<String>,
    /// Only jobs that this schedule stored
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    schedule: Option<String>,
    /// Only jobs of this workflow, by its id
    #[arg(long, value_name = "ID", conflicts_with = "schedule", value_parser = NonEmptyStringValueParser::new())]
    workflow: Option<String>,
    /// Only jobs whose latest error contains this, in upper or lower case
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    error_contains: Option<String>,
    /// Only jobs of this worker, by id or name
    #[arg(long, value_name = "WORKER", value_parser = NonEmptyStringValueParser::new())]
    worker: Option<String>,
    /// Only jobs created since: a time, or an age such as 2h
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    since: Option<String>,
    /// Only jobs created before: a time, or an age
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    before: Option<String>,
}

impl Filter {
    const fn is_empty(&self) -> bool {
        self.status.is_empty()
            && self.keys.is_empty()
            && self.schedule.is_none()
            && self.workflow.is_none()
            && self.error_contains.is_none()
            && self.action.is_none()
            && self.queue.is_none()
            && self.worker.is_none()
            && self.since.is_none()
            && self.before.is_none()
    }

    async fn query(
        &self,
        client: &Client,
    ) -> Result<Vec<outlast_cli_core::client::Query<'_>>, Failure> {
        let statuses = (!self.status.is_empty()).then(|| self.status.join(","));
        let mut query = vec![("status", statuses)];
        query.extend(self.texts(client).await?);
        query.extend(self.keys.iter().map(|pair| ("key", Some(pair.clone()))));
        Ok(query)
    }

    /// The filters that are one text each, by the names that the server knows them by.
    async fn texts(
        &self,
        client: &Client,
    ) -> Result<[outlast_cli_core::client::Query<'_>; 8], Failure> {
        let worker = match &self.worker {
            Some(worker) => Some(workers::resolve(client, worker).await?),
            None => None,
        };
        Ok([
            ("action_ref", self.action.clone()),
            ("queue", self.queue.clone()),
            ("worker", worker),
            ("created_after", self.since.clone()),
            ("created_before", self.before.clone()),
            ("error_contains", self.error_contains.clone()),
            ("schedule", self.schedule.clone()),
            ("workflow", self.workflow.clone()),
        ])
    }

    /// Refuses statuses in which an order is not allowed.
    fn check_statuses(&self, order: Order) -> Result<(), Failure> {
        let is_allowed = |status: &&String| order.allowed_by.contains(&status.as_str());
        let Some(status) = self.status.iter().find(|status| !is_allowed(status)) else {
            return Ok(());
        };
        let (verb, allowed) = (order.verb, order.allowed_by.join(", "));
        let message = format!("`{verb}` does not apply to jobs of status `{status}`");
        Err(Failure::usage(message).with_hint(format!("--status is one of {allowed}")))
    }
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,
    /// Most jobs to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue an earlier list, with the cursor it printed
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Job, by id, by how its id begins or ends, or @last
    id: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Ids {
    /// Jobs, by id, by how their ids begin or end, or @last
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Many {
    /// Jobs, by id, by how their ids begin or end, or @last; or all that the filters below select
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Every job that this applies to
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    care: Care,
    /// Do not follow the operation that changes what filters select; it goes on at the server
    #[arg(long)]
    detach: bool,
    /// Why, for the event log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// How careful a change is.
#[derive(Debug, Args)]
struct Care {
    /// Only show how many jobs would be changed, and some of them
    #[arg(long)]
    dry_run: bool,
    /// Do not ask, on a terminal, before jobs are changed that filters select
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Job, by id, by how its id begins or ends, or @last
    id: String,
    /// Follow until the job has ended
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(&args, environment).await,
        Command::Errors(args) => errors::run(&args, environment).await,
        Command::Show(args) => show::run(&args, environment).await,
        Command::Cancel(args) => many(&args, environment, CANCEL).await,
        Command::Retry(args) => many(&args, environment, RETRY).await,
        Command::Rerun(args) => ids(&args, environment, "rerun").await,
        Command::RunNow(args) => ids(&args, environment, "run-now").await,
        Command::Logs(args) => logs(&args, environment).await,
        Command::Wait(args) => wait::run(&args, environment).await,
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
    ("WAIT", waiting),
    ("ERROR", failure),
];

/// What went wrong, for a job that has ended so: one that is tried again is still to be judged.
fn failure(job: &Value) -> String {
    match text_at(job, "status").as_str() {
        "failed" | "timeout" | "abandoned" | "cancelled" => show::error(job),
        _ => "-".to_owned(),
    }
}

/// A key as it is typed.
fn key(given: &str) -> Result<String, String> {
    match given.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(given.to_owned()),
        _ => Err("a key is NAME=VALUE, such as tenant=42".to_owned()),
    }
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let filters = args.filter.query(&client).await?;
    let found = pages(&client, &filters, args.limit, args.cursor.clone()).await?;
    output::print_list(args.target.output, &found.items, COLUMNS)?;
    if found.items.is_empty() && !found.more && args.target.output == Format::Table {
        say(&format!("{}\n", nothing(&client, &args.filter).await));
    }
    if found.more && found.is_short {
        let cursor = found.cursor.unwrap_or_default();
        search::say_goes_on(found.items.len(), "--cursor", &cursor);
    } else if found.more {
        let total = found.total.map_or_else(|| "more".to_owned(), |total| total.to_string());
        let shown = found.items.len();
        let next = found.cursor.map_or_else(String::new, |at| format!(", --cursor {at} the next"));
        say(&format!("{shown} of {total} shown; --limit shows more{next}\n"));
    }
    Ok(Exit::Ok)
}

/// Why a list is empty.
async fn nothing(client: &Client, filter: &Filter) -> String {
    if let Some(queue) = &filter.queue
        && let Ok(Some(unknown)) = queues::unknown(client, queue).await
    {
        return format!("{}; {}", unknown.message, unknown.near);
    }
    if filter.is_empty() { "there are no jobs" } else { "no job matches" }.to_owned()
}

/// Items of a paginated list.
#[derive(Debug)]
pub(crate) struct Found {
    /// The items, at most as many as requested.
    pub(crate) items: Vec<Value>,
    /// Whether there are more.
    pub(crate) more: bool,
    /// Whether the search ended before there were as many as requested.
    pub(crate) is_short: bool,
    /// The total, if the server returns it.
    pub(crate) total: Option<u64>,
    /// Cursor of the next page.
    pub(crate) cursor: Option<String>,
}

/// Reads pages until there are `limit` items or no more.
async fn pages(
    client: &Client,
    filters: &[outlast_cli_core::client::Query<'_>],
    limit: u32,
    mut cursor: Option<String>,
) -> Result<Found, Failure> {
    let mut found =
        Found { items: Vec::new(), more: true, is_short: false, total: None, cursor: None };
    let mut empty = 0;
    while found.more {
        let missing = limit.saturating_sub(u32::try_from(found.items.len()).unwrap_or(u32::MAX));
        if missing == 0 {
            break;
        }
        let (items, total, next) = page(client, filters, missing, cursor.take()).await?;
        (found.total, cursor) = (total, next);
        // What is far apart comes in short pages, or empty ones.
        empty = if items.is_empty() { empty + 1 } else { 0 };
        found.more = cursor.is_some();
        if empty >= search::EMPTY_MAX {
            found.is_short = true;
            break;
        }
        found.items.extend(items);
    }
    found.cursor = cursor;
    Ok(found)
}

/// Reads one page: its items, the total and the cursor of the next page.
async fn page(
    client: &Client,
    filters: &[outlast_cli_core::client::Query<'_>],
    limit: u32,
    cursor: Option<String>,
) -> Result<(Vec<Value>, Option<u64>, Option<String>), Failure> {
    let mut query = filters.to_vec();
    query.push(("limit", Some(limit.min(PAGE_MAX).to_string())));
    query.push(("cursor", cursor));
    let page = client.get(&["api", "v1", "executions"], &query).await;
    let page = page.map_err(|failure| field_flags::in_flags(failure, &[]))?;
    let items = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
    let total = at(&page, "pagination.total").and_then(Value::as_u64);
    Ok((items, total, at(&page, "pagination.next_cursor").map(cursor_text)))
}

fn cursor_text(cursor: &Value) -> String {
    cursor.as_str().map_or_else(|| cursor.to_string(), ToOwned::to_owned)
}

/// When it runs next, or why it waits.
fn waiting(job: &Value) -> String {
    match at(job, "due") {
        Some(_) => format!("due {}", ago(job, "due")),
        None => text_at(job, "waiting_reason"),
    }
}

/// An order to jobs, one by one or all that match.
#[derive(Clone, Copy, Debug)]
struct Order {
    verb: &'static str,
    /// The statuses that allow it.
    allowed_by: &'static [&'static str],
}

const CANCEL: Order = Order { verb: "cancel", allowed_by: &["requested", "scheduled", "running"] };
const RETRY: Order = Order { verb: "retry", allowed_by: &["failed", "timeout", "abandoned"] };

/// Carries an order out.
struct OrderSender<'a> {
    client: &'a Client,
    verb: &'static str,
    batch: Batch,
}

impl OrderSender<'_> {
    /// Sends the order for one job. False if the server is unreachable, so that the others need
    /// not be tried.
    async fn give(&mut self, id: &str) -> bool {
        let path = ["api", "v1", "executions", id, self.verb];
        let answer = self.client.post(&path, &json!({})).await.map(output::data);
        let is_gone = answer.as_ref().is_err_and(|failure| failure.exit == Exit::Unreachable);
        self.batch.add(id, answer);
        !is_gone
    }
}

/// Applies it to every job, even if it fails for others.
async fn many(args: &Many, environment: &Environment, order: Order) -> Result<Exit, Failure> {
    one_way_of_naming(args, order)?;
    let client = args.target.client(environment)?;
    if args.ids.is_empty() {
        return bulk::run(args, &client, order).await;
    }
    let mut sender = OrderSender { client: &client, verb: order.verb, batch: Batch::default() };
    let mut shown = Vec::new();
    for given in &args.ids {
        match job_id::whole(&client, given).await {
            Ok(id) if args.care.dry_run => match allowed(&client, &id, order).await {
                Ok(job) => shown.push(job),
                Err(failure) => sender.batch.add(&id, Err(failure)),
            },
            Ok(id) => {
                if !sender.give(&id).await {
                    break;
                }
            }
            Err(failure) => sender.batch.add(given, Err(failure)),
        }
    }
    if args.care.dry_run {
        output::print_list(args.target.output, &shown, COLUMNS)?;
        let jobs = if shown.len() == 1 { "job" } else { "jobs" };
        say(&format!("{} {jobs}; nothing was changed\n", shown.len()));
        return sender.batch.end();
    }
    sender.batch.print(args.target.output, COLUMNS)?;
    sender.batch.end()
}

/// Jobs are named by id or selected by filters.
fn one_way_of_naming(args: &Many, order: Order) -> Result<(), Failure> {
    let verb = order.verb;
    let ways = [!args.ids.is_empty(), !args.filter.is_empty(), args.all];
    match ways.into_iter().filter(|is_used| *is_used).count() {
        1 => Ok(()),
        0 => {
            let hint = format!(
                "`outlast jobs {verb} ID`, filters, or --all: `outlast jobs {verb} --queue mail \
                 --dry-run` shows how many jobs it would be, and some of them"
            );
            Err(Failure::usage(format!("no job is named to {verb}")).with_hint(hint))
        }
        _ => {
            let message =
                "jobs are named by id or selected by filters, not both; --all is every job";
            Err(Failure::usage(message).with_hint("leave out all but one of these"))
        }
    }
}

async fn ids(args: &Ids, environment: &Environment, verb: &'static str) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let mut sender = OrderSender { client: &client, verb, batch: Batch::default() };
    for given in &args.ids {
        match job_id::whole(&client, given).await {
            Ok(id) => {
                if !sender.give(&id).await {
                    break;
                }
            }
            Err(failure) => sender.batch.add(given, Err(failure)),
        }
    }
    sender.batch.print(args.target.output, COLUMNS)?;
    sender.batch.end()
}

/// The job `id` as it is, if its status allows the order; else what the server would answer.
async fn allowed(client: &Client, id: &str, order: Order) -> Result<Value, Failure> {
    let job = output::data(client.get(&["api", "v1", "executions", id], &[]).await?);
    let status = text_at(&job, "status");
    if order.allowed_by.contains(&status.as_str()) {
        return Ok(job);
    }
    let (verb, statuses) = (order.verb, order.allowed_by.join(", "));
    let message = format!("job {id} is {status}; `{verb}` applies to jobs that are {statuses}");
    Err(Failure::new(Exit::Conflict, message))
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
    let mut follow = Follow::new(&client, &id, sink).output_alone();
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

#[cfg(test)]
mod tests;
