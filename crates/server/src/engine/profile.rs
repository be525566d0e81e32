//! What a worker can run, and why it cannot run a class.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::labels::Facts;
use outlast_core::selector::Selector;
use outlast_core::{containment, labels};
use outlast_store::command::{Route, WorkerRole};
use outlast_store::record::WorkerRecord;
use serde_json::Value;

use crate::engine::asked::{Asked, Merit};

/// Most packs of a worker that are known.
const PACKS_MAX: usize = 500;
/// Most actions of which it is known what a worker lacks for them, and how long that may be.
const LACKING_MAX: usize = 100;
const LACKING_BYTES_MAX: usize = 300;
/// Longest sentence about a stale environment; some name two paths.
const STALE_BYTES_MAX: usize = 10_000;

/// What a worker can run. Many workers share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Profile {
    /// Kind.
    pub(crate) role: WorkerRole,
    /// Queues it serves; `*` is every queue.
    pub(crate) queues: Vec<String>,
    /// Runtimes it has.
    pub(crate) runtimes: Vec<String>,
    /// Labels it carries.
    pub(crate) labels: BTreeMap<String, String>,
    /// Types with a handler, or actions it has.
    pub(crate) types: BTreeSet<String>,
    /// Actions of its packs that it does not offer, and what it lacks for each.
    pub(crate) lacking: BTreeMap<String, String>,
    /// What it runs in stale environments, in words. It decides nothing; every server must learn
    /// when it changes.
    pub(crate) stale: Vec<String>,
}

/// Why a worker cannot run a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Misfit {
    /// It is of another kind.
    Role,
    /// It lacks the runtime.
    Runtime,
    /// It lacks a required label.
    Labels,
    /// It cannot prove that a process tree is dead.
    Containment,
    /// It has no such action or handler.
    Type,
    /// It does not serve the queue.
    Queue,
    /// It does not match what the jobs require.
    Requires,
    /// It does not match what their queue requires.
    QueueRequires,
}

impl Profile {
    /// Returns what a worker said when it registered.
    pub(crate) fn of(worker: &WorkerRecord) -> Self {
        let about: Value = serde_json::from_str(&worker.about).unwrap_or_default();
        let types = about.get("types").and_then(Value::as_array);
        let types = types.map(|types| types.iter().filter_map(Value::as_str));
        Self {
            role: worker.role,
            queues: worker.queues.clone(),
            runtimes: worker.runtimes.clone(),
            labels: with_facts(worker.labels.clone(), &about, &worker.runtimes),
            types: types.into_iter().flatten().map(ToOwned::to_owned).collect(),
            lacking: lacking(&about),
            stale: stale(&about),
        }
    }

    /// Returns whether the worker can run jobs of the class, else why not.
    pub(crate) fn fits(&self, asked: &Asked<'_>) -> Result<(), Misfit> {
        let key = asked.key;
        match (&key.route, self.role) {
            (Route::Action { runtime, labels, proof }, WorkerRole::Action) => {
                if !self.runtimes.contains(runtime) {
                    return Err(Misfit::Runtime);
                }
                if labels.iter().any(|(name, value)| self.labels.get(name) != Some(value)) {
                    return Err(Misfit::Labels);
                }
                let kind = self.labels.get(containment::LABEL);
                if *proof && !kind.is_some_and(|kind| containment::proves_death(kind)) {
                    return Err(Misfit::Containment);
                }
            }
            (Route::Plain, WorkerRole::Sdk) => {}
            (Route::Plain | Route::Action { .. }, _) => return Err(Misfit::Role),
        }
        if !self.types.contains(&key.job_type) {
            return Err(Misfit::Type);
        }
        if !self.serves(&key.queue) {
            return Err(Misfit::Queue);
        }
        if !key.placement.requires.matches(self.label()) {
            return Err(Misfit::Requires);
        }
        if !asked.by_queue.requires.matches(self.label()) {
            return Err(Misfit::QueueRequires);
        }
        Ok(())
    }

    /// Whether the worker takes jobs of a queue.
    pub(crate) fn serves(&self, queue: &str) -> bool {
        self.queues.iter().any(|served| served == "*" || served == queue)
    }

    /// Looks labels up.
    pub(crate) fn label<'a>(&'a self) -> impl Fn(&str) -> Option<&'a str> {
        |name| self.labels.get(name).map(String::as_str)
    }

    /// Returns how much the worker has of what is preferred.
    pub(crate) fn merit(&self, asked: &Asked<'_>) -> Merit {
        let label = self.label();
        let held = |of: &Selector| of.requirements().filter(|it| it.holds(&label)).count();
        Merit {
            by_jobs: held(&asked.key.placement.prefers),
            by_queue: held(&asked.by_queue.prefers),
        }
    }
}

/// Returns a worker's labels with what it says about itself under the reserved ones.
pub(crate) fn with_facts(
    said: BTreeMap<String, String>,
    about: &Value,
    runtimes: &[String],
) -> BTreeMap<String, String> {
    let text = |name: &str| about.get(name).and_then(Value::as_str);
    let packs = about.get("packs").and_then(Value::as_object);
    let facts = Facts {
        build: text("version"),
        containment: text("containment"),
        runtimes,
        packs: packs
            .into_iter()
            .flatten()
            .take(PACKS_MAX)
            .filter_map(|(name, pack)| Some((name.as_str(), pack.get("digest")?.as_str()?)))
            .collect(),
    };
    labels::with_facts(said, facts)
}

/// Returns what a worker says that it lacks, by action.
pub(crate) fn lacking(about: &Value) -> BTreeMap<String, String> {
    let said = about.get("lacking").and_then(Value::as_object);
    let text = |(action, what): (&String, &Value)| {
        let what = what.as_str().filter(|what| what.len() <= LACKING_BYTES_MAX)?;
        Some((action.clone(), what.to_owned()))
    };
    said.into_iter().flatten().take(LACKING_MAX).filter_map(text).collect()
}

/// Returns what a worker says that it runs in stale environments.
pub(crate) fn stale(about: &Value) -> Vec<String> {
    let said = about.get("stale").and_then(Value::as_array).into_iter().flatten();
    let words = said.filter_map(Value::as_str).filter(|words| words.len() <= STALE_BYTES_MAX);
    words.take(LACKING_MAX).map(ToOwned::to_owned).collect()
}

/// Returns in words why workers cannot run a class.
pub(crate) fn misfit_words(misfit: Misfit, asked: &Asked<'_>) -> String {
    let key = asked.key;
    match (misfit, &key.route) {
        (Misfit::Role, _) => "of another kind".into(),
        (Misfit::Runtime, Route::Action { runtime, .. }) => format!("without runtime {runtime}"),
        (Misfit::Labels, Route::Action { labels, .. }) => {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("without labels {}", labels.join(","))
        }
        (Misfit::Containment, _) => {
            let proving = containment::PROVING.join(" or ");
            format!("without containment {proving}, which `overlap: forbidden` needs")
        }
        (Misfit::Runtime | Misfit::Labels, Route::Plain) => "unable".into(),
        (Misfit::Type, Route::Action { .. }) => format!("without action {}", key.job_type),
        (Misfit::Type, Route::Plain) => format!("without a handler for {}", key.job_type),
        (Misfit::Queue, _) => format!("not serving queue {}", key.queue),
        (Misfit::Requires, _) => format!("not matching {}", key.placement.requires),
        (Misfit::QueueRequires, _) => format!("not matching {}", asked.by_queue.requires),
    }
}
