//! `outlast dead-letters`: jobs that used up a budget and are kept for an operator.

use clap::{ArgGroup, Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, fields, say, text_at, when};
use serde_json::{Value, json};

use super::batch::Batch;
use super::job_id;
use super::jobs::show::reason_in_words;
use super::{Target, field_flags};
use crate::config::Environment;
use crate::output::{self, Format};

/// Dead letters per page.
const PAGE: usize = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List dead letters
    List(List),
    /// Show one dead letter
    Show(One),
    /// Retry jobs with fresh budgets
    Retry(Many),
    /// Remove dead letters permanently
    Purge(Purge),
}

#[derive(Debug, Args)]
pub(crate) struct List {
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
    /// Jobs, by id, by how their ids begin or end, or @last
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true))]
pub(crate) struct Purge {
    /// Jobs, by id, by how their ids begin or end, or @last
    #[arg(value_name = "ID", group = "which")]
    ids: Vec<String>,
    /// All dead letters
    #[arg(long, group = "which")]
    all: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show(&args, environment).await,
        Command::Retry(args) => retry(&args, environment).await,
        Command::Purge(args) => purge(&args, environment).await,
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
    limit: usize,
    cursor: Option<String>,
) -> Result<(Vec<Value>, Option<u64>, Option<String>), Failure> {
    let query = [("limit", Some(limit.min(PAGE).to_string())), ("cursor", cursor)];
    let answer = client.get(&["ojs", "v1", "dead-letter"], &query).await;
    let answer = answer.map_err(|failure| field_flags::in_flags(failure, &[]))?;
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
        let (letters, total, next) = page_of(&client, missing, cursor).await?;
        shown.extend(letters.into_iter().take(missing));
        cursor = next;
        if cursor.is_none() || shown.len() >= args.limit {
            break total;
        }
    };
    output::print_list(args.target.output, &shown, COLUMNS)?;
    output::say_if_empty(args.target.output, &shown, "there are no dead letters");
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

async fn retry(args: &Many, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let mut batch = Batch::default();
    for id in &args.ids {
        let answer = match job_id::whole(&client, id).await {
            Ok(id) => client.post(&["ojs", "v1", "dead-letter", &id, "retry"], &json!({})).await,
            Err(failure) => Err(failure),
        };
        batch.add(id, answer.map(|answer| answer.get("job").cloned().unwrap_or(answer)));
    }
    batch.print(args.target.output, COLUMNS)?;
    batch.end()
}

async fn purge(args: &Purge, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let mut removed = 0_usize;
    let mut batch = Batch::default();
    if args.all {
        // Letters that others remove meanwhile are as good as removed, so a page that only holds
        // such ones still brings the end nearer.
        loop {
            let (page, ..) = page_of(&client, PAGE, None).await?;
            if page.is_empty() {
                break;
            }
            for letter in &page {
                removed += remove(&client, &text_at(letter, "id")).await?;
            }
        }
    } else {
        for id in &args.ids {
            let answer = match job_id::whole(&client, id).await {
                Ok(id) => client.delete(&["ojs", "v1", "dead-letter", &id]).await,
                Err(failure) => Err(failure),
            };
            batch.add(id, answer);
        }
        removed = batch.count();
    }
    if args.target.format() != Format::Table {
        output::print_one(args.target.format(), &json!({"removed": removed}), Value::to_string)?;
    }
    say(&format!("{removed} dead letters removed\n"));
    batch.end()
}

async fn remove(client: &Client, id: &str) -> Result<usize, Failure> {
    match client.delete(&["ojs", "v1", "dead-letter", id]).await {
        Ok(_) => Ok(1),
        Err(failure) if failure.exit == Exit::NotFound => Ok(0),
        Err(failure) => Err(failure),
    }
}
