//! From the server's report to verdicts. Pure functions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use outlast_cli_core::output::{at, span, text_at};
use outlast_core::labels::short_digest;
use serde_json::Value;

use super::super::check::{Check, Level};
use super::super::files::{disk_check, fsync_check};

/// Largest clock skew without a warning: displayed times and schedules are off by it.
const SKEW_WARN: f64 = 1.0;
const SKEW_FAIL: f64 = 30.0;
/// A job that waits longer than this is worth a warning.
const WAITS_WARN: f64 = 300.0;
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
    let worded = |class: &&Value| {
        let (queue, kind) = (text_at(class, "queue"), text_at(class, "type"));
        format!("{kind} in queue {queue}: {}", text_at(class, "reason"))
    };
    let is_paused =
        |class: &&Value| class.get("paused").and_then(Value::as_bool).unwrap_or_default();
    let (paused, stranded): (Vec<&Value>, Vec<&Value>) =
        list(report, "untaken").iter().partition(is_paused);
    if !stranded.is_empty() {
        let names: Vec<String> = stranded.iter().map(worded).collect();
        let kinds = counted(stranded.len(), "kind of job waits", "kinds of jobs wait");
        let fact = format!("{kinds} that no worker can run: {}", few(&names));
        let lacks_action =
            |class: &&Value| class.get("lacks_action").and_then(Value::as_bool).unwrap_or_default();
        let lacks_action = stranded.iter().any(lacks_action);
        let fix = if lacks_action {
            "a worker offers an action only with its pack, its interpreter and its secrets: look for \
             `action not offered` in the workers' logs, which say what is missing; or start a worker \
             with the same packs"
        } else {
            "start a worker that serves this queue, runtime and labels, with the same packs"
        };
        return Check::fail(NAME, fact, fix).with_number(count(stranded.len()), "classes");
    }
    if !paused.is_empty() {
        let mut names: Vec<String> = paused.iter().map(|class| text_at(class, "queue")).collect();
        names.dedup();
        let fact = format!("jobs wait in paused queues: {}", few(&names));
        let fix = format!("outlast queues resume {}", names.first().map_or("QUEUE", |name| name));
        return Check::warn(NAME, fact, fix).with_number(count(names.len()), "paused queues");
    }
    let queues = counted(list(report, "queues").len(), "queue", "queues");
    Check::ok(NAME, format!("{queues}; every waiting job has a worker that can run it"))
        .with_number(0.0, "classes")
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
    let check = if seconds > WAITS_WARN {
        let fix = "if the wait is too long, add workers or raise --concurrency";
        Check::warn(NAME, fact, fix)
    } else {
        Check::ok(NAME, fact)
    };
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

/// Workers that are silent, late, or take no jobs.
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

pub(super) fn workers(report: &Value) -> Vec<Check> {
    const NAME: &str = "workers";
    let all = list(report, "workers");
    let has_lease = |worker: &&Value| worker.get("holds_lease") == Some(&Value::Bool(true));
    let held: Vec<&Value> = all.iter().filter(has_lease).collect();
    let troubled: Vec<String> = held.iter().filter_map(|worker| trouble(worker)).collect();
    let number = count(held.len());
    if held.is_empty() {
        let fact = "no worker is connected";
        let fix = "start one: outlast worker --server URL";
        return vec![Check::warn(NAME, fact, fix).with_number(number, "workers")];
    }
    if !troubled.is_empty() {
        let of = counted(held.len(), "worker", "workers");
        let fact = format!("{} of {of} in trouble: {}", troubled.len(), few(&troubled));
        let fix = "look at their hosts and logs; their jobs stay with them until the lease lapses";
        return vec![Check::warn(NAME, fact, fix).with_number(count(troubled.len()), "workers")];
    }
    let running = held.iter().filter(|worker| text_at(worker, "state") == "running").count();
    let fact = format!("{} send heartbeats in time, {running} take jobs", held.len());
    vec![Check::ok(NAME, fact).with_number(number, "workers")]
}

fn trouble(worker: &Value) -> Option<String> {
    let name = text_at(worker, "name");
    let age = number(worker, "heartbeat_age_seconds")?;
    let interval = number(worker, "interval_seconds")?;
    let lease = number(worker, "lease_seconds")?;
    if text_at(worker, "state") == "suspect" {
        return Some(format!("{name} is suspect, last heartbeat {} ago", length(age)));
    }
    if let Some(reason) = worker.get("unhealthy").and_then(Value::as_str) {
        return Some(format!("{name} is unhealthy and takes no jobs: {reason}"));
    }
    if let Some(deaf) = number(worker, "deaf_seconds") {
        return Some(format!("{name} sends heartbeats but has taken no job for {}", length(deaf)));
    }
    // One heartbeat in flight is not late.
    (age > interval * 2.0).then(|| {
        let (age, lease) = (length(age), length(lease));
        format!("{name} is late: last heartbeat {age} ago, lease {lease}")
    })
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
