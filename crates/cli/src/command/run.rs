//! `outlast run`: enqueue one job; with `--wait` follow its output and end as it ends.

use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};

use super::Target;
use super::follow::{Follow, LogSink, Waited};
use super::jobs::show::summary;
use crate::config::{Environment, value};
use crate::exit::{Exit, Failure};
use crate::output::{self, Format, at, escape, text_at};

const PARAMETER_HINT: &str = "write name=text, or name:=json as in duration:=20";

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// What to run, such as core.echo
    action: String,
    /// Parameter: name=text, or name:=json for numbers, lists and the like
    #[arg(short, long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Follow the output and end with the job's outcome
    #[arg(short, long)]
    wait: bool,
    /// How long to wait for it; the job goes on. Exit code 124
    #[arg(long, value_name = "DURATION", requires = "wait")]
    timeout: Option<String>,
    /// Queue to put it in
    #[arg(long)]
    queue: Option<String>,
    /// From -100 (last) to 100 (first)
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i8>,
    /// Longest an attempt may run
    #[arg(long, value_name = "DURATION")]
    time_limit: Option<String>,
    /// Run it after this time
    #[arg(long, value_name = "DURATION")]
    delay: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let body = body(&args)?;
    let timeout = duration("--timeout", args.timeout.as_deref())?;
    let client = args.target.client(environment)?;
    let answer = client.post(&["api", "v1", "executions"], &body).await.map_err(|failure| {
        // The server's hint is for those who send JSON themselves.
        if failure.exit == Exit::Usage { failure.with_hint(PARAMETER_HINT) } else { failure }
    })?;
    let job = answer.get("data").cloned().unwrap_or(answer);
    if !args.wait {
        output::print_one(args.target.output, &job, summary)?;
        return Ok(Exit::Ok);
    }
    let Some(id) = job.get("id").and_then(Value::as_str) else {
        return Err(Failure::failed("the server accepted the job without telling its id"));
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

fn body(args: &Args) -> Result<Value, Failure> {
    let mut parameters = Map::new();
    for given in &args.parameters {
        let (name, value) = parameter(given)?;
        if parameters.insert(name.clone(), value).is_some() {
            return Err(Failure::usage(format!("parameter `{name}` is given twice")));
        }
    }
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
    Ok(body)
}

/// `name=text` or `name:=json`.
fn parameter(given: &str) -> Result<(String, Value), Failure> {
    let wrong = || Failure::usage(format!("`{given}` is no parameter")).with_hint(PARAMETER_HINT);
    let (name, text) = given.split_once('=').ok_or_else(wrong)?;
    let (name, value) = match name.strip_suffix(':') {
        None => (name, Value::String(text.to_owned())),
        Some(name) => {
            let value = serde_json::from_str(text).map_err(|error| {
                let message = format!("parameter `{name}` is not JSON: {error}");
                Failure::usage(message).with_hint(PARAMETER_HINT)
            })?;
            (name, value)
        }
    };
    if name.is_empty() { Err(wrong()) } else { Ok((name.to_owned(), value)) }
}

fn duration(flag: &str, given: Option<&str>) -> Result<Option<Duration>, Failure> {
    let Some(text) = given else { return Ok(None) };
    let parsed = value::duration(&Value::String(text.to_owned()));
    let wrong = |expected| Failure::usage(format!("{flag} is `{text}`, which is not {expected}"));
    parsed.map(Some).map_err(wrong)
}

fn still_going(id: &str, job: &Value) -> Failure {
    let waiting = at(job, "waiting_reason").and_then(Value::as_str).map(escape);
    let waiting = waiting.map_or_else(String::new, |reason| format!(": {reason}"));
    let message = format!("job {id} is {} after the wait{waiting}", text_at(job, "status"));
    let hint = format!("it goes on: `outlast jobs show {id}`, `outlast jobs logs -f {id}`");
    Failure::new(Exit::WaitTimedOut, message).with_hint(hint)
}

fn outcome(id: &str, job: &Value) -> Result<Exit, Failure> {
    let status = text_at(job, "status");
    if status == "completed" {
        let attempt = text_at(job, "attempt");
        let worker = text_at(job, "worker.name");
        output::say(&format!("job {id} completed, attempt {attempt}, worker {worker}\n"));
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

#[cfg(test)]
mod tests {
    use super::parameter;
    use serde_json::json;

    #[test]
    fn parameters_are_text_unless_marked_as_json() {
        assert_eq!(parameter("a=1=2").unwrap(), ("a".to_owned(), json!("1=2")));
        assert_eq!(parameter("a:=[1]").unwrap(), ("a".to_owned(), json!([1])));
        assert_eq!(parameter("a=").unwrap(), ("a".to_owned(), json!("")));
    }

    #[test]
    fn malformed_parameters_are_refused() {
        for given in ["a", "=x", ":=1", "a:={"] {
            assert!(parameter(given).is_err(), "{given}");
        }
    }
}
