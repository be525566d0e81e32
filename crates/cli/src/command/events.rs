//! `outlast events`: what happened, and with `--follow` what happens.

use std::time::Duration;

use clap::Args as ClapArgs;
use clap::builder::NonEmptyStringValueParser;
use outlast_cli_core::client::{Client, Query};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, at, escape, text_at};
use serde_json::Value;

use super::{Target, field_flags, job_id, workers};
use crate::command::search;
use crate::config::Environment;
use crate::output::{self, Format};

/// The status of a stream that has no more events.
const NO_CONTENT: u16 = 204;

/// Pause before reconnecting.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Follow new events; with --job until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Only events of these types, such as job.completed,job.failed or worker.*
    #[arg(long = "type", value_name = "TYPES", value_parser = NonEmptyStringValueParser::new())]
    types: Option<String>,
    /// Only events of these queues
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    queue: Option<String>,
    /// Only events of this job, by id or id prefix
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    job: Option<String>,
    /// Only events by this worker, by id or name
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    worker: Option<String>,
    /// Only events after the one with this id
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Most events to list, without --follow
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

const COLUMNS: &[Column] = &[
    ("TIME", |event| text_at(event, "time")),
    ("EVENT", |event| text_at(event, "type")),
    ("JOB", |event| text_at(event, "data.job_id")),
    ("BY", |event| text_at(event, "data.by")),
    ("EVIDENCE", |event| text_at(event, "data.evidence")),
];

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let job = match &args.job {
        Some(given) => Some(job_id::whole(&client, given).await?),
        None => None,
    };
    let worker = match &args.worker {
        Some(given) => Some(match workers::resolve(&client, given).await {
            // The server also knows plain workers by the ids they gave themselves.
            Err(failure) if failure.exit == Exit::NotFound => given.clone(),
            found => found?,
        }),
        None => None,
    };
    let path: Vec<&str> = match &job {
        Some(job) => vec!["api", "v1", "executions", job, "events"],
        None => vec!["api", "v1", "events"],
    };
    let filters = [("type", args.types.clone()), ("queue", args.queue.clone()), ("worker", worker)];
    if !args.follow {
        let (events, goes_on) = pages(&client, &path, &filters, (args.after, args.limit)).await?;
        output::print_list(args.target.output, &events, COLUMNS)?;
        if let Some(cursor) = goes_on {
            search::say_goes_on(events.len(), "--after", &cursor);
        } else {
            output::say_if_empty(args.target.output, &events, "no event matches");
        }
        return Ok(Exit::Ok);
    }
    follow(&client, &path, &filters, (args.after, args.target.output)).await
}

/// Reads events until there are `limit` or no more. Returns also where to search on if there
/// was none for long.
async fn pages(
    client: &Client,
    path: &[&str],
    filters: &[Query<'_>],
    (mut cursor, limit): (Option<String>, u32),
) -> Result<(Vec<Value>, Option<String>), Failure> {
    let mut events = Vec::new();
    let mut empty = 0;
    while empty < search::EMPTY_MAX {
        let missing = limit.saturating_sub(u32::try_from(events.len()).unwrap_or(u32::MAX));
        if missing == 0 {
            return Ok((events, None));
        }
        let mut query = filters.to_vec();
        query.push(("stream", Some("false".to_owned())));
        query.push(("limit", Some(missing.to_string())));
        query.push(("cursor", cursor.clone()));
        let page = client.get(path, &query).await.map_err(in_flags)?;
        let found = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        empty = if found.is_empty() { empty + 1 } else { 0 };
        events.extend(found);
        let next = page.get("next_cursor").and_then(Value::as_str).map(ToOwned::to_owned);
        // At the end of the log the cursor stays where it is.
        if next.is_none() || next == cursor {
            return Ok((events, None));
        }
        cursor = next;
    }
    Ok((events, cursor))
}

fn in_flags(failure: Failure) -> Failure {
    let failure = field_flags::in_flags(failure, field_flags::EVENTS);
    if failure.message.starts_with("--after ") {
        return failure
            .with_hint("each line of `outlast events -o jsonl` has the `id` of its event");
    }
    failure
}

/// Prints events until interrupted, and resumes where it was when the connection is lost. Earlier
/// events are skipped unless a position was named.
async fn follow(
    client: &Client,
    path: &[&str],
    filters: &[Query<'_>],
    (mut after, format): (Option<String>, Format),
) -> Result<Exit, Failure> {
    let mut is_new = true;
    loop {
        let mut query = filters.to_vec();
        query.push(("stream", Some("true".to_owned())));
        query.push(("cursor", after.clone()));
        match client.stream(path, &query).await {
            // The job has ended, and this was all.
            Ok(response) if response.status() == NO_CONTENT => return Ok(Exit::Ok),
            Ok(mut response) => {
                is_new = false;
                let mut waiting = Vec::new();
                let mut message = Message::default();
                while let Ok(Some(chunk)) = response.chunk().await {
                    waiting.extend_from_slice(&chunk);
                    while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = waiting.drain(..=end).collect();
                        if message.take(String::from_utf8_lossy(&line).trim_end()) {
                            std::mem::take(&mut message).show(&mut after, format)?;
                        }
                    }
                }
            }
            // A server that is away for a moment is waited for, but for the first answer.
            Err(failure) if is_new || failure.exit != Exit::Unreachable => {
                return Err(in_flags(failure));
            }
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A message of the stream. It counts once it is complete: one that is cut off is sent again.
#[derive(Debug, Default)]
struct Message {
    /// The position after it.
    id: Option<String>,
    event: Option<Value>,
}

impl Message {
    /// Takes in a line; true if it is the one that completes the message.
    fn take(&mut self, line: &str) -> bool {
        if let Some(id) = line.strip_prefix("id:") {
            self.id = Some(id.trim().to_owned());
        } else if let Some(data) = line.strip_prefix("data:") {
            self.event = serde_json::from_str(data.trim()).ok();
        }
        line.is_empty()
    }

    fn show(self, after: &mut Option<String>, format: Format) -> Result<(), Failure> {
        if let Some(event) = self.event {
            print(&event, format)?;
            output::end_without_reader()?;
        }
        if let Some(id) = self.id {
            *after = Some(id);
        }
        Ok(())
    }
}

fn print(event: &Value, format: Format) -> Result<(), Failure> {
    if format != Format::Table {
        return output::print(&format!("{event}\n"));
    }
    let about = at(event, "data.job_id").or_else(|| at(event, "data.worker_id"));
    let about = about.and_then(Value::as_str).unwrap_or("-");
    let text = |path: &str| text_at(event, path);
    let (time, kind, by) = (text("time"), text("type"), text("data.by"));
    let line = format!("{time}  {kind:<18}  {}  by {by}", escape(about));
    let evidence = text("data.evidence");
    let evidence = if evidence == "-" { String::new() } else { format!(": {evidence}") };
    output::print(&format!("{line}{evidence}\n"))
}

#[cfg(test)]
mod tests {
    use outlast_cli_core::output::Table;
    use serde_json::json;

    use super::COLUMNS;

    #[test]
    fn an_event_is_whole_in_a_pipe_and_wrapped_on_a_terminal() {
        let by = "worker shell-1";
        let evidence = "the worker reported that its process exited with code 0";
        let event = json!({"time": "2026-11-22T13:46:21.211Z", "type": "job.completed",
            "data": {"job_id": "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c", "by": by,
                "evidence": evidence}});
        let shown = Table::for_pipe(std::slice::from_ref(&event), COLUMNS).to_string();
        assert!(shown.contains(by) && shown.contains(evidence), "{shown}");
        let shown = Table::of(&[event], COLUMNS).fit(Some(100)).to_string();
        assert!(shown.contains("exited with code 0") && !shown.contains('…'), "{shown}");
    }
}
