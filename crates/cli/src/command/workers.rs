//! `outlast workers`: list, show, take out of service and back.

mod groups;
mod order;
mod standing;
mod wait;

use std::collections::BTreeMap;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, at, fields, say, text_at, when};
use outlast_core::labels;
use serde_json::Value;

use self::wait::Verb;
use super::{Target, job_id};
use crate::config::Environment;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the workers that live, or all
    List(List),
    /// Show one worker
    Show(One),
    /// Stop giving workers jobs; running jobs continue
    Quiet(order::Order),
    /// Give quiet workers jobs again
    Resume(order::Order),
    /// Let workers finish their running jobs, then stop them
    Drain(order::Order),
    /// List the orders that hold for workers that start later
    Orders(standing::Orders),
    /// Remove a stopped or dead worker from the list
    Forget(One),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Also those that stopped, were killed, or lapsed
    #[arg(short, long)]
    all: bool,
    /// Only this status: active or inactive
    #[arg(long, value_parser = ["active", "inactive"], hide_possible_values = true)]
    status: Option<String>,
    /// Only workers whose labels match, such as "gpu=true, zone in (a, b), !spot"
    #[arg(long)]
    selector: Option<String>,
    /// Count them: a row for each version, pool, or value of this label; those that ended, too
    #[arg(long, value_name = "version|pool|LABEL", conflicts_with_all = ["status", "limit", "all"],
        value_parser = NonEmptyStringValueParser::new())]
    by: Option<String>,
    /// Most workers to list
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Worker, by id, id prefix or name
    worker: String,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(&args, environment).await,
        Command::Show(args) => show(&args, environment).await,
        Command::Quiet(args) => order::run(&args, environment, Verb::Quiet).await,
        Command::Resume(args) => order::run(&args, environment, Verb::Resume).await,
        Command::Drain(args) => order::run(&args, environment, Verb::Drain).await,
        Command::Orders(args) => standing::list(&args, environment).await,
        Command::Forget(args) => forget(&args, environment).await,
    }
}

/// Without the status, which follows from the state: `active` is running.
const COLUMNS: &[Column] = &[
    ("ID", |worker| text_at(worker, "id")),
    ("NAME", |worker| text_at(worker, "name")),
    ("ROLE", |worker| text_at(worker, "worker_role")),
    ("POOL", |worker| text_at(worker, "pool")),
    ("STATE", state),
    ("RUNS", |worker| {
        format!("{}/{}", text_at(worker, "in_flight"), text_at(worker, "concurrency"))
    }),
    ("SEEN", |worker| ago(worker, "last_heartbeat").trim_end_matches(" ago").to_owned()),
    ("RUNTIMES", |worker| text_at(worker, "runtimes")),
];

/// How it is; of one that has ended, how it ended.
fn state(worker: &Value) -> String {
    let ended = text_at(worker, "ended");
    match (ended.as_str(), text_at(worker, "health.status").as_str()) {
        ("-", "unhealthy") => "unhealthy".to_owned(),
        ("-", _) => text_at(worker, "state"),
        _ => ended,
    }
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    if let Some(by) = &args.by {
        let label = BTreeMap::from([(by.clone(), String::new())]);
        labels::check_wanted(&label).map_err(|error| {
            Failure::usage(format!("--by takes version, pool or a label: {error}"))
        })?;
        let listed = all(&client, &[("selector", args.selector.clone())]).await;
        let workers = listed.map_err(|failure| failure.in_flags(&[("selector", "--selector")]))?;
        let rows = groups::rows(&workers, by);
        output::print_list(args.target.output, &rows, groups::COLUMNS)?;
        output::say_if_empty(args.target.output, &rows, "there are no workers");
        return Ok(Exit::Ok);
    }
    // `inactive` is said of workers that ended, too.
    let is_live = !args.all && args.status.is_none();
    let filters = [
        ("status", args.status.clone()),
        ("selector", args.selector.clone()),
        ("live", is_live.then(|| "true".to_owned())),
    ];
    let listed = pages(&client, &filters, args.limit).await;
    let (found, total) =
        listed.map_err(|failure| failure.in_flags(&[("selector", "--selector")]))?;
    output::print_list(args.target.output, &found, COLUMNS)?;
    let is_filtered = args.status.is_some() || args.selector.is_some();
    let none = if is_filtered { "no worker matches" } else { "there are no workers" };
    let is_table = args.target.output == Format::Table;
    let hidden = if is_live && is_table { ended(&client, args).await } else { 0 };
    match hidden {
        0 => output::say_if_empty(args.target.output, &found, none),
        1 => say("1 worker has ended; --all shows it\n"),
        _ => say(&format!("{hidden} workers have ended; --all shows them\n")),
    }
    if is_table {
        say_standing(&client).await;
    }
    if let Some(total) = total {
        say(&format!("{} of {total} shown; --limit shows more\n", found.len()));
    }
    Ok(Exit::Ok)
}

/// Says that orders hold for workers that start later: those who wonder why one is quiet look here.
async fn say_standing(client: &Client) {
    match standing::fetch(client).await.map_or(0, |orders| orders.len()) {
        0 => {}
        1 => say("1 order holds for workers that start later; `outlast workers orders` shows it\n"),
        count => say(&format!(
            "{count} orders hold for workers that start later; `outlast workers orders` shows them\n"
        )),
    }
}

/// How many workers that match have ended.
async fn ended(client: &Client, args: &List) -> u64 {
    let count = async |is_live: bool| {
        let query = [
            ("selector", args.selector.clone()),
            ("live", is_live.then(|| "true".to_owned())),
            ("limit", Some("1".to_owned())),
        ];
        let page = client.get(&["api", "v1", "workers"], &query).await.ok()?;
        at(&page, "pagination.total")?.as_u64()
    };
    // It stands beside the list: what cannot be counted is not said.
    match (count(false).await, count(true).await) {
        (Some(all), Some(live)) => all.saturating_sub(live),
        _ => 0,
    }
}

async fn show(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = resolve(&client, &args.worker).await?;
    let answer = client.get(&["api", "v1", "workers", &id], &[]).await?;
    let worker = output::data(answer);
    output::print_one(args.target.output, &worker, page)?;
    Ok(Exit::Ok)
}

async fn forget(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = resolve(&client, &args.worker).await?;
    let answer = client.delete(&["api", "v1", "workers", &id]).await?;
    if args.target.format() != Format::Table {
        let answer = output::data(answer);
        output::print_one(args.target.format(), &answer, Value::to_string)?;
    }
    say(&format!("worker {id} removed\n"));
    Ok(Exit::Ok)
}

fn page(worker: &Value) -> String {
    let text = |path: &str| text_at(worker, path);
    fields(&[
        ("id", text("id")),
        ("name", text("name")),
        ("role", text("worker_role")),
        ("status", text("status")),
        ("state", state(worker)),
        ("evidence", text("evidence")),
        ("ordered", ordered(worker)),
        ("follows", text("previous")),
        ("health", health(worker)),
        ("in flight", text("in_flight")),
        ("concurrency", text("concurrency")),
        ("queues", text("queues")),
        ("runtimes", text("runtimes")),
        ("pool", text("pool")),
        ("labels", labels(worker)),
        ("packs", packs(worker)),
        ("skew", text("skew")),
        ("host", text("about.host")),
        ("process", text("about.pid")),
        ("containment", text("about.containment")),
        ("started", when(worker, "started")),
        ("heartbeat", when(worker, "last_heartbeat")),
    ])
}

/// Its labels, without those that say which packs it has.
fn labels(worker: &Value) -> String {
    let mut shown = worker.get("labels").cloned().unwrap_or_default();
    if let Some(all) = shown.as_object_mut() {
        all.retain(|name, _| !labels::is_of_packs(name));
    }
    text_at(&serde_json::json!({ "labels": shown }), "labels")
}

/// Its packs, each with version and digest.
fn packs(worker: &Value) -> String {
    let Some(packs) = at(worker, "about.packs").and_then(Value::as_object) else {
        return "-".to_owned();
    };
    let word = |(name, pack): (&String, &Value)| {
        let digest = text_at(pack, "digest");
        let digest = labels::short_digest(&digest);
        match pack.get("version").and_then(Value::as_str) {
            Some(version) => format!("{name} {version} ({digest})"),
            None => format!("{name} ({digest})"),
        }
    };
    packs.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The latest order to the worker, with its age.
fn ordered(worker: &Value) -> String {
    match text_at(worker, "ordered").as_str() {
        "-" => "-".to_owned(),
        order => format!("{order} {}", ago(worker, "ordered_at")),
    }
}

/// Whether it is healthy, or else why not and since when.
fn health(worker: &Value) -> String {
    match text_at(worker, "health.status").as_str() {
        "unhealthy" => {
            let since = ago(worker, "health.since");
            format!("unhealthy since {since}: {}", text_at(worker, "health.reason"))
        }
        status => status.to_owned(),
    }
}

/// All workers that the server lists.
pub(crate) async fn all(
    client: &Client,
    filters: &[outlast_cli_core::client::Query<'_>],
) -> Result<Vec<Value>, Failure> {
    Ok(pages(client, filters, u32::MAX).await?.0)
}

/// Most workers that a prefix which is too short names.
const NAMED: u32 = 10;
/// Longest page to request.
const PAGE_MAX: u32 = 500;

/// Reads pages until there are `limit` workers or no more; prints the total if there are more.
async fn pages(
    client: &Client,
    filters: &[outlast_cli_core::client::Query<'_>],
    limit: u32,
) -> Result<(Vec<Value>, Option<String>), Failure> {
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let before = cursor.clone();
        let missing = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        let mut query = filters.to_vec();
        query.push(("limit", Some(missing.min(PAGE_MAX).to_string())));
        query.push(("cursor", cursor.take()));
        let page = client.get(&["api", "v1", "workers"], &query).await?;
        let items = page.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        found.extend(items);
        cursor = page.pointer("/pagination/next_cursor").and_then(Value::as_str).map(str::to_owned);
        // A page may be empty and not the last. The same cursor again would never end.
        if cursor.is_none() || cursor == before {
            return Ok((found, None));
        }
        if u32::try_from(found.len()).is_ok_and(|count| count >= limit) {
            return Ok((found, Some(text_at(&page, "pagination.total"))));
        }
    }
}

/// The id of a worker, from an id, a prefix or a name. A name means the active worker of that
/// name, else the one that lives, else the only one. A name is never read as a prefix of an id.
pub(crate) async fn resolve(client: &Client, given: &str) -> Result<String, Failure> {
    if uuid::Uuid::try_parse(given).is_ok() {
        return Ok(given.to_owned());
    }
    let found = all(client, &[("name", Some(given.to_owned()))]).await?;
    let named: Vec<&Value> =
        found.iter().filter(|worker| text_at(worker, "name") == given).collect();
    let meant = meant(&named);
    match meant.as_slice() {
        // The list by name holds no others.
        [] if job_id::is_beginning(given) => {
            let query = [("id", Some(given.to_owned())), ("limit", Some(NAMED.to_string()))];
            let page = client.get(&["api", "v1", "workers"], &query).await?;
            let items = page.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            begun(items, given)
        }
        [] => begun(&[], given),
        [one] => Ok(text_at(one, "id")),
        several => {
            let ids: Vec<String> = several.iter().map(|worker| text_at(worker, "id")).collect();
            let message = format!("{} workers are named `{given}`", several.len());
            Err(Failure::new(Exit::Conflict, format!("{message}\n{}", ids.join("\n")))
                .with_hint("use the id"))
        }
    }
}

/// Of workers with one name, those that a user means: the active ones, else those that live, such
/// as a quiet one, else the latest. A restarted worker leaves its former self behind for days.
fn meant<'a>(named: &[&'a Value]) -> Vec<&'a Value> {
    let is_active = |worker: &&&Value| text_at(worker, "status") == "active";
    let active: Vec<&Value> = named.iter().filter(is_active).copied().collect();
    let living: Vec<&Value> = named.iter().filter(|worker| lives(worker)).copied().collect();
    let latest = || named.iter().max_by_key(|worker| text_at(worker, "started")).copied();
    let found = [active, living].into_iter().find(|some| !some.is_empty());
    found.unwrap_or_else(|| latest().into_iter().collect())
}

/// Whether a worker has neither stopped nor lapsed.
fn lives(worker: &Value) -> bool {
    !matches!(text_at(worker, "state").as_str(), "stopped" | "lapsed")
}

/// The id of the only worker with this prefix.
fn begun(workers: &[Value], given: &str) -> Result<String, Failure> {
    let begins = |id: &String| job_id::digits(id).starts_with(&job_id::digits(given));
    let mut ids: Vec<String> = Vec::new();
    if job_id::is_beginning(given) {
        ids = workers.iter().map(|worker| text_at(worker, "id")).filter(begins).collect();
    }
    match ids.as_slice() {
        [] => {
            let message = format!("no worker has the name or id prefix `{given}`");
            Err(Failure::new(Exit::NotFound, message).with_hint("`outlast workers list` shows all"))
        }
        [one] => Ok(one.clone()),
        several => {
            let message =
                format!("several workers' ids begin with {given}\n{}", several.join("\n"));
            Err(Failure::new(Exit::Conflict, message).with_hint("use a longer prefix"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use outlast_cli_core::output::Table;

    use super::{COLUMNS, begun, meant};

    #[test]
    fn a_usual_list_fits_a_hundred_columns() {
        let worker = json!({"id": "01a1fcae-2d50-72c9-9c67-56e57a9c8e01", "name": "worker-1",
            "worker_role": "action", "status": "inactive", "state": "draining", "in_flight": 10,
            "concurrency": 10, "last_heartbeat": "2026-11-22T13:46:21.211Z",
            "runtimes": ["shell", "python", "node"]});
        let shown = Table::of(&[worker], COLUMNS).fit(None).to_string();
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    }

    #[test]
    fn a_name_means_the_quiet_worker_and_not_those_that_stopped() {
        let worker = |id: &str, status: &str, state: &str| {
            let started = format!("2026-11-27T08:00:0{id}Z");
            json!({"id": id, "status": status, "state": state, "started": started})
        };
        let (old, lapsed) = (worker("1", "inactive", "stopped"), worker("2", "inactive", "lapsed"));
        let (quiet, active) = (worker("3", "inactive", "quiet"), worker("4", "active", "running"));
        assert_eq!(meant(&[&old, &quiet, &lapsed]), [&quiet]);
        assert_eq!(meant(&[&old, &quiet, &active]), [&active]);
        // Both have ended: the latest.
        assert_eq!(meant(&[&lapsed, &old]), [&lapsed]);
    }

    #[test]
    fn the_beginning_of_an_id_is_that_of_one_worker() {
        let ids = ["01900000-0000-7000-8000-0000000000aa", "01900000-0001-7000-8000-0000000000bb"];
        let workers: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
        for (given, found) in [
            ("01900000-0000", Some(ids[0])),
            ("019000000001", Some(ids[1])),
            ("01900000-0001-7000-8000-0000000000BB", Some(ids[1])),
            ("0190", None),
            ("019", None),
            ("01900000-0002", None),
            ("shell-1", None),
            ("", None),
        ] {
            assert_eq!(begun(&workers, given).ok().as_deref(), found, "{given}");
        }
        let several = begun(&workers, "0190").unwrap_err();
        assert!(several.message.contains(ids[0]) && several.message.contains(ids[1]));
    }
}
