//! Why a job waits, in words that an operator can act on.

use std::collections::BTreeMap;

use outlast_store::command::{ClassKey, Route, WorkerRole};
use outlast_store::record::WorkerRecord;

use crate::clock::boot_time;
use crate::engine::Board;
use crate::engine::roster::{Misfit, Profile};

/// Whether anyone may take jobs of a class, and if nobody, why.
pub(crate) enum Eligible {
    /// Someone will, in turn.
    Yes,
    /// The queue is paused.
    Paused,
    /// Nobody can; the words say which workers were considered.
    Nobody(String),
}

/// Returns why a claimable job of the class waits.
pub(crate) fn reason(key: &ClassKey, board: &Board) -> String {
    match eligible(key, board) {
        Eligible::Yes if key.isolated => {
            "waits for a worker that holds nothing else: two workers died under it".into()
        }
        Eligible::Yes => "waits for its turn".into(),
        Eligible::Paused => format!("queue {} is paused", key.queue),
        Eligible::Nobody(why) => why,
    }
}

/// Judges whether any live worker may take jobs of the class.
pub(crate) fn eligible(key: &ClassKey, board: &Board) -> Eligible {
    if board.is_paused(&key.queue) {
        return Eligible::Paused;
    }
    let sessions = board.sessions();
    let able = |view: &&crate::engine::roster::SessionView| view.profile.fits(key).is_ok();
    if sessions.iter().filter(able).any(|view| view.running && view.deaf.is_none()) {
        return Eligible::Yes;
    }
    if let Some(view) = sessions.iter().filter(able).find(|view| view.running) {
        let age = view.deaf.unwrap_or_default().as_secs();
        return Eligible::Nobody(format!(
            "no eligible worker: {} beats but has not polled for {age} s",
            view.profile.name
        ));
    }
    if key.route == Route::Plain && board.fetchers.serve(&key.queue, boot_time()) {
        return Eligible::Yes;
    }
    Eligible::Nobody(nobody(key, board))
}

fn nobody(key: &ClassKey, board: &Board) -> String {
    let workers = board.workers();
    let sessions = board.sessions();
    let wanted = match &key.route {
        Route::Action { runtime, .. } => format!("runtime {runtime}"),
        Route::Plain => format!("a handler for {}", key.job_type),
    };
    let role = match key.route {
        Route::Action { .. } => WorkerRole::Action,
        Route::Plain => WorkerRole::Sdk,
    };
    let of_role: Vec<&WorkerRecord> = workers.iter().filter(|worker| worker.role == role).collect();
    // A worker that has only just attached is not among the records that were last read.
    let fresh = sessions.iter().filter(|view| {
        view.profile.role == role && !workers.iter().any(|worker| worker.id == view.worker)
    });
    let fresh: Vec<_> = fresh.collect();
    if of_role.is_empty() && fresh.is_empty() {
        return format!("no eligible worker: no worker with {wanted} has registered");
    }
    let mut misfits: BTreeMap<Misfit, usize> = BTreeMap::new();
    let mut able = Vec::new();
    for worker in of_role {
        match profile_of(worker, &sessions).fits(key) {
            Ok(()) => able.push(worker),
            Err(misfit) => *misfits.entry(misfit).or_default() += 1,
        }
    }
    for view in fresh {
        match view.profile.fits(key) {
            Ok(()) => return format!("no eligible worker: {} takes none now", view.profile.name),
            Err(misfit) => *misfits.entry(misfit).or_default() += 1,
        }
    }
    if able.is_empty() {
        let why: Vec<String> = misfits
            .into_iter()
            .map(|(misfit, count)| format!("{count} {}", misfit_words(misfit, key)))
            .collect();
        return format!("no eligible worker: {}", why.join(", "));
    }
    format!("no eligible worker: {}", able_but_inactive(&able, &wanted, board))
}

/// A worker without a session here is judged by what it registered with; which actions it
/// had is then taken on trust.
fn profile_of(worker: &WorkerRecord, sessions: &[crate::engine::roster::SessionView]) -> Profile {
    let attached = sessions.iter().find(|view| view.worker == worker.id);
    attached.map_or_else(
        || Profile {
            name: worker.name.clone(),
            role: worker.role,
            queues: worker.queues.clone(),
            runtimes: worker.runtimes.clone(),
            labels: worker.labels.clone(),
            types: types_of(worker),
        },
        |view| Profile::clone(&view.profile),
    )
}

fn types_of(worker: &WorkerRecord) -> std::collections::HashSet<String> {
    let about: serde_json::Value = serde_json::from_str(&worker.about).unwrap_or_default();
    let types = about.get("types").and_then(serde_json::Value::as_array);
    types.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

fn able_but_inactive(able: &[&WorkerRecord], wanted: &str, board: &Board) -> String {
    let count = able.len();
    let (workers, have) = if count == 1 { ("worker", "has") } else { ("workers", "have") };
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for worker in able {
        *states.entry(state_words(worker)).or_default() += 1;
    }
    let all = match count {
        1 => "",
        2 => "both ",
        _ => "all ",
    };
    let states = match states.len() {
        1 => format!("{all}{}", states.keys().next().unwrap_or(&"inactive")),
        _ => states.iter().map(|(state, n)| format!("{n} {state}")).collect::<Vec<_>>().join(", "),
    };
    let latest = able.iter().map(|worker| worker.last_heartbeat).max();
    let age = match (latest, board.store_time()) {
        (Some(latest), Some(now)) => {
            format!(", last heartbeat {} s ago", now.since(latest).as_secs())
        }
        _ => String::new(),
    };
    format!("{count} {workers} {have} {wanted}, {states}{age}")
}

fn state_words(worker: &WorkerRecord) -> &'static str {
    match worker.standing.state() {
        "running" => "not connected",
        "stopped" | "lapsed" => "inactive",
        other => other,
    }
}

fn misfit_words(misfit: Misfit, key: &ClassKey) -> String {
    match (misfit, &key.route) {
        (Misfit::Role, _) => "of another kind".into(),
        (Misfit::Runtime, Route::Action { runtime, .. }) => format!("without runtime {runtime}"),
        (Misfit::Labels, Route::Action { labels, .. }) => {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("without labels {}", labels.join(","))
        }
        (Misfit::Runtime | Misfit::Labels, Route::Plain) => "unable".into(),
        (Misfit::Type, Route::Action { .. }) => format!("without action {}", key.job_type),
        (Misfit::Type, Route::Plain) => format!("without a handler for {}", key.job_type),
        (Misfit::Queue, _) => format!("not serving queue {}", key.queue),
    }
}
