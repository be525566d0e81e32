//! `outlast queues`: list, pause, resume, stats.

use clap::{Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, escape, text_at};
use outlast_wire::nearest::nearest;
use serde_json::{Value, json};

use super::Target;
use crate::config::Environment;
use crate::output;

/// Most queues that are named in place of one that does not exist.
const NAMED_MAX: usize = 10;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List queues
    List(List),
    /// Pause a queue: it accepts jobs, but none are started
    Pause(Pause),
    /// Resume a queue
    Resume(One),
    /// Count the jobs of a queue by state
    Stats(One),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Queue
    queue: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    one: One,
    /// Even if the queue has never had a job
    #[arg(long)]
    create: bool,
}

const COLUMNS: &[Column] = &[
    ("QUEUE", |queue| text_at(queue, "name")),
    ("STATUS", |queue| {
        let paused = queue.get("paused").and_then(Value::as_bool).unwrap_or(false);
        if paused { "paused" } else { "active" }.to_owned()
    }),
    ("AVAILABLE", |queue| text_at(queue, "available")),
    ("DELAYED", |queue| text_at(queue, "scheduled")),
    ("RETRYING", |queue| text_at(queue, "retryable")),
    ("ACTIVE", |queue| text_at(queue, "active")),
    ("COMPLETED", |queue| text_at(queue, "completed")),
    ("DISCARDED", |queue| text_at(queue, "discarded")),
];

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    let (target, answer) = match &command {
        Command::List(args) => {
            let client = args.target.client(environment)?;
            (&args.target, client.get(&["ojs", "v1", "queues"], &[]).await?)
        }
        Command::Pause(Pause { one, create }) => {
            if !create {
                check_known(one, environment).await?;
            }
            (&one.target, order(one, environment, "pause").await?)
        }
        Command::Resume(args) => (&args.target, order(args, environment, "resume").await?),
        Command::Stats(args) => {
            let client = args.target.client(environment)?;
            let path = ["ojs", "v1", "queues", &args.queue, "stats"];
            (&args.target, client.get(&path, &[]).await?)
        }
    };
    match answer.get("queues").and_then(Value::as_array) {
        Some(queues) => {
            let queues: Vec<Value> = queues.iter().map(named).collect();
            output::print_list(target.output, &queues, COLUMNS)?;
        }
        None => {
            let queue = answer.get("queue").cloned().unwrap_or(answer);
            output::print_one(target.output, &queue, |queue| {
                Table::of(std::slice::from_ref(queue), COLUMNS).to_string()
            })?;
        }
    }
    Ok(Exit::Ok)
}

/// A queue of which only the name is known, in the form of the others.
fn named(queue: &Value) -> Value {
    if queue.is_string() { json!({"name": queue}) } else { queue.clone() }
}

/// Refuses a queue that the server does not know: it is most likely misspelled.
async fn check_known(args: &One, environment: &Environment) -> Result<(), Failure> {
    let client = args.target.client(environment)?;
    let Some(Unknown { message, near }) = unknown(&client, &args.queue).await? else {
        return Ok(());
    };
    let joint = if near.ends_with('?') { "" } else { ";" };
    let hint = format!("{near}{joint} --create pauses it all the same");
    Err(Failure::new(Exit::NotFound, message).with_hint(hint))
}

/// A queue that the server does not know.
pub(super) struct Unknown {
    /// What is wrong with its name, for a reader.
    pub(super) message: String,
    /// Which queue may be meant.
    pub(super) near: String,
}

/// Looks a queue up; `None` if the server knows it.
pub(super) async fn unknown(client: &Client, wanted: &str) -> Result<Option<Unknown>, Failure> {
    let answer = client.get(&["ojs", "v1", "queues"], &[]).await?;
    let queues = answer.get("queues").and_then(Value::as_array).cloned().unwrap_or_default();
    let names: Vec<String> = queues.iter().map(|queue| text_at(&named(queue), "name")).collect();
    if names.iter().any(|name| name == wanted) {
        return Ok(None);
    }
    let near = match nearest(wanted, &names, 0.7) {
        Some(name) => format!("did you mean `{name}`?"),
        None if names.is_empty() => "there are no queues yet".to_owned(),
        None if names.len() > NAMED_MAX => "`outlast queues list` shows all".to_owned(),
        None => format!("known queues are {}", names.join(", ")),
    };
    Ok(Some(Unknown { message: format!("there is no queue `{}`", escape(wanted)), near }))
}

async fn order(args: &One, environment: &Environment, verb: &str) -> Result<Value, Failure> {
    let client = args.target.client(environment)?;
    client.post(&["ojs", "v1", "queues", &args.queue, verb], &json!({})).await
}
