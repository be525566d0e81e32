//! `outlast workflows`: run, list, show, cancel, retry.

mod drawing;
mod id;
mod run;
mod source;

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, ago, at, escape, fields, say, text_at, when};
use serde_json::{Value, json};

use self::drawing::{Drawing, width};
use super::await_end::{Awaited, REQUEST_WAIT};
use super::newest::{self, Wanted};
use super::{Target, field_flags};
use crate::config::Environment;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a workflow; follow it with --wait or --watch
    Run(Box<run::Run>),
    /// List workflows, newest first
    List(List),
    /// Show a workflow: its steps, what each waits for, and its result
    Show(Show),
    /// Cancel a workflow: its jobs are cancelled, and nothing more is started
    Cancel(One),
    /// Go on with a workflow that did not complete; what completed stays
    Retry(One),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only this status: running, completed, failed, cancelled or timeout
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    status: Option<String>,
    /// Only workflows of this name
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// Most workflows to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue an earlier list, with the cursor it printed
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Workflow, by id, by how its id begins or ends, or @last
    id: String,
    /// Draw it again whenever it changes, until it ends
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Workflow, by id, by how its id begins or ends, or @last
    id: String,
    #[command(flatten)]
    target: Target,
}

const WORKFLOWS: [&str; 3] = ["api", "v1", "workflows"];

/// How often a workflow is looked at that is watched.
const LOOK: Duration = Duration::from_secs(1);

/// Where the fields of a workflow are given.
const FLAGS: &[(&str, &str)] = &[
    ("workflow", "WORKFLOW"),
    ("workflow_ref", "WORKFLOW"),
    ("name", "--name"),
    ("parameters", "--parameter"),
    ("labels", "--label"),
    ("keys", "--key"),
    ("status", "--status"),
    ("Idempotency-Key", "--idempotency-key"),
];

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(&args, environment).await,
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show(&args, environment).await,
        Command::Cancel(args) => order(&args, environment, "cancel").await,
        Command::Retry(args) => order(&args, environment, "retry").await,
    }
}

fn path(id: &str) -> [&str; 4] {
    let [api, version, workflows] = WORKFLOWS;
    [api, version, workflows, id]
}

/// Names flags in place of fields.
fn in_flags(failure: Failure) -> Failure {
    field_flags::in_flags(failure, FLAGS)
}

const COLUMNS: &[Column] = &[
    ("ID", |it| text_at(it, "id")),
    ("NAME", |it| text_at(it, "name")),
    ("WORKFLOW", |it| text_at(it, "workflow_ref")),
    ("STATUS", status),
    ("AGE", |it| ago(it, "created").trim_end_matches(" ago").to_owned()),
    ("FINISHED", |it| ago(it, "finished")),
    ("RETRIES", |it| text_at(it, "retries")),
    ("ERROR", |it| text_at(it, "error")),
];

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let filters = [("status", args.status.clone()), ("name", args.name.clone())];
    let wanted = Wanted {
        path: &WORKFLOWS,
        filters: &filters,
        limit: args.limit,
        cursor: args.cursor.clone(),
    };
    let (found, cursor) = newest::list(&client, wanted).await.map_err(in_flags)?;
    output::print_list(args.target.output, &found, COLUMNS)?;
    let is_filtered = args.status.is_some() || args.name.is_some();
    let words = if is_filtered { "no workflow matches" } else { "there are no workflows" };
    output::say_if_empty(args.target.output, &found, words);
    newest::say_goes_on(found.len(), cursor);
    Ok(Exit::Ok)
}

async fn show(args: &Show, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = id::whole(&client, &args.id).await?;
    let format = args.target.output;
    let workflow = if args.watch {
        let mut drawing = Drawing::new(format).alone();
        until_it_ends(&client, &id, None, format, Some(&mut drawing)).await?
    } else {
        let query = drawn(format);
        output::data(client.get(&path(&id), &query).await?)
    };
    match format {
        // It was drawn while it was watched.
        Format::Table if args.watch => output::print(&format!("\n{}", details(&workflow)))?,
        format => output::print_one(format, &workflow, page)?,
    }
    Ok(Exit::Ok)
}

async fn order(args: &One, environment: &Environment, verb: &str) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = id::whole(&client, &args.id).await?;
    let [api, version, workflows, id] = path(&id);
    let path = [api, version, workflows, id, verb];
    let workflow = output::data(client.post(&path, &json!({})).await.map_err(in_flags)?);
    output::print_one(args.target.output, &workflow, summary)?;
    Ok(Exit::Ok)
}

/// Asks for a drawing where it is printed.
fn drawn(format: Format) -> Vec<outlast_cli_core::client::Query<'static>> {
    match format {
        Format::Table => vec![("drawing", Some(width().to_string()))],
        Format::Json | Format::Jsonl => Vec::new(),
    }
}

/// Returns a workflow once it has ended, or as it is when the time is over; draws it meanwhile.
async fn until_it_ends(
    client: &Client,
    id: &str,
    limit: Option<Duration>,
    format: Format,
    mut drawing: Option<&mut Drawing>,
) -> Result<Value, Failure> {
    let look = if drawing.is_some() { LOOK } else { REQUEST_WAIT };
    let query = if drawing.is_some() { drawn(Format::Table) } else { drawn(format) };
    let path = path(id);
    let awaited = Awaited { client, path: &path, query: &query, look };
    let seen = |workflow: &Value| drawing.as_mut().map_or(Ok(()), |it| it.show(workflow));
    let mut workflow = awaited.end(limit, seen).await?;
    if format != Format::Table
        && let Some(fields) = workflow.as_object_mut()
    {
        fields.shift_remove("drawing");
    }
    Ok(workflow)
}

/// The status, and how it will end if it is being stopped.
fn status(workflow: &Value) -> String {
    let status = text_at(workflow, "status");
    match at(workflow, "ending").and_then(Value::as_str) {
        Some("cancelled") => format!("{status}, being cancelled"),
        Some(_) => format!("{status}, out of time"),
        None => status,
    }
}

/// A workflow in a few lines.
fn summary(workflow: &Value) -> String {
    let steps = at(workflow, "steps").and_then(Value::as_array);
    fields(&[
        ("id", text_at(workflow, "id")),
        ("name", text_at(workflow, "name")),
        ("workflow", text_at(workflow, "workflow_ref")),
        ("status", status(workflow)),
        ("steps", steps.map_or_else(|| "-".to_owned(), |steps| steps.len().to_string())),
        ("error", text_at(workflow, "error")),
    ])
}

/// A workflow as it is drawn, and everything else about it.
fn page(workflow: &Value) -> String {
    format!("{}\n{}", drawing::text(workflow), details(workflow))
}

const STEPS: &[Column] = &[
    ("STEP", |step| text_at(step, "name")),
    ("STATUS", |step| text_at(step, "status")),
    ("DOES", does),
    ("STARTED", |step| ago(step, "started")),
    ("FINISHED", |step| ago(step, "finished")),
    ("JOB", job),
];

fn does(step: &Value) -> String {
    let target = ["action", "type", "workflow"].into_iter().find(|key| at(step, key).is_some());
    target.map_or_else(|| "-".to_owned(), |key| text_at(step, key))
}

/// The job or workflow of a step, or how many it has.
fn job(step: &Value) -> String {
    let ids = |key: &str| at(step, key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match (ids("job_ids"), ids("workflow_ids")) {
        ([], []) => "-".to_owned(),
        ([one], []) => escape(one.as_str().unwrap_or_default()),
        ([], [one]) => format!("workflow {}", escape(one.as_str().unwrap_or_default())),
        (jobs, []) => format!("{} jobs", jobs.len()),
        (_, workflows) => format!("{} workflows", workflows.len()),
    }
}

fn details(workflow: &Value) -> String {
    let text = |path: &str| text_at(workflow, path);
    let is = |path: &str| at(workflow, path).is_some();
    let parent = match is("parent.workflow") {
        true => format!("{}, step {}", text("parent.workflow"), text("parent.step")),
        false => "-".to_owned(),
    };
    let schedule = match is("schedule.name") {
        true => format!("{}, {}", text("schedule.name"), when(workflow, "schedule.fire_time")),
        false => "-".to_owned(),
    };
    let object = |path: &str| {
        let is_empty = at(workflow, path).and_then(Value::as_object).is_none_or(|it| it.is_empty());
        if is_empty { "-".to_owned() } else { text_at(workflow, path) }
    };
    let retries = if text("retries") == "0" { "-".to_owned() } else { text("retries") };
    let mut page = fields(&[
        ("id", text("id")),
        ("name", text("name")),
        ("workflow", text("workflow_ref")),
        ("status", status(workflow)),
        ("error", text("error")),
        ("result", text("result")),
        ("parameters", object("parameters")),
        ("keys", object("keys")),
        ("labels", object("labels")),
        ("started by", parent),
        ("schedule", schedule),
        ("retries", retries),
        ("created", when(workflow, "created")),
        ("finished", when(workflow, "finished")),
        ("deadline", when(workflow, "deadline")),
    ]);
    let steps = at(workflow, "steps").and_then(Value::as_array);
    let begun: Vec<Value> =
        steps.into_iter().flatten().filter(|step| job(step) != "-").cloned().collect();
    if !begun.is_empty() {
        page.push('\n');
        page.push_str(&Table::of(&begun, STEPS).to_string());
    }
    let is_marked = |step: &&Value, mark: &str| at(step, mark) == Some(&Value::Bool(true));
    for (mark, words) in LEFT_OUT {
        let steps = begun.iter().filter(|step| is_marked(step, mark));
        let names: Vec<String> = steps.map(|step| text_at(step, "name")).collect();
        if !names.is_empty() {
            page.extend(["\n", words, ": ", &names.join(", "), "\n"]);
        }
    }
    page
}

/// What the server marks of a step that it shows in part.
const LEFT_OUT: [(&str, &str); 2] = [
    ("jobs_left_out", "more jobs than shown; `outlast jobs list --workflow ID` lists them all"),
    ("result_left_out", "result too long to show; its jobs have it"),
];

/// The failure of a wait that was over before the workflow was.
fn still_going(id: &str, workflow: &Value) -> Failure {
    let message = format!("workflow {id} is {} after the wait", status(workflow));
    let hint = format!(
        "the workflow continues: `outlast workflows show {id}`, `outlast workflows show {id} \
         --watch`"
    );
    Failure::new(Exit::WaitTimedOut, message).with_hint(hint)
}

/// How a command ends that has waited for this workflow.
fn outcome(id: &str, workflow: &Value) -> Result<Exit, Failure> {
    let status = text_at(workflow, "status");
    if status == "completed" {
        say(&format!("workflow {id} completed\n"));
        return Ok(Exit::Ok);
    }
    let worded = match status.as_str() {
        "timeout" => "ran out of time",
        "cancelled" => "was cancelled",
        other => other,
    };
    let reason = at(workflow, "error")
        .map_or_else(String::new, |_| format!(": {}", text_at(workflow, "error")));
    let hint = format!(
        "`outlast workflows show {id}` tells about every step; `outlast workflows retry {id}` \
         goes on with what did not complete"
    );
    Err(Failure::failed(format!("workflow {id} {worded}{reason}")).with_hint(hint))
}
