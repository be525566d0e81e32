//! Every key there is: name, default, what it is for, and what is written as its value.

use std::borrow::Cow;
use std::cmp::Reverse;

use outlast_wire::nearest::nearest as nearest_of;
use serde_json::Value;

use super::value;

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
    /// What is written as its value.
    pub(crate) kind: Kind,
}

impl Key {
    pub(crate) fn default_shown(&self) -> &'static str {
        if self.default.is_empty() { "none" } else { self.default }
    }
}

/// What is written as a key's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The unit of a bare number, or what else it is.
    pub(crate) unit: &'static str,
    /// Whether a value makes sense; says what would.
    pub(crate) check: Check,
}

type Check = fn(&Value) -> Result<(), Cow<'static, str>>;

const ADDRESS: Kind = kind("address and port", |v| checked(value::listen(v)));
const DATABASE: Kind =
    kind("sqlite:PATH or postgres://USER@HOST/NAME", |v| checked(value::database(v)));
const DURATION: Kind = kind("seconds", |v| checked(value::duration(v)));
const PROBE_DURATION: Kind = kind("seconds", |v| checked(value::probe_duration(v)));
const HEARTBEAT: Kind = kind("seconds", |v| checked(value::heartbeat(v)));
const SIZE: Kind = kind("bytes", |v| checked(value::size(v)));
const COUNT: Kind = kind("number", |v| checked(value::count(v)));
const MULTIPLIER: Kind = kind("number", |v| checked(value::multiplier(v)));
const CONCURRENCY: Kind = kind("number", |v| checked(value::concurrency(v)));
const FLAG: Kind = kind("true or false", |v| checked(value::flag(v)));
const INTERRUPTIONS: Kind = kind("free or charge", |v| checked(value::interruptions(v)));
const BASE_PATH: Kind = kind("path", |v| checked(value::base_path(v)));
const UI: Kind = kind("on, read_only or off", |v| checked(value::ui(v)));
const LOG_FORMAT: Kind = kind("text or json", |v| checked(value::log_format(v)));
const CONTAINMENT: Kind = kind("word", |v| checked(value::containment(v)));
const URLS: Kind = kind("URL, or several", |v| checked(value::servers(v)));
const TEXT: Kind = kind("text", |v| checked(value::text(v)));
const QUEUES: Kind = kind("list", |v| checked(value::queues(v)));
const FILE: Kind = kind("file", |v| checked(value::file(v)));
const ROLES: Kind = kind("mapping", |v| checked(value::roles(v)));
const LIST: Kind = kind("list", |v| checked(value::list(v)));
const PATHS: Kind = kind("list", |v| checked(value::paths(v)));
const PATH: Kind = kind("path", |v| checked(value::path(v)));
const VARIABLES: Kind = kind("list", |v| checked(value::variables(v)));
const RUNTIMES: Kind = kind("list", |v| checked(value::runtimes(v)));
const TOKEN: Kind = kind("text", |v| checked(value::shown_token(v)));
const TOKENS: Kind = kind("list", |v| checked(value::tokens(v)));
const DEAD_LETTERS: Kind = kind("list", |v| checked(value::dead_letters(v)));
const WEBHOOK_SECRET: Kind = kind("text", |v| checked(value::webhook_secret(v)));
const WEBHOOK_TIMEOUT: Kind = kind("seconds", |v| checked(value::webhook_timeout(v)));
const NETWORKS: Kind = kind("list", |v| checked(value::networks(v)));
const LIMITS: Kind = kind("list", |v| checked(value::limits(v)));
const SCHEDULES: Kind = kind("list", |v| checked(value::schedules(v)));
const COMMAND: Kind = kind("list or text", |v| checked(value::command(v)));
const TIMES: Kind = kind("number", |v| checked(value::times(v)));
const SIZE_OR_NONE: Kind = kind("bytes", |v| checked(value::size_or_none(v)));
const PERCENT: Kind = kind("percent", |v| checked(value::percent(v)));
const LABELS: Kind = kind("mapping", |v| checked(value::worker_labels(v)));
const POOL: Kind = kind("text", |v| checked(value::pool(v)));

/// All of them, in the order in which they are documented.
pub(crate) const ALL: &[Key] = &[
    key("server.listen", "127.0.0.1:8080", "address and port to listen on", ADDRESS),
    key("server.database", "sqlite:outlast.db", "where jobs are stored", DATABASE),
    key(
        "server.shutdown_timeout",
        "30",
        "time that open requests have to finish at shutdown",
        DURATION,
    ),
    key("server.packs", "", "folders with packs, beside the built-in one", PATHS),
    secret("server.tokens", "bearer tokens: a list of {name, role, token or sha256}", TOKENS),
    key("server.tls.cert", "", "certificate of the server, with its chain, in PEM", FILE),
    key("server.tls.key", "", "key of that certificate, in PEM", FILE),
    key("server.tls.client_ca", "", "certificate authorities of clients, in PEM", FILE),
    key(
        "server.tls.roles",
        "",
        "roles by a name in a client's certificate, CN or SAN: {name: role}",
        ROLES,
    ),
    key(
        "server.hosts",
        "",
        "host names that a server without tokens accepts, besides localhost and its address",
        LIST,
    ),
    key(
        "server.base_path",
        "",
        "path below which the server is, such as /outlast, for a proxy that passes it on",
        BASE_PATH,
    ),
    key("server.ui", "on", "pages of the dashboard: on, read_only (without buttons) or off", UI),
    key(
        "ui.hide",
        "password,passwd,passphrase,secret,token,api_key,private_key,access_key,credentials,authorization,cookie",
        "names of keys whose values the dashboard hides in parameters, results and errors, at any depth",
        LIST,
    ),
    key(
        "server.connections",
        "0",
        "maximum number of open connections; 0: as many as the limit on open files allows",
        COUNT,
    ),
    key(
        "server.connections_per_address",
        "0",
        "maximum number of open connections per address, not counting workers; 0: half of all",
        COUNT,
    ),
    key(
        "server.limits",
        "",
        "limits that the API cannot change: {name, queue or type or key, concurrency, rate}; [] removes those of before",
        LIMITS,
    ),
    secret(
        "server.schedules",
        "schedules that commands cannot change: {name, cron, time_zone, action_ref or type, parameters or args, overlap, catch_up, jitter, until, paused}; [] removes those of before",
        SCHEDULES,
    ),
    secret(
        "server.dead_letters",
        "what happens when jobs become dead letters: {queues, types, reasons, webhook: {url, secret}, action}",
        DEAD_LETTERS,
    ),
    key("server.max_body", "1 MiB", "largest request body", SIZE),
    key(
        "executor.scheduled_timeout",
        "300",
        "how long an execution may wait while no live worker can run it",
        DURATION,
    ),
    key("executor.start_timeout", "30", "time that a worker has to start a job", DURATION),
    key("executor.timeout_check_interval", "1", "longest time between two sweeps", DURATION),
    key("executor.enable_timeout_monitor", "true", "whether sweeps run on this server", FLAG),
    key(
        "executor.interruptions",
        "free",
        "whether a shutdown uses up a retry: free or charge",
        INTERRUPTIONS,
    ),
    key(
        "executor.loss_budget",
        "3",
        "worker deaths that end a job, if it ran alone in the last",
        COUNT,
    ),
    key("executor.interruption_budget", "10", "shutdowns that a job survives", COUNT),
    key(
        "ojs.lease",
        "30",
        "silence after which a plain worker that sent heartbeats is declared dead",
        DURATION,
    ),
    key(
        "ojs.visibility",
        "1800",
        "how long a plain worker may keep a job, unless its request says otherwise",
        DURATION,
    ),
    key(
        "webhooks.allow_networks",
        "",
        "networks that webhooks may reach although their addresses are not public, such as 10.0.0.0/8",
        NETWORKS,
    ),
    secret(
        "webhooks.secret",
        "what webhooks are signed with that queues ask for: whsec_ and 24 to 64 bytes in base64",
        WEBHOOK_SECRET,
    ),
    key("webhooks.timeout", "10s", "longest wait for the answer to a webhook", WEBHOOK_TIMEOUT),
    key(
        "webhooks.give_up_after",
        "1d",
        "how long a webhook, or the start of an action for a dead letter, is tried",
        DURATION,
    ),
    key("retention.finished", "7d", "how long finished jobs and workflows are kept", DURATION),
    key("retention.workers", "7d", "how long stopped and lapsed workers are kept", DURATION),
    key(
        "worker.server",
        "http://127.0.0.1:8080",
        "the server to work for, or several with commas between them",
        URLS,
    ),
    secret("worker.token", "bearer token for the server", TOKEN),
    key("worker.token_file", "", "file that holds the token", FILE),
    key(
        "worker.ca_file",
        "",
        "certificate authorities for https://, in PEM; the system's by default",
        FILE,
    ),
    key("worker.client_cert", "", "certificate shown to the server, in PEM", FILE),
    key("worker.client_key", "", "key of that certificate, in PEM", FILE),
    key("worker.name", "", "name of the worker; the host name by default", TEXT),
    key("worker.heartbeat_interval", "5", "time between two heartbeats, 0.1 to 300 s", HEARTBEAT),
    key(
        "worker.heartbeat_staleness_multiplier",
        "3",
        "a lease is this many heartbeat intervals, 2 to 100",
        MULTIPLIER,
    ),
    key(
        "worker.reconnect_window",
        "5",
        "time that a disconnected worker has to reconnect",
        DURATION,
    ),
    key(
        "worker.closed_window",
        "1",
        "the same when its system closed all its connections at once, as at its end",
        DURATION,
    ),
    key(
        "worker.shutdown_timeout",
        "30",
        "time that running jobs have to finish at shutdown",
        DURATION,
    ),
    key("worker.concurrency", "10", "jobs to run at the same time, 1 to 10000", CONCURRENCY),
    key(
        "worker.probe.command",
        "",
        "program that checks the worker's health: a list, or a line for the shell; none by default",
        COMMAND,
    ),
    key("worker.probe.interval", "30", "time between two runs of the probe", PROBE_DURATION),
    key(
        "worker.probe.timeout",
        "10",
        "longest that the probe may run; then it is killed",
        PROBE_DURATION,
    ),
    key("worker.probe.failures", "3", "failures in a row that make a worker unhealthy", TIMES),
    key("worker.probe.recoveries", "1", "successes in a row that make it healthy again", TIMES),
    key(
        "worker.checks.disk_free",
        "64 MiB",
        "free space in the work folder, or a tenth of its file system, below which a worker is unhealthy; 0: not checked",
        SIZE_OR_NONE,
    ),
    key(
        "worker.checks.memory_pressure",
        "60",
        "share of the time, in percent, in which everything waits for memory, from which a worker is unhealthy; 0: not checked",
        PERCENT,
    ),
    key("worker.queues", "default", "queues to take jobs from", QUEUES),
    key("worker.labels", "", "labels as name=value", LABELS),
    key("worker.pool", "", "pool to belong to, which jobs ask for as pool=NAME", POOL),
    key("worker.runtimes", "", "shell, python, node; all that are found by default", RUNTIMES),
    key("worker.packs", "", "folders with packs, beside the built-in one", PATHS),
    key(
        "worker.environment",
        "",
        "variables of the worker that jobs inherit; AWS_* is a prefix",
        VARIABLES,
    ),
    key("worker.secrets", "", "folder with secrets for actions, one file each", PATH),
    key(
        "worker.containment",
        "auto",
        "containment of process trees: auto, pidns, cgroup, subreaper",
        CONTAINMENT,
    ),
    key(
        "worker.work_dir",
        "",
        "folder for the working folders of attempts; the system's temporary folder by default",
        PATH,
    ),
    key("log.format", "text", "how log lines on stderr are written", LOG_FORMAT),
];

const fn kind(unit: &'static str, check: Check) -> Kind {
    Kind { unit, check }
}

fn checked<T, E: Into<Cow<'static, str>>>(read: Result<T, E>) -> Result<(), Cow<'static, str>> {
    read.map(drop).map_err(Into::into)
}

const fn key(name: &'static str, default: &'static str, about: &'static str, kind: Kind) -> Key {
    Key { name, default, about, secret: false, kind }
}

const fn secret(name: &'static str, about: &'static str, kind: Kind) -> Key {
    Key { name, default: "", about, secret: true, kind }
}

/// The key of that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    ALL.iter().find(|key| key.name == name)
}

/// Whether keys stand below this name, as `server.tls.cert` below `server.tls`.
pub(crate) fn is_group(name: &str) -> bool {
    ALL.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// The environment variable of a key.
pub(crate) fn variable(name: &str) -> String {
    format!("OUTLAST_{}", name.replace('.', "__").to_uppercase())
}

/// The section that `name` was most likely meant to be, if one is near.
pub(crate) fn nearest_section(name: &str) -> Option<&'static str> {
    nearest_of(name, ALL.iter().filter_map(|key| key.name.split('.').next()), 0.85)
}

/// The key that `name` was most likely meant to be.
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
