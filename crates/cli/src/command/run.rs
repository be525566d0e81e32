//! `outlast run`: enqueue one job; with `--wait` follow its output and end as it ends.

pub(super) mod parameters;
pub(super) mod policy;

use std::time::Duration;

use clap::{Args as ClapArgs, value_parser};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{at, escape, say, text_at};
use outlast_wire::nearest::nearest;
use serde_json::{Map, Value, json};

use super::follow::{Follow, LogSink, Waited};
use super::jobs::show::summary;
use super::{Target, field_flags, workers};
use crate::config::{Environment, value};
use crate::last_job::{self, Last};
use crate::output::{self, Format};

const ANY_TYPE_HINT: &str = "`outlast actions list` shows all; a job for a worker of your own goes \
                             with --any-type";

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Action to run, such as core.echo
    action: String,
    /// Parameter: name=value, name:=json for lists and objects, name=@file for the text of a file
    #[arg(short, long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// File with parameters as a JSON object, - for standard input; --parameter replaces them one by one
    #[arg(long = "parameters", value_name = "FILE")]
    parameter_file: Option<String>,
    /// Follow the output and exit with the job's outcome
    #[arg(short, long)]
    wait: bool,
    /// Accept any job type, for your own workers: an Open Job Spec job with the parameters as argument
    #[arg(long)]
    any_type: bool,
    /// How long to wait; then exit with 124 while the job continues
    #[arg(long, alias = "timeout", value_name = "DURATION", requires = "wait")]
    wait_timeout: Option<String>,
    /// Queue of the job
    #[arg(long)]
    queue: Option<String>,
    /// Priority, from -100 (last) to 100 (first)
    #[arg(long, allow_negative_numbers = true, value_parser = value_parser!(i8).range(-100..=100))]
    priority: Option<i8>,
    /// Time limit of an attempt
    #[arg(long, value_name = "DURATION")]
    time_limit: Option<String>,
    /// Run it after this delay
    #[arg(long, value_name = "DURATION", conflicts_with = "at")]
    delay: Option<String>,
    /// Run it at this time, such as 2026-11-21T12:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
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
    /// Key of the job, such as tenant=42; may be given several times, and replaces the action's own
    #[arg(long = "key", value_name = "NAME=VALUE")]
    keys: Vec<String>,
    /// Makes the job the only one of its sort: keys=args,on_conflict=ignore, or args_keys=user,period=1h
    #[arg(long, value_name = "POLICY")]
    unique: Option<String>,
    /// Most memory of an attempt, such as 64MiB; beyond it the attempt fails with oom_killed
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Most processors of an attempt, such as 0.5
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<String>,
    /// Most processes and threads of an attempt
    #[arg(long, value_name = "NUMBER")]
    processes: Option<u32>,
    /// Whether two attempts may overlap after a worker is lost: allowed or forbidden
    #[arg(long, value_parser = ["allowed", "forbidden"], hide_possible_values = true)]
    overlap: Option<String>,
    /// Which files of its pack run the action: pinned, only those that the parameters were validated
    /// with; or any
    #[arg(long, value_parser = ["any", "pinned"], hide_possible_values = true)]
    packs: Option<String>,
    /// Idempotency key: enqueue once per key and day
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// What it asks of its worker, by the names that requests have for it.
    const fn selectors(&self) -> [(&'static str, &Option<String>); 2] {
        [("requires", &self.requires), ("prefers", &self.prefers)]
    }

    /// What an attempt may use; nothing if it says nothing.
    fn resources(&self) -> Option<Value> {
        let mut limits = Map::new();
        limits.extend(self.memory.as_ref().map(|memory| ("memory".to_owned(), json!(memory))));
        limits.extend(self.cpu.as_ref().map(|cpu| ("cpu".to_owned(), json!(cpu))));
        limits.extend(self.processes.map(|most| ("processes".to_owned(), json!(most))));
        (!limits.is_empty()).then_some(Value::Object(limits))
    }
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let parameters = parameters::read(&args.parameters, args.parameter_file.as_deref())?;
    let body = body(&args, &parameters)?;
    let timeout = duration("--wait-timeout", args.wait_timeout.as_deref())?;
    let client = args.target.client(environment)?;
    let answer = if args.any_type {
        enqueue_any(&client, &args, &parameters).await
    } else {
        enqueue(&client, body, args.idempotency_key.as_deref()).await
    };
    let answer = answer.map_err(|failure| {
        let delay = if args.at.is_some() { "--at" } else { "--delay" };
        field_flags::in_flags(failure.in_flags(&[("delay", delay)]), field_flags::NEW_JOB)
    })?;
    let is_old = answer.get("deduplicated").is_some();
    let job = output::data(answer);
    if let Some(id) = at(&job, "id").and_then(Value::as_str) {
        last_job::remember(Last::Job, &client.server(), id);
    }
    if is_old {
        say(&format!("job {} was there before; no other was enqueued\n", text_at(&job, "id")));
    }
    if !args.wait {
        output::print_one(args.target.output, &job, summary)?;
        return Ok(Exit::Ok);
    }
    let Some(id) = job.get("id").and_then(Value::as_str) else {
        return Err(Failure::failed("the server accepted the job but did not return its id"));
    };
    let is_table = args.target.output == Format::Table;
    let sink = if is_table { LogSink::Streams } else { LogSink::Beside };
    let waited = Follow::new(&client, id, sink).until_it_ends(timeout).await?;
    let (job, timed_out) = match waited {
        Waited::Ended(job) => (job, false),
        Waited::TimedOut(job) => (job, true),
    };
    if !is_table {
        output::print_one(args.target.output, &job, summary)?;
    }
    if timed_out { Err(still_going(id, &job)) } else { outcome(id, &job) }
}

/// Enqueues the job. If it is refused, tries again with text converted to what the schema wants.
async fn enqueue(client: &Client, mut body: Value, key: Option<&str>) -> Result<Value, Failure> {
    const PATH: &[&str] = &["api", "v1", "executions"];
    let refused = match client.post_once(PATH, &body, key).await {
        Err(failure) if failure.is_of_unknown_action() => {
            return Err(failure.with_hint(ANY_TYPE_HINT));
        }
        Err(failure) if failure.is_of_parameters() => failure.with_hint(parameters::HINT),
        answer => return answer,
    };
    let action = text_at(&body, "action_ref");
    let Ok(known) = client.get(&["api", "v1", "actions", &action], &[]).await else {
        return Err(refused);
    };
    let schema = at(&known, "data.parameters").cloned().unwrap_or_default();
    if !parameters::fit(&mut body["parameters"], &schema) {
        return Err(refused);
    }
    let answer = client.post_once(PATH, &body, key).await;
    answer.map_err(|failure| match failure.is_of_parameters() {
        true => failure.with_hint(parameters::HINT),
        false => failure,
    })
}

fn body(args: &Args, parameters: &Map<String, Value>) -> Result<Value, Failure> {
    let mut body = json!({"action_ref": args.action, "parameters": parameters});
    if let Some(queue) = &args.queue {
        body["queue"] = json!(queue);
    }
    if let Some(priority) = args.priority {
        body["priority"] = json!(priority);
    }
    if let Some(limit) = duration("--time-limit", args.time_limit.as_deref())? {
        body["timeout"] = json!(limit.as_secs_f64());
    }
    if let Some(delay) = duration("--delay", args.delay.as_deref())? {
        body["delay"] = json!(delay.as_secs_f64());
    }
    if let Some(at) = &args.at {
        body["delay"] = json!(time(at)?);
    }
    if let Some(retry) = &args.retry {
        body["retry"] = policy::read(retry)?;
    }
    if !args.labels.is_empty() {
        body["labels"] = policy::labels(&args.labels)?;
    }
    if !args.keys.is_empty() {
        body["keys"] = policy::keys(&args.keys)?;
    }
    if let Some(unique) = &args.unique {
        body["unique"] = policy::unique(unique)?;
    }
    if let Some(resources) = args.resources() {
        body["resources"] = resources;
    }
    let texts = [("overlap", &args.overlap), ("packs", &args.packs)];
    for (name, given) in args.selectors().into_iter().chain(texts) {
        if let Some(given) = given {
            body[name] = json!(given);
        }
    }
    Ok(body)
}

/// Enqueues a job of any type and reads it back as an execution.
async fn enqueue_any(
    client: &Client,
    args: &Args,
    parameters: &Map<String, Value>,
) -> Result<Value, Failure> {
    let mut options = Map::new();
    if let Some(queue) = &args.queue {
        options.insert("queue".to_owned(), json!(queue));
    }
    if let Some(priority) = args.priority {
        options.insert("priority".to_owned(), json!(priority));
    }
    let times = [
        ("timeout_ms", duration("--time-limit", args.time_limit.as_deref())?),
        ("delay_ms", duration("--delay", args.delay.as_deref())?),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            options.insert(name.to_owned(), json!(ms));
        }
    }
    if !args.labels.is_empty() {
        let message = "--label goes with an action, not with --any-type";
        return Err(Failure::usage(message).with_hint("use --requires zone=a"));
    }
    if args.packs.is_some() {
        return Err(Failure::usage("--packs goes with an action, not with --any-type"));
    }
    if let Some(retry) = &args.retry {
        options.insert("retry".to_owned(), policy::of_the_standard(policy::read(retry)?));
    }
    let texts = [("scheduled_at", &args.at), ("overlap", &args.overlap)];
    for (name, given) in texts.into_iter().chain(args.selectors()) {
        if let Some(given) = given {
            options.insert(name.to_owned(), json!(given));
        }
    }
    if !args.keys.is_empty() {
        options.insert("keys".to_owned(), policy::keys(&args.keys)?);
    }
    if let Some(unique) = &args.unique {
        options.insert("unique".to_owned(), policy::unique(unique)?);
    }
    options.extend(args.resources().map(|limits| ("resources".to_owned(), limits)));
    let body = json!({"type": args.action, "args": [parameters], "options": options});
    let key = args.idempotency_key.as_deref();
    let answer = client.post_once(&["ojs", "v1", "jobs"], &body, key).await?;
    let id = text_at(&answer, "job.id");
    let mut shown = client.get(&["api", "v1", "executions", &id], &[]).await?;
    warn_of_stranger(client, &args.action, &shown).await;
    if answer.get("deduplicated").is_some() {
        shown["deduplicated"] = json!(true);
    }
    Ok(shown)
}

/// Warns about a type without a handler. A plain client does not say which types it handles: where one
/// takes jobs, only a type that is similar to a known one is likely a mistake.
async fn warn_of_stranger(client: &Client, wanted: &str, job: &Value) {
    let actions = client.get_list(&["api", "v1", "actions"]).await;
    // A warning is no reason to fail.
    let workers = workers::all(client, &[]).await.unwrap_or_default();
    let of_workers = workers.iter().filter_map(|worker| at(worker, "about.types")?.as_array());
    let handled = of_workers.flatten().filter_map(|name| name.as_str().map(ToOwned::to_owned));
    let known: Vec<String> =
        actions.iter().map(|action| text_at(action, "ref")).chain(handled).collect();
    if known.iter().any(|name| name == wanted) {
        return;
    }
    let near = nearest(wanted, &known, 0.85);
    let is_stranded = text_at(job, "data.waiting_reason").starts_with("no ");
    if near.is_none() && !is_stranded {
        return;
    }
    let near = near.map_or_else(String::new, |name| format!("; did you mean {name}?"));
    say(&format!("warning: neither an action nor a worker handles {}{near}\n", escape(wanted)));
}

/// Reads a duration that a flag gives.
pub(super) fn duration(flag: &str, given: Option<&str>) -> Result<Option<Duration>, Failure> {
    let Some(text) = given else { return Ok(None) };
    let parsed = value::duration(&Value::String(text.to_owned()));
    let wrong = |expected| Failure::usage(format!("{flag} is `{text}`, which is not {expected}"));
    parsed.map(Some).map_err(wrong)
}

fn time(given: &str) -> Result<String, Failure> {
    let read: Result<jiff::Timestamp, _> = given.parse();
    let at = read.map_err(|_error| {
        Failure::usage(format!("--at is `{given}`, which is not a time with a time zone"))
            .with_hint("write it as 2026-11-21T12:00:00Z, or use --delay, as in --delay 2h")
    })?;
    Ok(at.to_string())
}

/// The failure of a wait that was over before the job was.
pub(super) fn still_going(id: &str, job: &Value) -> Failure {
    let waiting = at(job, "waiting_reason").and_then(Value::as_str).map(escape);
    let waiting = waiting.map_or_else(String::new, |reason| format!(": {reason}"));
    let message = format!("job {id} is {} after the wait{waiting}", text_at(job, "status"));
    let hint = format!("the job continues: `outlast jobs show {id}`, `outlast jobs logs -f {id}`");
    Failure::new(Exit::WaitTimedOut, message).with_hint(hint)
}

/// How a command ends that has waited for this job.
pub(super) fn outcome(id: &str, job: &Value) -> Result<Exit, Failure> {
    let status = text_at(job, "status");
    if status == "completed" {
        let attempt = text_at(job, "attempt");
        let worker = text_at(job, "worker.name");
        say(&format!("job {id} completed, attempt {attempt}, worker {worker}\n"));
        return Ok(Exit::Ok);
    }
    let reason = match at(job, "error") {
        Some(error) if at(error, "message").is_some() => format!(": {}", text_at(error, "message")),
        Some(_) => format!(": {}", text_at(job, "error")),
        None => String::new(),
    };
    let hint = format!("`outlast jobs show {id}` tells about every attempt");
    Err(Failure::failed(format!("job {id} {}{reason}", worded(&status))).with_hint(hint))
}

fn worded(status: &str) -> &str {
    match status {
        "timeout" => "ran out of time",
        "cancelled" => "was cancelled",
        "abandoned" => "was abandoned: its workers died under it",
        other => other,
    }
}
