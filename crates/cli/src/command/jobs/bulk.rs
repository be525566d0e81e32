//! `outlast jobs cancel|retry` of all jobs that filters select: an operation of the server.

use std::io::IsTerminal as _;

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, say, text_at};
use outlast_core::operation::typed;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Filter, Many, Order, nothing};
use crate::command::batch::{answered, confirm};
use crate::command::field_flags;
use crate::command::operations::{OPERATIONS, follow, left_running};
use crate::output::{self, Format};

/// The flags that set the fields of a request.
const FLAGS: &[(&str, &str)] = &[
    ("type", "--action"),
    ("keys", "--key"),
    ("schedule", "--schedule"),
    ("workflow", "--workflow"),
    ("reason", "--reason"),
    ("filter", "a filter"),
];

const COLUMNS: &[Column] = &[
    ("ID", |job| text_at(job, "id")),
    ("ACTION", |job| text_at(job, "action_ref")),
    ("STATUS", |job| text_at(job, "status")),
    ("QUEUE", |job| text_at(job, "queue")),
    ("AGE", |job| ago(job, "created").trim_end_matches(" ago").to_owned()),
    ("ERROR", |job| text_at(job, "error")),
];

/// Counts the jobs, or begins an operation on them and follows it.
pub(super) async fn run(args: &Many, client: &Client, order: Order) -> Result<Exit, Failure> {
    args.filter.check_statuses(order)?;
    let mut body = json!({"kind": order.verb, "filter": filter(&args.filter, client).await?});
    if let Some(reason) = &args.reason {
        body["reason"] = json!(reason);
    }
    if args.care.dry_run {
        let counted = send(client, &with(&body, "dry_run", json!(true))).await?;
        return preview(args, client, &counted).await;
    }
    let is_asked = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !args.care.yes && !is_asked && body["filter"]["all"] == json!(true) {
        let message = format!(
            "--all is every job, and no one is there to be asked before the {}",
            order.verb
        );
        return Err(Failure::usage(message).with_hint("add --yes, or filters such as --queue mail"));
    }
    if is_asked && !args.care.yes {
        let counted = send(client, &with(&body, "dry_run", json!(true))).await?;
        if matched(&counted) == 0 && is_exact(&counted) {
            if args.target.output != Format::Table {
                output::print_one(args.target.output, &counted, |_| String::new())?;
            }
            say(&format!("{}\n", nothing(client, &args.filter).await));
            return Ok(Exit::Ok);
        }
        ask(&counted, order)?;
        // No job that came later is touched.
        body["expected"] = counted["matched"].clone();
        body["as_of"] = counted["as_of"].clone();
    }
    let begun = begin(client, &body).await?;
    let Some(id) = at(&begun, "id").and_then(Value::as_str) else {
        let message = "the server began the operation but did not return its id";
        return Err(Failure::failed(message));
    };
    if args.detach {
        output::print_one(args.target.output, &begun, |_| format!("{id}\n"))?;
        say(&format!("{}\n", left_running(id)));
        return Ok(Exit::Ok);
    }
    follow(client, id, &args.target).await
}

fn with(body: &Value, name: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[name] = value;
    body
}

async fn send(client: &Client, body: &Value) -> Result<Value, Failure> {
    taken(client.post(&OPERATIONS, body).await)
}

/// Begins the operation once, also if the answer is lost.
async fn begin(client: &Client, body: &Value) -> Result<Value, Failure> {
    let key = Uuid::new_v4().to_string();
    let answer = match client.post_once(&OPERATIONS, body, Some(&key)).await {
        Err(failure) if failure.exit == Exit::Unreachable => {
            client.post_once(&OPERATIONS, body, Some(&key)).await
        }
        answer => answer,
    };
    let hint = "it may have begun: `outlast operations list`";
    taken(answer.map_err(|failure| match failure.exit {
        Exit::Unreachable => failure.with_hint(hint),
        _ => failure,
    }))
}

fn taken(answer: Result<Value, Failure>) -> Result<Value, Failure> {
    Ok(output::data(answer.map_err(|failure| field_flags::in_flags(failure, FLAGS))?))
}

/// The filters as the server takes them.
async fn filter(given: &Filter, client: &Client) -> Result<Value, Failure> {
    let mut filter = Map::new();
    for (name, value) in given.texts(client).await? {
        if let Some(value) = value {
            filter.insert(name.to_owned(), json!(value));
        }
    }
    if !given.status.is_empty() {
        filter.insert("status".to_owned(), json!(given.status));
    }
    let mut keys = Map::new();
    for (name, value) in given.keys.iter().filter_map(|pair| pair.split_once('=')) {
        let before = keys.insert(name.to_owned(), json!(value));
        if before.is_some_and(|before| before != json!(value)) {
            let message = format!("--key {name} is given with two values, and a job has one");
            return Err(Failure::usage(message).with_hint("run the command once for each"));
        }
    }
    if !keys.is_empty() {
        filter.insert("keys".to_owned(), Value::Object(keys));
    }
    if filter.is_empty() {
        filter.insert("all".to_owned(), json!(true));
    }
    Ok(Value::Object(filter))
}

fn matched(counted: &Value) -> u64 {
    at(counted, "matched").and_then(Value::as_u64).unwrap_or_default()
}

fn is_exact(counted: &Value) -> bool {
    at(counted, "at_least") != Some(&Value::Bool(true))
}

/// How many match: `at least 10000 jobs`.
fn count(counted: &Value) -> String {
    let least = if is_exact(counted) { "" } else { "at least " };
    let matched = matched(counted);
    format!("{least}{matched} job{}", if matched == 1 { "" } else { "s" })
}

fn examples(counted: &Value) -> Vec<Value> {
    at(counted, "examples").and_then(Value::as_array).cloned().unwrap_or_default()
}

async fn preview(args: &Many, client: &Client, counted: &Value) -> Result<Exit, Failure> {
    let shown = examples(counted);
    match args.target.output {
        Format::Table => output::print_list(Format::Table, &shown, COLUMNS)?,
        format => output::print_one(format, counted, |_| String::new())?,
    }
    if shown.is_empty() && is_exact(counted) {
        say(&format!("{}\n", nothing(client, &args.filter).await));
        return Ok(Exit::Ok);
    }
    let some = match u64::try_from(shown.len()).is_ok_and(|shown| matched(counted) > shown) {
        true => format!(", of which {} are shown", shown.len()),
        false => String::new(),
    };
    say(&format!("{}{some}; nothing was changed\n", count(counted)));
    Ok(Exit::Ok)
}

/// Asks whether to go on; with many jobs, the answer is their number, or `all` if not all were counted.
fn ask(counted: &Value, order: Order) -> Result<(), Failure> {
    let question = format!("{} {}, {}?", order.verb, count(counted), text_at(counted, "selection"));
    let Some(word) = typed(matched(counted), is_exact(counted)) else { return confirm(&question) };
    say(&format!("{question} Type {word} to go on: "));
    answered(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_says_whether_it_is_all() {
        let of = |matched: u64, at_least: bool| {
            count(&json!({"matched": matched, "at_least": at_least}))
        };
        assert_eq!(of(1, false), "1 job");
        assert_eq!(of(1204, false), "1204 jobs");
        assert_eq!(of(10_000, true), "at least 10000 jobs");
    }
}
