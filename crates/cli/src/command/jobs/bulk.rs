//! `outlast jobs cancel|retry` of all jobs that filters select: an operation of the server.

use std::io::IsTerminal as _;

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, say, text_at};
use outlast_core::limits::OPERATION_TYPED_ABOVE;
use serde_json::{Map, Value, json};

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
    if is_asked && !args.care.yes {
        let counted = send(client, &with(&body, "dry_run", json!(true))).await?;
        if matched(&counted) == 0 {
            say(&format!("{}\n", nothing(client, &args.filter).await));
            return Ok(Exit::Ok);
        }
        ask(&counted, order)?;
        // No job that came later is touched.
        body["expected"] = counted["matched"].clone();
        body["as_of"] = counted["as_of"].clone();
    }
    let begun = send(client, &body).await?;
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
    let answer = client.post(&OPERATIONS, body).await;
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
    let pairs = given.keys.iter().filter_map(|pair| pair.split_once('='));
    let keys: Map<String, Value> =
        pairs.map(|(name, value)| (name.to_owned(), json!(value))).collect();
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

/// How many match: `at least 10000 jobs`.
fn count(counted: &Value) -> String {
    let is_part = at(counted, "at_least") == Some(&Value::Bool(true));
    let least = if is_part { "at least " } else { "" };
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
    if shown.is_empty() {
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

/// Asks whether to go on; with many jobs, the answer is their number.
fn ask(counted: &Value, order: Order) -> Result<(), Failure> {
    let question = format!("{} {}, {}?", order.verb, count(counted), text_at(counted, "selection"));
    let matched = matched(counted);
    if matched <= OPERATION_TYPED_ABOVE {
        return confirm(&question);
    }
    say(&format!("{question} Type {matched} to go on: "));
    answered(&matched.to_string())
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
