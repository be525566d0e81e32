//! What a server is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use outlast_core::limit::Limit;
use outlast_server::UiMode;
use outlast_server::access::{KnownToken, Role};
use outlast_server::base_path::BasePath;
use outlast_server::connections::ConnectionLimits;
use outlast_server::handlers::{Networks, Rule, Secret};
use outlast_server::tls::TlsFiles;
use outlast_wire::schedule::NamedSchedule;

use super::value::{self, Database, Interruptions};
use super::{ConfigError, Settings};

/// Everything a server needs to know, checked.
#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    /// Where to listen; port 0 takes a free one.
    pub(crate) listen: SocketAddr,
    /// Where jobs are stored.
    pub(crate) database: Database,
    /// How long open requests may take when it stops.
    pub(crate) shutdown_timeout: Duration,
    /// Folders with packs.
    pub(crate) packs: Vec<PathBuf>,
    /// Tokens that it knows.
    pub(crate) tokens: Vec<KnownToken>,
    /// Its certificate, if it speaks TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// Roles of names in clients' certificates.
    pub(crate) certificate_roles: Vec<(String, Role)>,
    /// Names that it answers to without tokens.
    pub(crate) hosts: Vec<String>,
    pub(crate) base_path: BasePath,
    pub(crate) ui: UiMode,
    /// Names of keys whose values pages hide.
    pub(crate) hidden: Vec<String>,
    /// Most open connections; zero leaves it to the limit of open files.
    pub(crate) connections: u32,
    /// Most open connections from one address; zero is half of all.
    pub(crate) connections_per_address: u32,
    /// Limits that the API cannot change; `None` leaves those of the last configuration alone.
    pub(crate) limits: Option<Vec<Limit>>,
    /// Schedules that commands cannot change; `None` leaves those of the last configuration alone.
    pub(crate) schedules: Option<Vec<NamedSchedule>>,
    /// What happens when jobs become dead letters.
    pub(crate) dead_letters: Vec<Rule>,
    /// What webhooks are signed with that queues ask for.
    pub(crate) webhook_secret: Option<Secret>,
    /// Networks that webhooks may reach although their addresses are not public.
    pub(crate) webhook_networks: Networks,
    /// How long a receiver has for its answer.
    pub(crate) webhook_timeout: Duration,
    /// How long a handler is tried.
    pub(crate) give_up_after: Duration,
    /// Largest request body in bytes.
    pub(crate) max_body: u64,
    /// How long an execution waits while no live worker can run it.
    pub(crate) scheduled_timeout: Duration,
    /// How long a worker may take to start a job.
    pub(crate) start_timeout: Duration,
    /// Longest time between two sweeps.
    pub(crate) timeout_check_interval: Duration,
    /// Whether sweeps run on this server.
    pub(crate) enable_timeout_monitor: bool,
    /// Whether a shutdown spends a retry.
    pub(crate) interruptions: Interruptions,
    /// Worker deaths a job may suffer.
    pub(crate) loss_budget: u32,
    /// Shutdowns a job may suffer.
    pub(crate) interruption_budget: u32,
    /// Silence after which a plain OJS worker that has beaten loses what it holds.
    pub(crate) ojs_lease: Duration,
    /// Visibility of a job that a plain OJS client fetched, if nothing else says.
    pub(crate) ojs_visibility: Duration,
    /// How long finished jobs are kept.
    pub(crate) retention_finished: Duration,
    /// How long stopped and lapsed workers are kept.
    pub(crate) retention_workers: Duration,
    /// Interval granted to workers that propose none.
    pub(crate) heartbeat_interval: Duration,
    /// A worker's lease is this many of its heartbeat intervals.
    pub(crate) heartbeat_staleness_multiplier: u32,
    /// How long a dropped worker may take to come back.
    pub(crate) reconnect_window: Duration,
    /// The same when its connections were closed together.
    pub(crate) closed_window: Duration,
    /// What only flags can say.
    pub(crate) switches: Switches,
}

/// Settings that only flags can set, because they weaken a guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Switches {
    /// Listen on any address and accept requests without a token.
    pub(crate) insecure: bool,
    /// Serve what the conformance runner needs, such as a reset of the store.
    pub(crate) conformance: bool,
    /// Acknowledge jobs before they are on the disk.
    pub(crate) unsafe_no_fsync: bool,
}

impl ServerConfig {
    /// Reads the settings and checks what must fit together.
    pub(crate) fn new(settings: &Settings, switches: Switches) -> Result<Self, ConfigError> {
        let config = Self {
            listen: settings.get("server.listen", value::listen)?,
            database: settings.get("server.database", value::database)?,
            shutdown_timeout: settings.get("server.shutdown_timeout", value::duration)?,
            packs: settings.get("server.packs", value::paths)?,
            tokens: settings.get("server.tokens", value::tokens)?,
            tls: tls_files(settings)?,
            certificate_roles: settings.get("server.tls.roles", value::roles)?,
            hosts: settings.get("server.hosts", value::list)?,
            base_path: settings.get("server.base_path", value::base_path)?,
            ui: settings.get("server.ui", value::ui)?,
            hidden: settings.get("ui.hide", value::list)?,
            connections: settings.get("server.connections", value::count)?,
            connections_per_address: settings
                .get("server.connections_per_address", value::count)?,
            limits: settings.get("server.limits", value::limits)?,
            schedules: settings.get("server.schedules", value::schedules)?,
            dead_letters: settings.get("server.dead_letters", value::dead_letters)?,
            webhook_secret: settings.get("webhooks.secret", value::webhook_secret)?,
            webhook_networks: settings.get("webhooks.allow_networks", value::networks)?,
            webhook_timeout: settings.get("webhooks.timeout", value::webhook_timeout)?,
            give_up_after: settings.get("webhooks.give_up_after", value::duration)?,
            max_body: settings.get("server.max_body", value::size)?,
            scheduled_timeout: settings.get("executor.scheduled_timeout", value::duration)?,
            start_timeout: settings.get("executor.start_timeout", value::duration)?,
            timeout_check_interval: settings
                .get("executor.timeout_check_interval", value::duration)?,
            enable_timeout_monitor: settings.get("executor.enable_timeout_monitor", value::flag)?,
            interruptions: settings.get("executor.interruptions", value::interruptions)?,
            loss_budget: settings.get("executor.loss_budget", value::count)?,
            interruption_budget: settings.get("executor.interruption_budget", value::count)?,
            ojs_lease: settings.get("ojs.lease", value::duration)?,
            ojs_visibility: settings.get("ojs.visibility", value::duration)?,
            retention_finished: settings.get("retention.finished", value::duration)?,
            retention_workers: settings.get("retention.workers", value::duration)?,
            heartbeat_interval: settings.get("worker.heartbeat_interval", value::heartbeat)?,
            heartbeat_staleness_multiplier: settings
                .get("worker.heartbeat_staleness_multiplier", value::multiplier)?,
            reconnect_window: settings.get("worker.reconnect_window", value::duration)?,
            closed_window: settings.get("worker.closed_window", value::duration)?,
            switches,
        };
        config.refuse_half_a_rule()?;
        config.refuse_open_door(settings)?;
        Ok(config)
    }

    /// How many connections it keeps where it may open this many files.
    pub(crate) fn connection_limits(&self, files: u64) -> ConnectionLimits {
        let mut limits = ConnectionLimits::of_files(files);
        if let total @ 1.. = self.connections as usize {
            limits.total = total.min(limits.total);
            limits.per_address = limits.total / 2;
        }
        if let per_address @ 1.. = self.connections_per_address as usize {
            limits.per_address = per_address.min(limits.total);
        }
        limits
    }

    /// Refuses client certificates that are not verified, or that grant no role.
    fn refuse_half_a_rule(&self) -> Result<(), ConfigError> {
        let judged = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let (message, hint) = match (judged, self.certificate_roles.is_empty()) {
            (true, false) | (false, true) => return Ok(()),
            (true, true) => (
                "`server.tls.client_ca` is set and `server.tls.roles` is not",
                "say which names in certificates have which role: {ci.example: producer}",
            ),
            (false, false) => (
                "`server.tls.roles` is set and `server.tls.client_ca` is not",
                "name the file with the authorities of clients' certificates",
            ),
        };
        Err(ConfigError::together(message.to_owned(), hint))
    }

    fn refuse_open_door(&self, settings: &Settings) -> Result<(), ConfigError> {
        let guarded = !self.tokens.is_empty() || !self.certificate_roles.is_empty();
        if guarded || self.listen.ip().is_loopback() || self.switches.insecure {
            return Ok(());
        }
        let listen = settings.setting("server.listen")?;
        let origin = &listen.origin;
        let hint = "set `server.tokens` (`outlast token new` makes one) or `server.tls.client_ca` \
                    with roles, listen on 127.0.0.1, \
                    or say --insecure if everybody who can reach this address may do everything";
        let message = format!(
            "listening on {} ({origin}) would let anybody in: `server.tokens` is not set",
            self.listen
        );
        Err(ConfigError::together(message, hint))
    }
}

/// The certificate that a server is configured with.
pub(crate) fn tls_files(settings: &Settings) -> Result<Option<TlsFiles>, ConfigError> {
    let cert = settings.get("server.tls.cert", value::file)?;
    let key = settings.get("server.tls.key", value::file)?;
    let client_ca = settings.get("server.tls.client_ca", value::file)?;
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some(TlsFiles { cert, key, client_ca })),
        (None, None) if client_ca.is_none() => Ok(None),
        _ => Err(ConfigError::together(
            "TLS needs a certificate and its key".to_owned(),
            "set both `server.tls.cert` and `server.tls.key`",
        )),
    }
}
