//! Every key there is: name, default, what it is for, and the check of its value.

use std::cmp::Reverse;

use serde_json::Value;

use super::value::{self, Parse};

/// A key of the configuration.
#[derive(Debug)]
pub(crate) struct Key {
    /// `section.key`.
    pub(crate) name: &'static str,
    /// Its default, written as in the environment; empty means none.
    pub(crate) default: &'static str,
    /// What it is for, in half a line.
    pub(crate) about: &'static str,
    /// Whether its value must not be shown.
    pub(crate) secret: bool,
    /// Whether a value makes sense; says what would.
    pub(crate) check: Parse<()>,
}

impl Key {
    pub(crate) fn default_shown(&self) -> &'static str {
        if self.default.is_empty() { "none" } else { self.default }
    }
}

/// All of them, in the order in which they are documented.
pub(crate) const ALL: &[Key] = &[
    key("server.listen", "127.0.0.1:8080", "address and port to listen on", |v| {
        value::listen(v).map(drop)
    }),
    key("server.database", "sqlite:outlast.db", "where jobs are stored", |v| {
        value::database(v).map(drop)
    }),
    key("server.shutdown_timeout", "30", "how long open requests may take at a stop", span),
    key("server.packs", "", "folders with packs, beside the built-in one", list),
    Key {
        name: "server.tokens",
        default: "",
        about: "bearer tokens: a list of {name, role, token or sha256}",
        secret: true,
        check: |v| value::tokens(v).map(drop),
    },
    key("server.max_body", "1 MiB", "largest request body", |v| value::size(v).map(drop)),
    key("executor.scheduled_timeout", "300", "how long an execution waits without a worker", span),
    key("executor.start_timeout", "30", "how long a worker may take to start a job", span),
    key("executor.timeout_check_interval", "1", "longest time between two sweeps", span),
    key("executor.enable_timeout_monitor", "true", "whether sweeps run on this server", |v| {
        value::flag(v).map(drop)
    }),
    key("executor.interruptions", "free", "whether a shutdown spends a retry", |v| {
        value::interruptions(v).map(drop)
    }),
    key("executor.loss_budget", "3", "worker deaths a job may suffer", count),
    key("executor.interruption_budget", "10", "shutdowns a job may suffer", count),
    key("ojs.lease", "30", "lease of a job fetched by a plain OJS client", span),
    key("retention.finished", "7d", "how long finished jobs are kept", span),
    key("retention.workers", "7d", "how long stopped and lapsed workers are kept", span),
    key("worker.server", "http://127.0.0.1:8080", "the server to work for", |v| {
        value::url(v).map(drop)
    }),
    Key {
        name: "worker.token",
        default: "",
        about: "bearer token shown to the server",
        secret: true,
        check: |v| value::text(v).map(drop),
    },
    key("worker.name", "", "label of the worker; the host's name if none", text),
    key("worker.heartbeat_interval", "5", "time between two heartbeats, 0.1 to 300 s", |v| {
        value::heartbeat(v).map(drop)
    }),
    key(
        "worker.heartbeat_staleness_multiplier",
        "3",
        "a lease is this many heartbeat intervals, 2 to 100",
        |v| value::multiplier(v).map(drop),
    ),
    key("worker.reconnect_window", "5", "how long a dropped worker may take to come back", span),
    key("worker.shutdown_timeout", "30", "how long running jobs may take at a stop", span),
    key("worker.concurrency", "10", "jobs at the same time, 1 to 10000", |v| {
        value::concurrency(v).map(drop)
    }),
    key("worker.queues", "default", "queues to take jobs from", |v| value::names(v).map(drop)),
    key("worker.labels", "", "labels as name=value", |v| value::labels(v).map(drop)),
    key("worker.runtimes", "", "shell, python, node; all that are found if none", |v| {
        value::runtimes(v).map(drop)
    }),
    key("worker.packs", "", "folders with packs, beside the built-in one", list),
    key(
        "worker.containment",
        "auto",
        "how process trees are held: auto, pidns, cgroup, subreaper",
        |v| value::containment(v).map(drop),
    ),
];

const fn key(
    name: &'static str,
    default: &'static str,
    about: &'static str,
    check: Parse<()>,
) -> Key {
    Key { name, default, about, secret: false, check }
}

fn span(value: &Value) -> Result<(), &'static str> {
    value::duration(value).map(drop)
}

fn count(value: &Value) -> Result<(), &'static str> {
    value::count(value).map(drop)
}

fn text(value: &Value) -> Result<(), &'static str> {
    value::text(value).map(drop)
}

fn list(value: &Value) -> Result<(), &'static str> {
    value::paths(value).map(drop)
}

/// The key of that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    ALL.iter().find(|key| key.name == name)
}

/// The environment variable of a key.
pub(crate) fn variable(name: &str) -> String {
    format!("OUTLAST_{}", name.replace('.', "__").to_uppercase())
}

/// The key that somebody who wrote `name` most likely meant.
pub(crate) fn nearest(name: &str) -> &'static str {
    let wanted = name.to_lowercase();
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    // The section is often right or wrong as a whole, so the last part alone counts as well.
    let score = |key: &Key| {
        let whole = strsim::jaro_winkler(&wanted, key.name);
        let end = strsim::jaro_winkler(&last(&wanted), &last(key.name)) * 0.99;
        let close = whole.max(end) * 1e6;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a similarity is between 0 and 1, so this is between 0 and a million"
        )]
        let rank = close as u32;
        (rank, Reverse(key.name.len()))
    };
    ALL.iter().max_by_key(|key| score(key)).map_or("server.listen", |key| key.name)
}
