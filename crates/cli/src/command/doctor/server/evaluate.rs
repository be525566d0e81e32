//! From the server's report to verdicts. Pure functions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use outlast_cli_core::output::{at, span, text_at};
use outlast_core::finding::Rule;
use outlast_core::labels::short_digest;
use serde_json::Value;

use super::super::check::{Check, Level};
use super::super::files::{disk_check, fsync_check};

/// Largest clock skew without a warning: displayed times and schedules are off by it.
const SKEW_WARN: f64 = 1.0;
const SKEW_FAIL: f64 = 30.0;
/// Items that are named before "and N more".
const NAMED: usize = 3;

fn number(item: &Value, path: &str) -> Option<f64> {
    at(item, path)?.as_f64()
}

fn list<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    report.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A few of them by name.
fn few(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

fn length(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds.abs()).unwrap_or_default())
}

pub(super) fn versions(report: &Value) -> Check {
    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), text_at(report, "version"));
    let fact = format!("server {theirs}, client {ours}");
    let fix = "upgrade the older one; they may be at most one minor version apart";
    match minor_distance(ours, &theirs) {
        _ if ours == theirs => Check::ok("version skew", fact).with_number(0.0, "minor versions"),
        Some(apart @ 0..=1) => Check::warn("version skew", fact, "upgrade the older one")
            .with_number(f64::from(apart), "minor versions"),
        Some(apart) => {
            Check::fail("version skew", fact, fix).with_number(f64::from(apart), "minor versions")
        }
        None => Check::fail("version skew", fact, fix),
    }
}

/// How many minor versions apart two versions are; none if their major versions differ.
fn minor_distance(ours: &str, theirs: &str) -> Option<u32> {
    let parts = |text: &str| -> Option<(u32, u32)> {
        let mut parts = text.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let ((major, minor), (other_major, other_minor)) = (parts(ours)?, parts(theirs)?);
    (major == other_major).then_some(minor.abs_diff(other_minor))
}

pub(super) fn clocks(report: &Value, before: Timestamp, after: Timestamp) -> Vec<Check> {
    let time = |path: &str| text_at(report, path).parse::<Timestamp>().ok();
    let (Some(wall), Some(store)) = (time("wall_time"), time("store_time")) else {
        let why = "the server reported no time";
        return vec![Check::skipped("clock skew", why), Check::skipped("store clock", why)];
    };
    // The server looked at its clock at some moment between these two.
    let late = wall.duration_since(after).as_secs_f64();
    let early = wall.duration_since(before).as_secs_f64();
    let skew = if late > 0.0 {
        late
    } else if early < 0.0 {
        early
    } else {
        0.0
    };
    let drift = store.duration_since(wall).as_secs_f64();
    vec![
        skewed("clock skew", skew, "the server's wall clock", "this host's"),
        skewed("store clock", drift, "the store's clock", "the server's wall clock"),
    ]
}

fn skewed(name: &'static str, skew: f64, whose: &str, than: &str) -> Check {
    let direction = if skew < 0.0 { "behind" } else { "ahead of" };
    let fact = format!("{whose} is {} {direction} {than}", length(skew));
    let fix = "synchronise the clocks with NTP; displayed times and schedules depend on it, leases do not";
    let level = if skew.abs() > SKEW_FAIL { Level::Fail } else { Level::Warn };
    let check = if skew.abs() > SKEW_WARN {
        Check::wrong(name, level, fact, fix)
    } else {
        Check::ok(name, fact)
    };
    check.with_number(skew, "s")
}

pub(super) fn store(report: &Value) -> Vec<Check> {
    let kind = text_at(report, "store.kind");
    let fact = format!("{kind}: {}", text_at(report, "store.durability"));
    let durable = if at(report, "store.durable").and_then(Value::as_bool) == Some(true) {
        Check::ok("store durability", fact)
    } else {
        let fix = "a power cut loses accepted jobs: turn the store's durability on";
        Check::fail("store durability", fact, fix)
    };
    let folder = text_at(report, "store.folder");
    let fsync =
        match (number(report, "store.fsync.median_ms"), text_at(report, "store.fsync_error")) {
            (Some(median), _) => {
                let slowest = number(report, "store.fsync.slowest_ms").unwrap_or(median);
                fsync_check(&folder, median, slowest)
            }
            (None, error) if error != "-" => {
                Check::fail("store fsync", error, format!("make {folder} writable for the server"))
            }
            (None, _) => Check::skipped("store fsync", format!("a {kind} store has no disk here")),
        };
    let free =
        number(report, "store.disk.free_bytes").zip(number(report, "store.disk.total_bytes"));
    let disk = match free {
        Some((free, total)) => disk_check(&folder, free, total),
        None => Check::skipped("store disk", format!("a {kind} store has no disk here")),
    };
    vec![durable, fsync, disk]
}

pub(super) fn queues(report: &Value) -> Vec<Check> {
    vec![untaken(report), oldest(report), isolated(report), unstarted(report)]
}

/// Jobs that no worker may claim.
fn untaken(report: &Value) -> Check {
    const NAME: &str = "queues";
    of_rules(report, NAME, &[Rule::NobodyEligible, Rule::QueuePaused], || {
        let queues = counted(list(report, "queues").len(), "queue", "queues");
        let fact = format!("{queues}; every waiting job has a worker that can run it");
        Check::ok(NAME, fact).with_number(0.0, "findings")
    })
}

/// Checks that are nothing but what the server finds: their names, the rules, and what to say where it finds
/// nothing.
const FOUND: [(&str, &[Rule], &str); 7] = [
    ("store", &[Rule::StoreDown], "the store takes writes"),
    ("losses", &[Rule::JobsLost], "no attempt was lost in the last minutes"),
    (
        "failures",
        &[Rule::JobsFail, Rule::DeadLetters],
        "few attempts fail, and none is a new dead letter",
    ),
    ("schedules", &[Rule::SchedulesLate, Rule::SchedulesSkip], "schedules fire in time"),
    ("workflows", &[Rule::WorkflowsStuck], "workflows move on"),
    ("limits", &[Rule::LimitMiscounted], "limits count right"),
    ("heartbeats", &[Rule::HeartbeatsRefused], "no worker beats that was given up"),
];

/// What the server finds about the work itself.
pub(super) fn found(report: &Value) -> Vec<Check> {
    let check = |(name, rules, well): (&'static str, &[Rule], &str)| {
        of_rules(report, name, rules, || Check::ok(name, well).with_number(0.0, "findings"))
    };
    FOUND.into_iter().map(check).collect()
}

/// Judges by what the server finds, in its words: the page of findings has the same.
fn of_rules(
    report: &Value,
    name: &'static str,
    rules: &[Rule],
    well: impl FnOnce() -> Check,
) -> Check {
    if report.get("findings").is_none() {
        return Check::skipped(name, "the server is of an earlier build, which does not tell");
    }
    let is_of = |found: &&Value| {
        Rule::parse(&text_at(found, "rule")).is_some_and(|rule| rules.contains(&rule))
    };
    let found: Vec<&Value> = list(report, "findings").iter().filter(is_of).collect();
    let Some(worst) = found.first() else { return well() };
    let words = |found: &&Value| {
        let what = text_at(found, "what");
        match found.get("evidence").and_then(Value::as_str) {
            Some(evidence) if !evidence.is_empty() => format!("{what}: {evidence}"),
            _ => what,
        }
    };
    let facts: Vec<String> = found.iter().map(words).collect();
    let stands_still = found.iter().any(|it| it.get("stands_still") == Some(&Value::Bool(true)));
    let level = if stands_still { Level::Fail } else { Level::Warn };
    let check = Check::wrong(name, level, few(&facts), text_at(worst, "fix"));
    check.with_number(count(found.len()), "findings")
}

fn oldest(report: &Value) -> Check {
    const NAME: &str = "oldest waiting";
    let waits = |queue: &Value| {
        let seconds = number(queue, "oldest_waits_seconds")?;
        Some((seconds, text_at(queue, "name"), text_at(queue, "available")))
    };
    let waiting = list(report, "queues").iter().filter_map(waits);
    let Some((seconds, queue, available)) = waiting.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return Check::ok(NAME, "no job waits").with_number(0.0, "s");
    };
    let fact = format!("{} in queue {queue}, one of {available}", length(seconds));
    let check = of_rules(report, NAME, &[Rule::BacklogOld], || Check::ok(NAME, fact));
    check.with_number(seconds, "s")
}

/// Jobs that wait for a worker that holds nothing else.
fn isolated(report: &Value) -> Check {
    const NAME: &str = "isolated";
    let classes = list(report, "isolated");
    let jobs: f64 = classes.iter().filter_map(|class| number(class, "count")).sum();
    if jobs < 1.0 {
        return Check::ok(NAME, "no isolated job waits").with_number(0.0, "jobs");
    }
    let known = classes.iter().filter_map(|class| Some((number(class, "waits_seconds")?, class)));
    let first = match known.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((seconds, class)) => {
            format!(", the first for {}: {}", length(seconds), text_at(class, "first"))
        }
        None => String::new(),
    };
    let waits = if jobs < 2.0 { "1 job waits".to_owned() } else { format!("{jobs} jobs wait") };
    let fact =
        format!("{waits} for a worker that holds nothing else, as workers died under them{first}");
    let queue = classes.first().map_or_else(String::new, |class| text_at(class, "queue"));
    let fix = format!(
        "start one more worker for queue {queue}, which is idle; or cancel the job if it is what \
         kills workers"
    );
    Check::warn(NAME, fact, fix).with_number(jobs, "jobs")
}

/// Jobs that a worker was given and did not start.
fn unstarted(report: &Value) -> Check {
    const NAME: &str = "unstarted";
    let limit = number(report, "start_timeout_seconds").unwrap_or_default();
    let worded = |job: &Value| {
        let (id, worker) = (text_at(job, "id"), text_at(job, "worker"));
        format!("{id} at worker {worker}")
    };
    let jobs: Vec<String> = list(report, "unstarted").iter().map(worded).collect();
    let number = count(jobs.len());
    if jobs.is_empty() {
        let fact = format!("no claimed job has waited for its start longer than {}", length(limit));
        return Check::ok(NAME, fact).with_number(number, "jobs");
    }
    let jobs_word = counted(jobs.len(), "claimed job has", "claimed jobs have");
    let fact = format!("{jobs_word} not started for {}: {}", length(limit), few(&jobs));
    let fix = "look at the worker's log; if it does not respond, its lease will lapse";
    Check::warn(NAME, fact, fix).with_number(number, "jobs")
}

/// Whether workers have the files of packs that the server validates with.
pub(super) fn packs(report: &Value) -> Check {
    const NAME: &str = "packs";
    let skew: Vec<String> =
        list(report, "skew").iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
    if skew.is_empty() {
        return Check::ok(NAME, "workers have the packs of the server");
    }
    let fix = "install the same packs and secrets everywhere, run `outlast packs sync` where an \
               environment is missing or stale, and reload packs with SIGHUP";
    Check::warn(NAME, few(&skew), fix).with_number(count(skew.len()), "differences")
}

/// Whether several servers have the same packs. `answers` are their lists, by address.
pub(super) fn servers(answers: &[(String, Result<Value, String>)]) -> Check {
    const NAME: &str = "packs of servers";
    let digests = |packs: &Value| -> BTreeMap<String, String> {
        let packs = packs.as_array().into_iter().flatten();
        packs.map(|pack| (text_at(pack, "ref"), text_at(pack, "digest"))).collect()
    };
    let mut found: Vec<(&str, BTreeMap<String, String>)> = Vec::new();
    let mut differences = Vec::new();
    for (address, answer) in answers {
        match answer {
            Ok(packs) => found.push((address, digests(packs))),
            Err(error) => differences.push(format!("{address} does not say: {error}")),
        }
    }
    let names: BTreeSet<&String> = found.iter().flat_map(|(_, packs)| packs.keys()).collect();
    for name in names {
        let first = found.iter().find_map(|(address, packs)| Some((*address, packs.get(name)?)));
        let Some((with, digest)) = first else { continue };
        for (address, packs) in &found {
            match packs.get(name) {
                None => differences.push(format!("{address} lacks {name}")),
                Some(other) if other != digest => {
                    let (other, digest) = (short_digest(other), short_digest(digest));
                    differences.push(format!("{address} has {name} {other}, {with} has {digest}"));
                }
                Some(_) => {}
            }
        }
    }
    if differences.is_empty() {
        return Check::ok(NAME, format!("{} servers have the same packs", answers.len()));
    }
    let fix = "install the same packs everywhere, and reload them with SIGHUP";
    Check::warn(NAME, few(&differences), fix).with_number(count(differences.len()), "differences")
}

/// Workers that are silent, late, or take no jobs.
pub(super) fn workers(report: &Value) -> Check {
    const NAME: &str = "workers";
    const RULES: [Rule; 3] = [Rule::NoWorkers, Rule::WorkersLost, Rule::WorkerUnhealthy];
    let has_lease = |worker: &&Value| worker.get("holds_lease") == Some(&Value::Bool(true));
    let held: Vec<&Value> = list(report, "workers").iter().filter(has_lease).collect();
    of_rules(report, NAME, &RULES, || {
        if held.is_empty() {
            let fix = "start one: outlast worker --server URL";
            return Check::warn(NAME, "no worker is connected", fix).with_number(0.0, "workers");
        }
        let running = held.iter().filter(|it| text_at(it, "state") == "running").count();
        let fact = format!("{} send heartbeats in time, {running} take jobs", held.len());
        Check::ok(NAME, fact).with_number(count(held.len()), "workers")
    })
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
