//! `outlast events`: what happened last, and with `--follow` what happens.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args as ClapArgs;
use clap::builder::NonEmptyStringValueParser;
use outlast_cli_core::client::{Client, Query};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, at, escape, say, text_at};
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
    /// Only events of this job, by id, by how its id begins or ends, or @last
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    job: Option<String>,
    /// Only events by this worker, by id or name
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    worker: Option<String>,
    /// Only changes by requests: who, from which address, and to what
    #[arg(long)]
    audit: bool,
    /// Only events since: a time, or an age such as 3h
    #[arg(long, value_name = "TIME", conflicts_with = "after",
          value_parser = NonEmptyStringValueParser::new())]
    since: Option<String>,
    /// Only events until: a time, or an age
    #[arg(long, value_name = "TIME", conflicts_with_all = ["after", "follow"],
          value_parser = NonEmptyStringValueParser::new())]
    until: Option<String>,
    /// Only events before the one with this id
    #[arg(long, value_name = "CURSOR", conflicts_with_all = ["after", "follow"])]
    before: Option<String>,
    /// Only events after the one with this id, the oldest of them first
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Most events to list, without --follow: the newest ones
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

const AUDIT: &[Column] = &[
    ("TIME", |event| text_at(event, "time")),
    ("BY", by),
    ("FROM", |event| text_at(event, "data.from")),
    ("EVENT", |event| text_at(event, "type")),
    ("TO", to_what),
    ("EVIDENCE", |event| text_at(event, "data.evidence")),
];

const COLUMNS: &[Column] = &[
    ("TIME", |event| text_at(event, "time")),
    ("EVENT", |event| text_at(event, "type")),
    ("JOB", subject),
    ("BY", by),
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
    let mut filters =
        vec![("type", args.types.clone()), ("queue", args.queue.clone()), ("worker", worker)];
    filters.push(("audit", args.audit.then(|| "true".to_owned())));
    filters.push(("since", args.since.clone()));
    let format = args.target.output;
    let columns = if args.audit { AUDIT } else { COLUMNS };
    if args.follow {
        return Follow::new(&client, format).run(&path, &filters, args.after).await;
    }
    if args.after.is_some() {
        let (events, goes_on) = pages(&client, &path, &filters, &args).await?;
        output::print_list(format, &events, columns)?;
        if let Some(cursor) = goes_on {
            search::say_goes_on(events.len(), "--after", &cursor);
        } else {
            output::say_if_empty(format, &events, "no event matches");
        }
        return Ok(Exit::Ok);
    }
    filters.push(("until", args.until.clone()));
    let newest = newest(&client, &path, &filters, &args).await?;
    output::print_list(format, &newest.events, columns)?;
    match newest.previous {
        Some(cursor) if newest.is_short => {
            search::say_goes_on(newest.events.len(), "--before", &cursor);
        }
        Some(cursor) => {
            let shown = newest.events.len();
            say(&format!(
                "the newest {shown}; --limit shows more, --before {cursor} earlier ones\n"
            ));
        }
        None => output::say_if_empty(format, &newest.events, "no event matches"),
    }
    Ok(Exit::Ok)
}

/// Longest page to request.
const PAGE_MAX: u32 = 500;

/// How many events are still to be read.
fn missing(limit: u32, events: &[Value]) -> u32 {
    limit.saturating_sub(u32::try_from(events.len()).unwrap_or(u32::MAX))
}

/// The newest events, oldest first.
struct Newest {
    events: Vec<Value>,
    /// Where earlier ones end, if there may be any.
    previous: Option<String>,
    /// Whether the search ended before there were as many as requested.
    is_short: bool,
}

/// Reads the newest events, page by page, until there are as many as requested or none is left.
async fn newest(
    client: &Client,
    path: &[&str],
    filters: &[Query<'_>],
    args: &Args,
) -> Result<Newest, Failure> {
    let mut newest = Newest { events: Vec::new(), previous: args.before.clone(), is_short: false };
    let mut empty = 0;
    loop {
        let mut query = filters.to_vec();
        query.push(("newest", Some("true".to_owned())));
        let wanted = missing(args.limit, &newest.events).min(PAGE_MAX);
        query.push(("limit", Some(wanted.to_string())));
        query.push(("before", newest.previous.take()));
        let page = client.get(path, &query).await.map_err(in_flags)?;
        let mut found = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        empty = if found.is_empty() { empty + 1 } else { 0 };
        found.append(&mut newest.events);
        newest.events = found;
        newest.previous =
            page.get("previous_cursor").and_then(Value::as_str).map(ToOwned::to_owned);
        newest.is_short = empty >= search::EMPTY_MAX;
        let is_full = missing(args.limit, &newest.events) == 0;
        if newest.previous.is_none() || newest.is_short || is_full {
            return Ok(newest);
        }
    }
}

/// Reads the events after one until there are as many as requested or no more. Returns also where to
/// search on if there was none for long.
async fn pages(
    client: &Client,
    path: &[&str],
    filters: &[Query<'_>],
    args: &Args,
) -> Result<(Vec<Value>, Option<String>), Failure> {
    let mut events = Vec::new();
    let (mut cursor, mut empty) = (args.after.clone(), 0);
    while empty < search::EMPTY_MAX {
        let missing = missing(args.limit, &events);
        if missing == 0 {
            return Ok((events, None));
        }
        let mut query = filters.to_vec();
        query.push(("stream", Some("false".to_owned())));
        query.push(("limit", Some(missing.min(PAGE_MAX).to_string())));
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

/// Returns the job that an event is about, else the worker, else the queue.
fn to_what(event: &Value) -> String {
    let is_about = |path: &&str| at(event, path).is_some_and(|it| !it.is_null());
    let is_queue = !["data.job_id", "data.worker_id"].iter().any(is_about);
    match at(event, "data.queue").and_then(Value::as_str).filter(|_| is_queue) {
        Some(queue) => format!("queue {queue}"),
        None => subject(event),
    }
}

/// Returns the job that an event is about, else the worker.
fn subject(event: &Value) -> String {
    if at(event, "data.job_id").is_some_and(|job| !job.is_null()) {
        return text_at(event, "data.job_id");
    }
    let name = ["data.worker_name", "data.worker_id"]
        .into_iter()
        .find(|name| at(event, name).is_some_and(|value| !value.is_null()));
    match name {
        Some(name) => format!("worker {}", text_at(event, name)),
        None => text_at(event, "data.job_id"),
    }
}

/// Who did it: a worker by its name.
fn by(event: &Value) -> String {
    let by = text_at(event, "data.by");
    match at(event, "data.worker_id").and_then(Value::as_str) {
        Some(id) if at(event, "data.worker_name").is_some() => {
            by.replace(id, &text_at(event, "data.worker_name"))
        }
        _ => by,
    }
}

fn in_flags(failure: Failure) -> Failure {
    let failure = field_flags::in_flags(failure, field_flags::EVENTS);
    if ["--after ", "--before "].iter().any(|flag| failure.message.starts_with(flag)) {
        return failure
            .with_hint("each line of `outlast events -o jsonl` has the `id` of its event");
    }
    failure
}

/// Events that are printed as they come.
struct Follow<'a> {
    client: &'a Client,
    format: Format,
    /// What workers are called; `None` for one that the server does not know.
    names: HashMap<String, Option<String>>,
}

impl<'a> Follow<'a> {
    fn new(client: &'a Client, format: Format) -> Self {
        Self { client, format, names: HashMap::new() }
    }

    /// Prints events until interrupted, and resumes where it was when the connection is lost. Earlier
    /// events are skipped unless a position or a time was named.
    async fn run(
        mut self,
        path: &[&str],
        filters: &[Query<'_>],
        mut after: Option<String>,
    ) -> Result<Exit, Failure> {
        let mut is_new = true;
        loop {
            let mut query = filters.to_vec();
            query.push(("stream", Some("true".to_owned())));
            query.push(("cursor", after.clone()));
            match self.client.stream(path, &query).await {
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
                                self.show(std::mem::take(&mut message), &mut after).await?;
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

    async fn show(&mut self, message: Message, after: &mut Option<String>) -> Result<(), Failure> {
        if let Some(mut event) = message.event {
            if self.format == Format::Table {
                self.name_worker(&mut event).await;
            }
            print(&event, self.format)?;
            output::end_without_reader()?;
        }
        if let Some(id) = message.id {
            *after = Some(id);
        }
        Ok(())
    }

    /// Adds what the event's worker is called: a stream says only its id.
    async fn name_worker(&mut self, event: &mut Value) {
        let Some(id) = at(event, "data.worker_id").and_then(Value::as_str) else { return };
        if !self.names.contains_key(id) {
            let found = self.client.get(&["api", "v1", "workers", id], &[]).await.ok();
            let name = found.and_then(|it| Some(at(&it, "data.name")?.as_str()?.to_owned()));
            self.names.insert(id.to_owned(), name);
        }
        if let Some(Some(name)) = self.names.get(id) {
            event["data"]["worker_name"] = Value::String(name.clone());
        }
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
}

fn print(event: &Value, format: Format) -> Result<(), Failure> {
    if format != Format::Table {
        return output::print(&format!("{event}\n"));
    }
    let about = ["data.job_id", "data.worker_name", "data.worker_id"];
    let about = about.into_iter().find_map(|path| at(event, path));
    let about = about.and_then(Value::as_str).unwrap_or("-");
    let text = |path: &str| text_at(event, path);
    let (time, kind, by) = (text("time"), text("type"), by(event));
    let from = at(event, "data.from").and_then(Value::as_str);
    let from = from.map(|from| format!(" from {from}")).unwrap_or_default();
    let line = format!("{time}  {kind:<18}  {}  by {by}{from}", escape(about));
    let evidence = text("data.evidence");
    let evidence = if evidence == "-" { String::new() } else { format!(": {evidence}") };
    output::print(&format!("{line}{evidence}\n"))
}

#[cfg(test)]
mod tests {
    use outlast_cli_core::output::Table;
    use serde_json::json;

    use super::{AUDIT, COLUMNS};

    /// The table showed a dash, and nothing else named the worker.
    #[test]
    fn an_event_of_a_worker_names_it() {
        let event = json!({"time": "2026-11-22T13:46:21.211Z", "type": "worker.lapsed",
            "data": {"by": "lease monitor", "worker_name": "shell-1",
                "worker_id": "01a1fcae-2d50-72c9-9c67-56e57a9c8e80"}});
        let shown = Table::for_pipe(&[event], COLUMNS).to_string();
        assert!(shown.contains("worker shell-1"), "{shown}");
    }

    #[test]
    fn a_change_says_who_from_where_and_to_what() {
        let data = json!({"by": "api: alice (curl/8)", "from": "192.0.2.7", "queue": "mail"});
        let event = json!({"time": "2026-11-22T13:46:21.211Z", "type": "queue.paused",
            "data": data});
        let shown = Table::for_pipe(&[event], AUDIT).to_string();
        let words = ["api: alice (curl/8)", "192.0.2.7", "queue.paused", "queue mail"];
        let places = words.map(|word| shown.find(word).unwrap_or_else(|| panic!("{shown}")));
        assert!(places.is_sorted(), "{shown}");
    }

    #[test]
    fn an_event_is_whole_in_a_pipe_and_wrapped_on_a_terminal() {
        let by = "worker shell-1";
        let evidence = "the worker reported that its process exited with code 0";
        let event = json!({"time": "2026-11-22T13:46:21.211Z", "type": "job.completed",
            "data": {"job_id": "01a1fcae-2d50-72c9-9c67-56e57a9c8e7c", "evidence": evidence,
                "by": "worker 01a1fcae-2d50-72c9-9c67-56e57a9c8e80", "worker_name": "shell-1",
                "worker_id": "01a1fcae-2d50-72c9-9c67-56e57a9c8e80"}});
        let shown = Table::for_pipe(std::slice::from_ref(&event), COLUMNS).to_string();
        assert!(shown.contains(by) && shown.contains(evidence), "{shown}");
        let shown = Table::of(&[event], COLUMNS).fit(Some(100)).to_string();
        assert!(shown.contains("exited with code 0") && !shown.contains('…'), "{shown}");
    }
}
