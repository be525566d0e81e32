//! `outlast dead-letters`: jobs that used up a budget and are kept for an operator.

mod bulk;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, fields, say, text_at, when};
use serde_json::Value;

use super::job_id;
use super::jobs::show::reason_in_words;
use super::{Target, field_flags};
use crate::config::Environment;
use crate::output;

/// Dead letters per page.
const PAGE: usize = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List dead letters
    List(List),
    /// Show one dead letter
    Show(One),
    /// Retry jobs with fresh budgets, by id or by filter
    Retry(Many),
    /// Remove dead letters permanently, by id or by filter
    Purge(Many),
}

/// Selects dead letters.
#[derive(Debug, Args)]
struct Filter {
    /// Only this queue
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    queue: Option<String>,
    /// Only this action or job type
    #[arg(long = "type", value_name = "TYPE", alias = "action",
          value_parser = NonEmptyStringValueParser::new())]
    job_type: Option<String>,
    /// Only for this reason
    #[arg(long, value_name = "REASON", value_parser = ["exhausted", "poison_suspect", "at_most_once"])]
    reason: Option<String>,
    /// Only those dead-lettered since: a time, or an age such as 2h
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    since: Option<String>,
    /// Only those dead-lettered before: a time, or an age
    #[arg(long, value_name = "TIME", value_parser = NonEmptyStringValueParser::new())]
    until: Option<String>,
    /// Only those whose latest error contains this, in upper or lower case
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    error_contains: Option<String>,
}

impl Filter {
    /// The filters that are set, by the names that the API gives them.
    fn set(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let all = [
            ("queue", &self.queue),
            ("type", &self.job_type),
            ("reason", &self.reason),
            ("since", &self.since),
            ("until", &self.until),
            ("error_contains", &self.error_contains),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    }

    fn is_empty(&self) -> bool {
        self.set().next().is_none()
    }
}

/// The flags of filters, by the fields that the API knows them by.
const FLAGS: &[(&str, &str)] =
    &[("type", "--type"), ("reason", "--reason"), ("since", "--since"), ("until", "--until")];

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,
    /// Most dead letters to list
    #[arg(long, default_value_t = 50)]
    limit: usize,
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
pub(crate) struct Many {
    /// Jobs, by id, by how their ids begin or end, or @last; or all that the filters below select
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// All dead letters
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    care: Care,
    #[command(flatten)]
    target: Target,
}

/// How careful a change is.
#[derive(Debug, Args)]
struct Care {
    /// Only show which dead letters it would be
    #[arg(long)]
    dry_run: bool,
    /// Do not ask, on a terminal, before dead letters are changed that are not named by id
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show(&args, environment).await,
        Command::Retry(args) => bulk::run(&args, environment, &bulk::RETRY).await,
        Command::Purge(args) => bulk::run(&args, environment, &bulk::PURGE).await,
    }
}

const COLUMNS: &[Column] = &[
    ("ID", |letter| text_at(letter, "id")),
    ("ACTION", |letter| text_at(letter, "type")),
    ("QUEUE", |letter| text_at(letter, "queue")),
    ("ATTEMPT", |letter| text_at(letter, "attempt")),
    ("SINCE", |letter| ago(letter, since(letter)).trim_end_matches(" ago").to_owned()),
    ("REASON", |letter| text_at(letter, "dead_letter_reason")),
    ("ERROR", error),
];

/// Jobs that ended without an attempt have no completion time.
fn since(letter: &Value) -> &'static str {
    let known = ["dead_lettered_at", "discarded_at", "completed_at", "created_at"];
    known.into_iter().find(|name| at(letter, name).is_some()).unwrap_or("created_at")
}

fn error(letter: &Value) -> String {
    let places = ["error.message", "error"];
    let path = places.into_iter().find(|path| at(letter, path).is_some()).unwrap_or("error");
    text_at(letter, path)
}

/// A page of dead letters: the letters, how many there are in all, and the next page's cursor.
async fn page_of(
    client: &Client,
    filter: &Filter,
    limit: usize,
    cursor: Option<String>,
) -> Result<(Vec<Value>, Option<u64>, Option<String>), Failure> {
    let mut query: Vec<_> = filter.set().map(|(name, value)| (name, Some(value.clone()))).collect();
    query.extend([("limit", Some(limit.min(PAGE).to_string())), ("cursor", cursor)]);
    let answer = client.get(&["ojs", "v1", "dead-letter"], &query).await;
    let answer = answer.map_err(|failure| field_flags::in_flags(failure, FLAGS))?;
    let letters = answer.get("jobs").and_then(Value::as_array).cloned().unwrap_or_default();
    let total = at(&answer, "pagination.total").and_then(Value::as_u64);
    let next = at(&answer, "pagination.next_cursor").and_then(Value::as_str);
    Ok((letters, total, next.map(ToOwned::to_owned)))
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let (mut shown, mut cursor) = (Vec::new(), None);
    let total = loop {
        let missing = args.limit.saturating_sub(shown.len());
        let (letters, total, next) = page_of(&client, &args.filter, missing, cursor).await?;
        shown.extend(letters.into_iter().take(missing));
        cursor = next;
        if cursor.is_none() || shown.len() >= args.limit {
            break total;
        }
    };
    output::print_list(args.target.output, &shown, COLUMNS)?;
    let none =
        if args.filter.is_empty() { "there are no dead letters" } else { "no dead letter matches" };
    output::say_if_empty(args.target.output, &shown, none);
    if cursor.is_some() {
        let total = total.map_or_else(|| "more".to_owned(), |total| total.to_string());
        say(&format!("{} of {total} shown; --limit shows more\n", shown.len()));
    }
    Ok(Exit::Ok)
}

async fn show(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = job_id::whole(&client, &args.id).await?;
    let answer = client.get(&["ojs", "v1", "dead-letter", &id], &[]).await?;
    let letter = answer.get("job").cloned().unwrap_or(answer);
    output::print_one(args.target.output, &letter, page)?;
    Ok(Exit::Ok)
}

fn page(letter: &Value) -> String {
    let text = |path: &str| text_at(letter, path);
    fields(&[
        ("id", text("id")),
        ("action", text("type")),
        ("reason", reason_in_words(&text("dead_letter_reason")).to_owned()),
        ("queue", text("queue")),
        ("state", text("state")),
        ("attempt", text("attempt")),
        ("arguments", text("args")),
        ("created", when(letter, "created_at")),
        ("since", when(letter, since(letter))),
        ("error", error(letter)),
        ("all errors", text("errors")),
    ])
}
