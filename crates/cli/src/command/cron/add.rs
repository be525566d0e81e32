//! `outlast cron add`.

use clap::{Args, value_parser};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::at;
use serde_json::{Value, json};

use super::{in_flags, path, print};
use crate::command::Target;
use crate::command::run::{duration, parameters, policy};
use crate::config::Environment;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Add {
    /// Name of the schedule
    name: String,
    /// When it fires, such as "0 2 * * *", "@daily" or "@every 90s"
    #[arg(allow_hyphen_values = true)]
    expression: String,
    /// Action that runs, such as core.echo; with --workflow, the workflow that starts
    action: String,
    /// Start the workflow of a pack, such as reports.nightly
    #[arg(
        long,
        conflicts_with_all = ["any_type", "queue", "priority", "time_limit", "retry", "requires", "prefers"]
    )]
    workflow: bool,
    /// Parameter: name=value, name:=json for lists and objects, name=@file for the text of a file
    #[arg(short, long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// File with parameters as a JSON object, - for standard input; --parameter replaces them one by one
    #[arg(long = "parameters", value_name = "FILE")]
    parameter_file: Option<String>,
    /// Accept any job type, for your own workers: an Open Job Spec job with the parameters as argument
    #[arg(long)]
    any_type: bool,
    /// Time zone of the expression, such as Europe/Vienna [default: UTC]
    #[arg(long, value_name = "PLACE")]
    time_zone: Option<String>,
    /// What a fire does while an earlier job waits or runs: skip, queue, replace or allow [default: skip]
    #[arg(long, value_parser = ["skip", "queue", "replace", "allow"], hide_possible_values = true)]
    overlap: Option<String>,
    /// What becomes of fires that were missed: none, one or all [default: one]
    #[arg(long, value_parser = ["none", "one", "all"], hide_possible_values = true)]
    catch_up: Option<String>,
    /// Most that a fire is put off, so that many do not come at once
    #[arg(long, value_name = "DURATION")]
    jitter: Option<String>,
    /// Last moment at which it fires, such as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Add it paused
    #[arg(long)]
    paused: bool,
    /// Queue of the jobs
    #[arg(long)]
    queue: Option<String>,
    /// Priority, from -100 (last) to 100 (first)
    #[arg(long, allow_negative_numbers = true, value_parser = value_parser!(i8).range(-100..=100))]
    priority: Option<i8>,
    /// Time limit of an attempt
    #[arg(long, value_name = "DURATION")]
    time_limit: Option<String>,
    /// Number of attempts, where 0 counts as 1, or a policy: max_attempts=5,initial_interval=2s,on_exhaustion=dead_letter
    #[arg(long, value_name = "POLICY")]
    retry: Option<String>,
    /// Label that the worker must carry; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
    /// Labels that the worker must match, such as "gpu=true, zone in (a, b), !spot"
    #[arg(long, value_name = "SELECTOR")]
    requires: Option<String>,
    /// Labels that the worker should match: of those with a free slot, the best match comes first
    #[arg(long, value_name = "SELECTOR")]
    prefers: Option<String>,
    /// Key of the jobs, such as tenant=42; may be given several times, and replaces the action's own
    #[arg(long = "key", value_name = "NAME=VALUE")]
    keys: Vec<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: &Add, environment: &Environment) -> Result<Exit, Failure> {
    let body = body(args)?;
    let client = args.target.client(environment)?;
    print(args.target.format(), set(&client, args, body).await.map_err(in_flags)?)
}

/// Sets the schedule. If it is refused, tries again with text converted to what the schema wants.
async fn set(client: &Client, args: &Add, mut body: Value) -> Result<Value, Failure> {
    let path = path(&args.name);
    let refused = match client.put(&path, &body).await {
        Err(failure) if failure.is_of_parameters() => failure.with_hint(parameters::HINT),
        answer => return answer,
    };
    if args.workflow {
        // A workflow has no schema to ask for.
        if !parameters::turn_refused(&mut body["parameters"], &refused) {
            return Err(refused);
        }
        return match client.put(&path, &body).await {
            // They are shown as the user gave them.
            Err(failure) if failure.is_of_parameters() => Err(refused),
            answer => answer,
        };
    }
    let Ok(known) = client.get(&["api", "v1", "actions", &args.action], &[]).await else {
        return Err(refused);
    };
    let schema = at(&known, "data.parameters").cloned().unwrap_or_default();
    if !parameters::fit(&mut body["parameters"], &schema) {
        return Err(refused);
    }
    client.put(&path, &body).await.map_err(|failure| match failure.is_of_parameters() {
        true => failure.with_hint(parameters::HINT),
        false => failure,
    })
}

fn body(args: &Add) -> Result<Value, Failure> {
    let given = parameters::read(&args.parameters, args.parameter_file.as_deref())?;
    let mut body = json!({"cron": args.expression});
    if args.any_type {
        if !args.labels.is_empty() {
            let message = "--label goes with an action, not with --any-type";
            return Err(Failure::usage(message).with_hint("use --requires zone=a"));
        }
        body["type"] = json!(args.action);
        body["args"] = json!([given]);
    } else {
        let name = if args.workflow { "workflow_ref" } else { "action_ref" };
        body[name] = json!(args.action);
        body["parameters"] = json!(given);
    }
    let texts = [
        ("time_zone", &args.time_zone),
        ("overlap", &args.overlap),
        ("catch_up", &args.catch_up),
        ("jitter", &args.jitter),
        ("until", &args.until),
        ("queue", &args.queue),
        ("requires", &args.requires),
        ("prefers", &args.prefers),
    ];
    for (name, given) in texts {
        if let Some(given) = given {
            body[name] = json!(given);
        }
    }
    if args.paused {
        body["paused"] = json!(true);
    }
    if let Some(priority) = args.priority {
        body["priority"] = json!(priority);
    }
    if let Some(limit) = duration("--time-limit", args.time_limit.as_deref())? {
        body["timeout"] = json!(limit.as_secs_f64());
    }
    if let Some(retry) = &args.retry {
        let policy = policy::read(retry)?;
        body["retry"] = if args.any_type { policy::of_the_standard(policy) } else { policy };
    }
    if !args.labels.is_empty() {
        body["labels"] = policy::labels(&args.labels)?;
    }
    if !args.keys.is_empty() {
        body["keys"] = policy::keys(&args.keys)?;
    }
    Ok(body)
}
