//! `outlast limits`: set, list, show who holds them, remove.

use clap::{ArgGroup, Args, Subcommand};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, ago, at, fields, say, text_at, when};
use outlast_wire::limit;
use serde_json::{Value, json};

use super::{Target, field_flags};
use crate::config::Environment;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set how many jobs may run at a time or start in a period; replaces the limit of that name
    Set(Set),
    /// List limits
    List(List),
    /// Show a limit, and which jobs hold it now
    Show(Show),
    /// Remove a limit
    Remove(One),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("scope").required(true))]
#[command(group = ArgGroup::new("bound").required(true).multiple(true))]
pub(crate) struct Set {
    /// Name of the limit
    name: String,
    /// Limit the jobs of this queue, together
    #[arg(long, value_name = "QUEUE", group = "scope")]
    queue: Option<String>,
    /// Limit the jobs of this type or action, together
    #[arg(long = "type", value_name = "TYPE", group = "scope")]
    job_type: Option<String>,
    /// Limit the jobs that have this key: those with the same value together
    #[arg(long, value_name = "KEY", group = "scope")]
    key: Option<String>,
    /// Most jobs that run at a time; 0 lets none start
    #[arg(long, value_name = "N", group = "bound")]
    concurrency: Option<u32>,
    /// Most jobs that start in any period, such as 100/1m
    #[arg(long, value_name = "N/PERIOD", group = "bound", value_parser = rate, allow_hyphen_values = true)]
    rate: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name of the limit
    name: String,
    /// Only this value of the key
    #[arg(long, value_name = "VALUE")]
    value: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Name of the limit
    name: String,
    #[command(flatten)]
    target: Target,
}

const LIMITS: [&str; 3] = ["api", "v1", "limits"];

/// Where the fields of a limit are given.
const FLAGS: &[(&str, &str)] =
    &[("name", "NAME"), ("concurrency", "--concurrency"), ("rate", "--rate"), ("value", "--value")];

/// Checks a rate.
fn rate(text: &str) -> Result<String, String> {
    match limit::rate(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("not {}", limit::RATE)),
    }
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::Set(args) => set(&args, environment).await,
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show(&args, environment).await,
        Command::Remove(args) => remove(&args, environment).await,
    }
}

async fn set(args: &Set, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let scopes = [("queue", &args.queue), ("type", &args.job_type), ("key", &args.key)];
    let scope = scopes.into_iter().find_map(|(scope, of)| of.as_ref().map(|of| (scope, of)));
    let (scope, of) = scope.unwrap_or(("queue", &args.name));
    let mut body = json!({"scope": scope, "of": of});
    if let Some(concurrency) = args.concurrency {
        body["concurrency"] = concurrency.into();
    }
    if let Some(rate) = &args.rate {
        body["rate"] = rate.as_str().into();
    }
    let answer = client.put(&path(&args.name), &body).await;
    let flag = format!("--{scope}");
    let flags = [FLAGS, &[("of", flag.as_str())]].concat();
    let answer = answer.map_err(|failure| field_flags::in_flags(failure, &flags))?;
    print(args.target.format(), answer)
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let answer = client.get(&LIMITS, &[]).await?;
    let limits = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    output::print_list(args.target.output, limits, COLUMNS)?;
    output::say_if_empty(args.target.output, limits, "there are no limits");
    Ok(Exit::Ok)
}

async fn show(args: &Show, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let answer = client.get(&path(&args.name), &[("value", args.value.clone())]).await;
    let answer = answer.map_err(|failure| field_flags::in_flags(failure, FLAGS))?;
    print(args.target.format(), answer)
}

async fn remove(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let answer = client.delete(&path(&args.name)).await;
    let answer = answer.map_err(|failure| field_flags::in_flags(failure, FLAGS))?;
    if args.target.format() != Format::Table {
        let answer = output::data(answer);
        output::print_one(args.target.format(), &answer, Value::to_string)?;
    }
    say(&format!("limit {} removed\n", args.name));
    Ok(Exit::Ok)
}

fn path(name: &str) -> [&str; 4] {
    let [api, version, limits] = LIMITS;
    [api, version, limits, name]
}

fn print(format: Format, answer: Value) -> Result<Exit, Failure> {
    let limit = output::data(answer);
    output::print_one(format, &limit, page)?;
    Ok(Exit::Ok)
}

const COLUMNS: &[Column] = &[
    ("LIMIT", |limit| text_at(limit, "name")),
    ("FOR", |limit| format!("{} {}", text_at(limit, "scope"), text_at(limit, "of"))),
    ("CONCURRENCY", |limit| text_at(limit, "concurrency")),
    ("RATE", |limit| text_at(limit, "rate")),
    ("IN FLIGHT", |limit| text_at(limit, "in_flight")),
    ("SET", |limit| ago(limit, "set_at").trim_end_matches(" ago").to_owned()),
    ("BY", by),
];

fn by(limit: &Value) -> String {
    let by = text_at(limit, "set_by");
    // That the configuration decides says more than which server set it.
    if limit["configured"] == true { "configuration".to_owned() } else { by }
}

const GATES: &[Column] = &[
    ("VALUE", |gate| text_at(gate, "value")),
    ("IN FLIGHT", |gate| match at(gate, "concurrency") {
        Some(most) => format!("{}/{most}", text_at(gate, "in_flight")),
        None => text_at(gate, "in_flight"),
    }),
    ("RATE OPENS", |gate| match at(gate, "rate_opens") {
        Some(_) => ago(gate, "rate_opens"),
        None => "-".to_owned(),
    }),
];

const HOLDERS: &[Column] = &[
    ("VALUE", |holder| text_at(holder, "value")),
    ("JOB", |holder| text_at(holder, "job")),
    ("WORKER", |holder| text_at(holder, "worker.name")),
    ("SINCE", |holder| ago(holder, "since").trim_end_matches(" ago").to_owned()),
];

fn page(limit: &Value) -> String {
    let text = |path: &str| text_at(limit, path);
    let each = if text("scope") == "key" { ", each value for itself" } else { "" };
    let configured =
        if limit["configured"] == true { "yes: the API does not change it" } else { "-" };
    let mut page = fields(&[
        ("name", text("name")),
        ("for", format!("{} {}{each}", text("scope"), text("of"))),
        ("concurrency", text("concurrency")),
        ("rate", text("rate")),
        ("configured", configured.to_owned()),
        ("set", when(limit, "set_at")),
        ("by", text("set_by")),
    ]);
    let gates = limit.get("in_use").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let holders = holders(gates);
    for (rows, columns) in [(gates, GATES), (holders.as_slice(), HOLDERS)] {
        if !rows.is_empty() {
            page.push('\n');
            page.push_str(&Table::of(rows, columns).to_string());
        }
    }
    if limit["more"] == true {
        page.push_str("\nThere are more than these; --value shows one value.\n");
    }
    page
}

/// Who holds the gates, each with the value of its gate.
fn holders(gates: &[Value]) -> Vec<Value> {
    let of = |gate: &Value| {
        let holders = gate.get("holders").and_then(Value::as_array).cloned().unwrap_or_default();
        let value = gate.get("value").cloned().unwrap_or_default();
        holders.into_iter().map(move |mut holder| {
            holder["value"] = value.clone();
            holder
        })
    };
    gates.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn refusal(words: &[&str]) -> String {
        let line = Line::try_parse_from([&["limits", "set", "tenant"], words].concat());
        line.expect_err("a refusal").to_string()
    }

    #[test]
    fn limit_needs_one_scope_and_a_bound() {
        assert!(refusal(&["--concurrency", "5"]).contains("--queue <QUEUE>"));
        assert!(refusal(&["--key", "a"]).contains("--concurrency <N>"));
        assert!(refusal(&["--key", "a", "--queue", "b", "--concurrency", "5"]).contains("cannot"));
        let wrong = refusal(&["--key", "a", "--rate", "fast"]);
        assert!(wrong.contains("such as `100/1m` or `5/1s`"), "{wrong}");
        let negative = refusal(&["--key", "a", "--rate", "-1/1m"]);
        assert!(negative.contains("such as `100/1m` or `5/1s`"), "{negative}");
        let both = ["limits", "set", "t", "--key", "a", "--concurrency", "0", "--rate", "1/1s"];
        Line::try_parse_from(both).unwrap();
    }

    fn limit() -> Value {
        let worker = json!({"id": "01a1fcae-2d50-72c9-9c67-56e57a9c8e01", "name": "worker-1"});
        let holder = json!({"job": "01a1fcae-2d50-72c9-9c67-56e57a9c8e02", "worker": worker,
            "since": "2026-11-22T13:46:21.211Z"});
        json!({"name": "tenant", "scope": "key", "of": "tenant", "concurrency": 5,
            "rate": "100/1m", "configured": false, "in_flight": null,
            "set_by": "api: anonymous (outlast-cli/0.1.0)", "set_at": "2026-11-22T13:46:21.211Z",
            "in_use": [{"value": "42", "in_flight": 1, "concurrency": 5, "rate_opens": null,
                "holders": [holder]}]})
    }

    #[test]
    fn tables_fit_a_hundred_columns() {
        for shown in [page(&limit()), Table::of(&[limit()], COLUMNS).to_string()] {
            assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        }
    }

    #[test]
    fn page_names_who_holds_which_value() {
        let shown = page(&limit());
        let lines: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["42", "1/5"]), "{shown}");
        let holder = ["42", "01a1fcae-2d50-72c9-9c67-56e57a9c8e02", "worker-1"];
        assert!(lines.iter().any(|line| line.starts_with(&holder)), "{shown}");
    }

    #[test]
    fn page_says_that_there_is_more() {
        let mut limit = limit();
        assert!(!page(&limit).contains("more than these"));
        limit["more"] = true.into();
        assert!(page(&limit).ends_with("There are more than these; --value shows one value.\n"));
    }

    #[test]
    fn limit_of_the_configuration_says_so() {
        let mut limit = limit();
        limit["configured"] = true.into();
        assert_eq!(by(&limit), "configuration");
        assert!(page(&limit).contains("the API does not change it"));
    }
}
