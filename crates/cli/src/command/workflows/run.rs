//! `outlast workflows run`: start a workflow; with `--wait` end as it ends.

use clap::Args;
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::at;
use serde_json::{Value, json};

use super::drawing::{self, Drawing};
use super::{WORKFLOWS, in_flags, outcome, source, still_going, summary, until_it_ends};
use crate::command::Target;
use crate::command::follow::has_ended;
use crate::command::run::{duration, parameters, policy};
use crate::config::Environment;
use crate::last_job::{self, Last};
use crate::output::{self, Format};

const UNKNOWN_HINT: &str = "`outlast packs list -o json` shows the workflows of packs; a file's \
                            name ends in .yaml, .yml or .json";

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// File with a workflow (.yaml, .yml or .json; - for standard input), or the reference of a
    /// pack's, such as reports.nightly
    workflow: String,
    /// Parameter: name=value, name:=json for lists and objects, name=@file for the text of a file
    #[arg(short, long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// File with parameters as a JSON object, - for standard input; --parameter replaces them one by one
    #[arg(long = "parameters", value_name = "FILE")]
    parameter_file: Option<String>,
    /// Name of this run, in place of the name in the workflow
    #[arg(long)]
    name: Option<String>,
    /// Label of its jobs, beside the workflow's own; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
    /// Key of its jobs, such as tenant=42; may be given several times, and replaces the workflow's own
    #[arg(long = "key", value_name = "NAME=VALUE")]
    keys: Vec<String>,
    /// Idempotency key: start once per key, as long as the workflow is kept
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait for its end and exit with its outcome
    #[arg(short, long)]
    wait: bool,
    /// Wait, and draw its steps whenever they change
    #[arg(long)]
    watch: bool,
    /// How long to wait; then exit with 124 while the workflow continues
    #[arg(long, alias = "timeout", value_name = "DURATION")]
    wait_timeout: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: &Run, environment: &Environment) -> Result<Exit, Failure> {
    let limit = duration("--wait-timeout", args.wait_timeout.as_deref())?;
    if limit.is_some() && !args.wait && !args.watch {
        return Err(Failure::usage("--wait-timeout goes with --wait or --watch"));
    }
    let body = body(args)?;
    let client = args.target.client(environment)?;
    let answer = start(&client, body, args.idempotency_key.as_deref()).await.map_err(in_flags)?;
    let workflow = output::data(answer);
    let Some(id) = at(&workflow, "id").and_then(Value::as_str) else {
        return Err(Failure::failed("the server accepted the workflow but did not return its id"));
    };
    last_job::remember(Last::Workflow, &client.server(), id);
    let format = args.target.output;
    if !args.wait && !args.watch {
        output::print_one(format, &workflow, summary)?;
        return Ok(Exit::Ok);
    }
    let ended = if args.watch {
        let mut drawing = Drawing::new(format);
        until_it_ends(&client, id, limit, format, Some(&mut drawing)).await?
    } else {
        until_it_ends(&client, id, limit, format, None).await?
    };
    match format {
        // It was drawn while it was watched.
        Format::Table if args.watch => {}
        Format::Table => output::print(&drawing::text(&ended))?,
        format => output::print_one(format, &ended, summary)?,
    }
    if has_ended(&ended) { outcome(id, &ended) } else { Err(still_going(id, &ended)) }
}

fn body(args: &Run) -> Result<Value, Failure> {
    if args.workflow == source::STDIN && reads_stdin(args) {
        return Err(Failure::usage("standard input is named twice, and can be read once"));
    }
    let given = parameters::read(&args.parameters, args.parameter_file.as_deref())?;
    let (key, workflow) = source::read(&args.workflow)?;
    let mut body = json!({key: workflow});
    if !given.is_empty() {
        body["parameters"] = Value::Object(given);
    }
    if let Some(name) = &args.name {
        body["name"] = json!(name);
    }
    if !args.labels.is_empty() {
        body["labels"] = policy::labels(&args.labels)?;
    }
    if !args.keys.is_empty() {
        body["keys"] = policy::keys(&args.keys)?;
    }
    Ok(body)
}

fn reads_stdin(args: &Run) -> bool {
    let named = args.parameters.iter().filter_map(|given| given.split_once('='));
    args.parameter_file.as_deref() == Some(source::STDIN)
        || named.into_iter().any(|(_, text)| text == "@-")
}

/// Starts the workflow. If its parameters are refused, tries again with those texts as JSON that
/// were refused and can be read so.
async fn start(client: &Client, mut body: Value, key: Option<&str>) -> Result<Value, Failure> {
    let refused = match client.post_once(&WORKFLOWS, &body, key).await {
        // The parameters of a step stand in the file of the workflow, so the hint would not help there.
        Err(failure) if failure.is_of_parameters() && detail(&failure, "step").is_none() => {
            failure.with_hint(parameters::HINT)
        }
        Err(failure) if detail(&failure, "resource") == Some(&json!("workflow")) => {
            return Err(failure.with_hint(UNKNOWN_HINT));
        }
        answer => return answer,
    };
    if !parameters::turn_refused(&mut body["parameters"], &refused) {
        return Err(refused);
    }
    // If they are still wrong, the error shows the parameters as the user gave them.
    match client.post_once(&WORKFLOWS, &body, key).await {
        Err(failure) if failure.is_of_parameters() => Err(refused),
        answer => answer,
    }
}

fn detail<'a>(failure: &'a Failure, name: &str) -> Option<&'a Value> {
    at(&failure.refusal.as_ref()?.details, name)
}
