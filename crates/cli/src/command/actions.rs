//! `outlast actions`: what a server can run, what each takes, and what happens to its jobs.

mod policy;

use std::fmt::Write;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, at, escape, fields, text_at};
use serde_json::Value;

use super::Target;
use crate::command::resources::resources;
use crate::config::Environment;
use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List actions
    List(List),
    /// Show one action: its parameters and how it runs
    Show(Show),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only this pack
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pack: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Action, such as core.echo
    action: String,
    #[command(flatten)]
    target: Target,
}

/// What a list has room for; `show` has the rest.
fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first)
}

const COLUMNS: &[Column] = &[
    ("ACTION", |action| text_at(action, "ref")),
    ("RUNTIME", |action| text_at(action, "runner_type")),
    ("ENABLED", |action| text_at(action, "enabled")),
    ("DESCRIPTION", |action| first_sentence(&text_at(action, "description")).to_owned()),
];

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => {
            let client = args.target.client(environment)?;
            let answer = client.get(&["api", "v1", "actions"], &[("pack", args.pack)]).await?;
            let found = answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
            output::print_list(args.target.output, &found, COLUMNS)?;
            output::say_if_empty(args.target.output, &found, "there are no actions");
        }
        Command::Show(args) => {
            let client = args.target.client(environment)?;
            let answer = client.get(&["api", "v1", "actions", &args.action], &[]).await?;
            let mut action = output::data(answer);
            let limits = client.get_list(&["api", "v1", "limits"]).await;
            action["limits"] =
                limits.into_iter().filter(|it| policy::applies(it, &action)).collect();
            output::print_one(args.target.output, &action, page)?;
        }
    }
    Ok(Exit::Ok)
}

fn page(action: &Value) -> String {
    let text = |path: &str| text_at(action, path);
    let mut page = fields(&[
        ("action", text("ref")),
        ("label", text("label")),
        ("description", text("description")),
        ("runtime", text("runner_type")),
        ("interpreter", text("interpreter")),
        ("enabled", text("enabled")),
        ("queue", text("queue")),
        ("priority", text("priority")),
        ("limits", policy::limits(action)),
        ("time limit", policy::time_limit(action)),
        ("retries", policy::retries(action)),
        ("interruptible", text("interruptible")),
        ("on drain", text("on_drain")),
        ("resources", resources(action)),
        ("overlap", text("overlap")),
        ("packs", text("packs")),
        ("labels", text("required_labels")),
        ("requires", text("requires")),
        ("prefers", text("prefers")),
        ("keys", text("keys")),
        ("secrets", text("secrets")),
        ("delivery", text("parameter_delivery")),
        ("output", text("output_format")),
    ]);
    let mut table = Table::new(&["PARAMETER", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION"]);
    let required = at(action, "parameters.required").and_then(Value::as_array);
    let named = at(action, "parameters.properties").and_then(Value::as_object);
    for (name, about) in named.into_iter().flatten() {
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
        let required = if is_required { "yes" } else { "no" };
        let cell = |path: &str| text_at(about, path);
        let (kind, default) = match about.get("secret").and_then(Value::as_bool) {
            Some(true) if about.get("default").is_some() => {
                (cell("type") + ", secret", "***".into())
            }
            Some(true) => (cell("type") + ", secret", cell("default")),
            Some(false) | None => (cell("type"), cell("default")),
        };
        let cells = [escape(name), kind, required.to_owned(), default];
        table.row(cells.into_iter().chain([cell("description")]).collect());
    }
    if named.is_some_and(|named| !named.is_empty()) {
        // Writing to a String cannot fail.
        write!(page, "\n{table}").unwrap_or_default();
    }
    page
}
