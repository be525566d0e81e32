//! `outlast cron`: schedules: add, list, show, remove, pause, resume, trigger, and when they fire.

mod add;
mod next;

use clap::{Args, Subcommand};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, escape, fields, say, text_at, when};
use serde_json::{Value, json};

use super::{Target, field_flags};
use crate::config::Environment;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a schedule, or replace the one of that name
    Add(Box<add::Add>),
    /// List schedules
    List(List),
    /// Show a schedule: when it fires next, what became of its last fires
    Show(One),
    /// Remove a schedule; its jobs stay
    Remove(One),
    /// Stop a schedule from firing until it is resumed
    Pause(Pause),
    /// Let a paused schedule fire again; what it missed stays missed
    Resume(One),
    /// Fire a schedule now, beside its times
    Trigger(One),
    /// Show when a schedule or an expression fires next
    Next(next::Next),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Name of the schedule
    name: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    /// Name of the schedule
    name: String,
    /// Why, for those who find it paused
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    target: Target,
}

const SCHEDULES: [&str; 3] = ["api", "v1", "schedules"];

/// Where the fields of a schedule are given.
const FLAGS: &[(&str, &str)] = &[
    ("name", "NAME"),
    ("cron", "EXPRESSION"),
    ("time_zone", "--time-zone"),
    ("overlap", "--overlap"),
    ("catch_up", "--catch-up"),
    ("jitter", "--jitter"),
    ("until", "--until"),
    ("reason", "--reason"),
];

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::Add(args) => add::run(&args, environment).await,
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show(&args, environment).await,
        Command::Remove(args) => remove(&args, environment).await,
        Command::Pause(args) => pause(&args, environment).await,
        Command::Resume(args) => resume(&args, environment).await,
        Command::Trigger(args) => trigger(&args, environment).await,
        Command::Next(args) => next::run(&args, environment).await,
    }
}

fn path(name: &str) -> [&str; 4] {
    let [api, version, schedules] = SCHEDULES;
    [api, version, schedules, name]
}

/// Names flags in place of fields.
fn in_flags(failure: Failure) -> Failure {
    field_flags::in_flags(failure, &[FLAGS, field_flags::NEW_JOB].concat())
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let query = [("limit", Some("1000".to_owned())), ("cursor", cursor)];
        let answer = client.get(&SCHEDULES, &query).await?;
        let page = answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        all.extend(page);
        cursor = at(&answer, "pagination.next_cursor").and_then(Value::as_str).map(Into::into);
        if cursor.is_none() {
            break;
        }
    }
    output::print_list(args.target.output, &all, COLUMNS)?;
    output::say_if_empty(args.target.output, &all, "there are no schedules");
    Ok(Exit::Ok)
}

async fn show(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    print(args.target.format(), client.get(&path(&args.name), &[]).await.map_err(in_flags)?)
}

async fn remove(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let answer = client.delete(&path(&args.name)).await.map_err(in_flags)?;
    if args.target.format() != Format::Table {
        output::print_one(args.target.format(), &output::data(answer), Value::to_string)?;
    }
    say(&format!("schedule {} removed; its jobs stay\n", args.name));
    Ok(Exit::Ok)
}

async fn pause(args: &Pause, environment: &Environment) -> Result<Exit, Failure> {
    let body = args.reason.as_ref().map_or(json!({}), |reason| json!({"reason": reason}));
    let client = args.target.client(environment)?;
    let [api, version, schedules, name] = path(&args.name);
    let path = [api, version, schedules, name, "pause"];
    print(args.target.format(), client.post(&path, &body).await.map_err(in_flags)?)
}

async fn resume(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let [api, version, schedules, name] = path(&args.name);
    let path = [api, version, schedules, name, "resume"];
    print(args.target.format(), client.post(&path, &json!({})).await.map_err(in_flags)?)
}

async fn trigger(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let [api, version, schedules, name] = path(&args.name);
    let path = [api, version, schedules, name, "trigger"];
    let fired = output::data(client.post(&path, &json!({})).await.map_err(in_flags)?);
    output::print_one(args.target.format(), &fired, |fired| {
        let waits = if fired["waits"] == true { ", which waits for an earlier one" } else { "" };
        format!("{}{waits}\n", stored(fired, ""))
    })?;
    Ok(Exit::Ok)
}

fn print(format: Format, answer: Value) -> Result<Exit, Failure> {
    output::print_one(format, &output::data(answer), page)?;
    Ok(Exit::Ok)
}

/// The action or type of a schedule's jobs, or the workflow that it starts.
fn job_of(schedule: &Value) -> String {
    let kinds = ["action_ref", "workflow_ref"];
    let found = kinds.into_iter().find(|kind| at(schedule, kind).is_some());
    text_at(schedule, found.unwrap_or("type"))
}

/// Returns the job or the workflow that a fire stored, with its id.
fn stored(of: &Value, below: &str) -> String {
    let id = |kind: &str| format!("{below}{kind}_id");
    let kind = if at(of, &id("workflow")).is_some() { "workflow" } else { "job" };
    format!("{kind} {}", text_at(of, &id(kind)))
}

const COLUMNS: &[Column] = &[
    ("SCHEDULE", |it| text_at(it, "name")),
    ("EXPRESSION", |it| text_at(it, "cron")),
    ("TIME ZONE", |it| text_at(it, "time_zone")),
    ("JOB", job_of),
    ("STATUS", |it| text_at(it, "status")),
    ("NEXT", |it| ago(it, "next_fire")),
    ("LAST", |it| ago(it, "last_fire.fire_time")),
    ("FIRED", |it| text_at(it, "fired")),
    ("SKIPPED", |it| text_at(it, "skipped")),
];

fn page(schedule: &Value) -> String {
    let text = |path: &str| text_at(schedule, path);
    let is = |path: &str| at(schedule, path).is_some_and(|value| !value.is_null());
    let status = match is("paused") {
        true if at(schedule, "paused.reason") == Some(&json!("")) => {
            format!("paused by {}", text("paused.by"))
        }
        true => format!("paused by {}: {}", text("paused.by"), escape(&text("paused.reason"))),
        false => text("status"),
    };
    let last = match is("last_fire") {
        true => format!(
            "{}, {} s late, {}",
            when(schedule, "last_fire.fire_time"),
            text("last_fire.late_seconds"),
            stored(schedule, "last_fire.")
        ),
        false => "-".to_owned(),
    };
    let skip = match is("last_skip") {
        true => format!("{}: {}", when(schedule, "last_skip.fire_time"), text("last_skip.reason")),
        false => "-".to_owned(),
    };
    let open = at(schedule, "open_jobs").and_then(Value::as_array).map_or(0, Vec::len);
    let configured =
        if schedule["configured"] == true { "yes: commands do not change it" } else { "-" };
    let or_dash = |path: &str| if is(path) { when(schedule, path) } else { "-".to_owned() };
    fields(&[
        ("name", text("name")),
        ("expression", text("cron")),
        ("time zone", text("time_zone")),
        ("job", job_of(schedule)),
        ("parameters", text_at(schedule, "job.parameters")),
        ("args", text_at(schedule, "job.args")),
        ("queue", text_at(schedule, "job.queue")),
        ("status", status),
        ("next fire", or_dash("next_fire")),
        ("last fire", last),
        ("last skip", skip),
        ("fired", text("fired")),
        ("skipped", text("skipped")),
        ("open jobs", open.to_string()),
        ("overlap", text("overlap")),
        ("catch-up", text("catch_up")),
        ("jitter", format!("{} s", text("jitter_seconds"))),
        ("until", or_dash("until")),
        ("configured", configured.to_owned()),
        ("created", when(schedule, "created")),
        ("set by", text("set_by")),
    ])
}
