//! `outlast server`: picks the store, starts the server, stops it in order.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args as ClapArgs;
use outlast_cli_core::clock;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_core::budget::{Budgets, InterruptionCharge};
use outlast_core::time::Span;
use outlast_packs::PackSet;
use outlast_server::access::Access;
use outlast_server::handlers::{Handlers, InForce};
use outlast_server::hidden::HiddenKeys;
use outlast_server::tls::{Tls, TlsFiles};
use outlast_server::{Engine, Reserved, ServeError, Server, Settings as ServerSettings};
use outlast_store::Store;
use outlast_worker::handover;

use super::packs;
use super::store;
use crate::certificate::{Validity, is_authority};
use crate::config::server::{ServerConfig, Switches};
use crate::config::value::Interruptions;
use crate::config::{Environment, Flag, Settings};
use crate::log;
use crate::open_files;
use crate::service_manager;
use crate::signals::{Hangups, Interrupts};

/// Pause before a server that starts again tries once more.
const PAUSE: Duration = Duration::from_secs(1);
/// Says that a server starts again.
const AGAIN: &str = "--again";
/// How long a signal that was received may take to be known.
const LAST_SIGNALS: Duration = Duration::from_millis(20);
/// How long the end of a server waits for what blocks a thread.
const LAST_LOOKUPS: Duration = Duration::from_secs(1);

#[derive(Debug, ClapArgs)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Store, as sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:outlast.db]
    #[arg(long, value_name = "DATABASE")]
    database: Option<String>,
    /// Folder with packs; may be given several times
    #[arg(long, value_name = "DIR")]
    packs: Vec<String>,
    /// YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Accept requests without tokens on any address
    #[arg(long)]
    insecure: bool,
    /// Serve the reset that conformance runners need; never in production
    #[arg(long)]
    conformance: bool,
    /// Acknowledge jobs before they are on disk, or accept a PostgreSQL that does. A crash
    /// loses accepted jobs: for experiments only
    #[arg(long)]
    unsafe_no_fsync: bool,
    /// Started again because the store lost commits: waits until it can be opened
    #[arg(long, hide = true)]
    again: bool,
}

impl Args {
    /// The file with settings that was named.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The keys that flags set.
    pub(crate) fn flags(self) -> Vec<Flag> {
        vec![
            Flag::new("server.listen", "--listen", self.listen),
            Flag::new("server.database", "--database", self.database),
            Flag::many("server.packs", "--packs", self.packs),
        ]
    }
}

pub(crate) fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let switches = Switches {
        insecure: args.insecure,
        conformance: args.conformance,
        unsafe_no_fsync: args.unsafe_no_fsync,
    };
    let again = args.again;
    let file = args.config.clone();
    let source = Source { file, environment, flags: args.flags(), switches, again };
    let config = source.read()?;
    environment.warn_of_strangers();
    let packs = PackSet::load(&config.packs).map_err(|error| {
        let exit = if error.may_pass() { Exit::Failed } else { Exit::Usage };
        Failure::new(exit, error.to_string())
    })?;
    packs::log(&packs);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(async {
        let mut stops = Stops::new()?;
        let started = Arc::new(OnceLock::new());
        let watched = Arc::clone(&started);
        // While the store is opened, this task is all there is.
        service_manager::keep_watchdog(environment, move || {
            watched.get().is_none_or(|engine: &Engine| engine.health().hung.is_none())
        });
        open_files::raise();
        let tls = tls(&config)?;
        let settings = ServerSettings { tls, ..server_settings(&config, packs) };
        open_files::warn_of_few(settings.connections);
        // Before the store is opened: a server that cannot listen leaves none behind.
        let reserved = Reserved::new(config.listen).map_err(failed)?;
        let store = tokio::select! {
            opened = open(&config, again) => opened?,
            () = stops.interrupts.next() => return Ok(Served::Ended),
        };
        let started = Started { config: &config, source: &source, engine: &started };
        match serve(store, reserved, settings, started, &mut stops).await {
            Ok(Served::Replaced(_)) if stops.came_last().await => Ok(Served::Ended),
            served => served,
        }
    });
    let outcome = match outcome {
        Ok(Served::Ended) => Ok(Exit::Ok),
        Ok(Served::Replaced(address)) => {
            // Nothing is waited for: signals wait for the program that follows.
            runtime.shutdown_background();
            return Err(start_again(address, environment));
        }
        Err(failure) => Err(failure),
    };
    // What is left is a look-up of a host name at most.
    runtime.shutdown_timeout(LAST_LOOKUPS);
    outcome
}

/// Signals that this process has received.
struct Stops {
    interrupts: Interrupts,
    hangups: Hangups,
}

impl Stops {
    /// From here on signals arrive, those from before included.
    fn new() -> Result<Self, Failure> {
        let stops = Self { interrupts: Interrupts::new()?, hangups: Hangups::new()? };
        outlast_worker::signals::deliver_stops();
        Ok(stops)
    }

    /// Whether this process was asked to stop before now. From here on signals wait for the program
    /// that is executed next.
    async fn came_last(&mut self) -> bool {
        outlast_worker::signals::hold_stops();
        tokio::time::timeout(LAST_SIGNALS, self.interrupts.next()).await.is_ok()
    }
}

fn tls(config: &ServerConfig) -> Result<Option<Arc<Tls>>, Failure> {
    let Some(files) = &config.tls else { return Ok(None) };
    Ok(Some(Arc::new(load(files)?)))
}

fn load(files: &TlsFiles) -> Result<Tls, Failure> {
    let tls = Tls::load(files).map_err(|error| Failure::usage(error.to_string()))?;
    if is_authority(&files.cert) {
        tracing::warn!(
            "server.tls.cert {} is the certificate of an authority, which workers and commands \
             refuse: sign another one for the server with it",
            files.cert.display()
        );
    }
    let validity = Validity::of_file(&files.cert);
    if let Some(problem) = validity.and_then(|validity| validity.problem(clock::now())) {
        tracing::warn!(
            "server.tls.cert {} {problem}: clients refuse it; replace it and send SIGHUP",
            files.cert.display()
        );
    }
    Ok(tls)
}

/// Where the settings come from: SIGHUP reloads them.
struct Source<'a> {
    file: Option<PathBuf>,
    environment: &'a Environment,
    flags: Vec<Flag>,
    switches: Switches,
    /// Whether this process was a server a moment ago.
    again: bool,
}

impl Source<'_> {
    /// The settings are dropped at once: they may hold tokens in plain.
    fn read(&self) -> Result<ServerConfig, Failure> {
        let settings = Settings::load(self.file.as_deref(), self.environment, self.flags.clone())?;
        Ok(ServerConfig::new(&settings, self.switches)?)
    }
}

/// What SIGHUP reloads: tokens, roles, certificates, limits, and what happens to dead letters.
struct Reloadable {
    access: Arc<Access>,
    tls: Option<Arc<Tls>>,
    handlers: InForce,
    engine: Engine,
}

impl Reloadable {
    /// Reloads all of them. If anything is wrong, all of them stay as they are. Limits are stored in the background, which says when they are in force.
    fn renew(&self, source: &Source<'_>) {
        match self.try_renew(source) {
            Ok(()) => tracing::info!(
                "SIGHUP: tokens, roles, rules for dead letters, limits, schedules and certificates reloaded"
            ),
            Err(failure) => tracing::error!(
                "SIGHUP: configuration not reloaded, because it is invalid: {}",
                failure.message
            ),
        }
    }

    fn try_renew(&self, source: &Source<'_>) -> Result<(), Failure> {
        let config = source.read()?;
        // Everything is checked before anything is replaced.
        let tls = match (&self.tls, &config.tls) {
            (Some(tls), Some(files)) => Some((tls, load(files)?)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                let what = "TLS cannot be turned on or off while the server runs: restart it";
                return Err(Failure::usage(what));
            }
        };
        let guarded = !config.tokens.is_empty() || !config.certificate_roles.is_empty();
        if self.access.is_open() == guarded {
            let what = "authentication cannot be turned on or off while the server runs: restart \
                        it";
            return Err(Failure::usage(what));
        }
        if let Some((tls, loaded)) = tls {
            tls.replace(loaded);
        }
        self.handlers.configure(handlers(&config));
        if let Some(limits) = config.limits {
            self.engine.reconfigure_limits(limits);
        }
        if let Some(schedules) = config.schedules {
            self.engine.reconfigure_schedules(schedules);
        }
        let gone = self.access.replace(config.tokens, config.certificate_roles);
        self.engine.end_sessions_of(gone);
        Ok(())
    }
}

/// The settings that the server was started with, and where they come from.
#[derive(Clone, Copy)]
struct Started<'a> {
    config: &'a ServerConfig,
    source: &'a Source<'a>,
    /// Whose progress the service manager hears of.
    engine: &'a OnceLock<Engine>,
}

/// Serves until the first signal, then shuts down in order; a second signal ends it at once.
async fn serve(
    store: Arc<dyn Store>,
    reserved: Reserved,
    settings: ServerSettings,
    Started { config, source, engine }: Started<'_>,
    Stops { interrupts, hangups }: &mut Stops,
) -> Result<Served, Failure> {
    warn_of_switches(config);
    let (access, tls) = (Arc::clone(&settings.access), settings.tls.clone());
    let handlers = settings.handlers.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let in_force = settings.packs.clone();
    let server = match Server::bind(store, settings, reserved).await {
        Err(error) if source.again && error.may_pass() => {
            tracing::error!("cannot start again, retrying: {error}");
            return Ok(tokio::select! {
                () = tokio::time::sleep(PAUSE) => Served::Replaced(config.listen),
                () = interrupts.next() => Served::Ended,
            });
        }
        bound => bound.map_err(failed)?,
    };
    let address = server.address();
    // Nothing else sets it.
    let _ = engine.set(server.engine());
    let reloadable = Reloadable { access, tls, handlers, engine: server.engine() };
    service_manager::ready();
    let running = server.run(async { stopped.await.unwrap_or_default() });
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => return served(ended, address),
            () = interrupts.next() => break,
            () = hangups.next() => {
                packs::read_again(&config.packs, &in_force);
                reloadable.renew(source);
            }
        }
    }
    service_manager::stopping();
    stop.send(()).unwrap_or_default();
    tokio::select! {
        ended = &mut running => ended.map(|()| Served::Ended).map_err(failed),
        () = interrupts.next() => Err(Failure::failed("second signal, stopped without a clean shutdown")),
    }
}

/// Opens the store. A server that was running a moment ago waits for it, as it did while it ran.
async fn open(config: &ServerConfig, again: bool) -> Result<Arc<dyn Store>, Failure> {
    let unsafe_no_fsync = config.switches.unsafe_no_fsync;
    loop {
        match store::open(&config.database, unsafe_no_fsync).await {
            Err(unopened) if again && unopened.may_pass => {
                let reason = unopened.failure.message;
                tracing::error!("cannot open the store, retrying: {reason}");
                tokio::time::sleep(PAUSE).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// How serving came to an end.
#[derive(Clone, Copy, Debug)]
enum Served {
    /// As it was asked to.
    Ended,
    /// The store went back in time. The server listened on this address.
    Replaced(SocketAddr),
}

fn served(ended: Result<(), ServeError>, address: SocketAddr) -> Result<Served, Failure> {
    match ended {
        Err(error @ ServeError::Replaced(_)) => {
            tracing::warn!("{error}");
            Ok(Served::Replaced(address))
        }
        ended => ended.map(|()| Served::Ended).map_err(failed),
    }
}

/// Executes this program again in the same process, with its settings and with nothing else of what it
/// remembers. Returns why it cannot.
fn start_again(address: SocketAddr, environment: &Environment) -> Failure {
    let mut words = listening_on(std::env::args_os(), address);
    words.retain(|word| word != AGAIN);
    words.push(AGAIN.into());
    log::write_queued();
    let failed = handover::start_again(&words, environment.variables(), Environment::is_harmless);
    Failure::failed(format!("cannot start again: {failed}"))
}

/// Returns the arguments with the address that was listened on: port 0 would become another one.
fn listening_on(words: impl Iterator<Item = OsString>, address: SocketAddr) -> Vec<OsString> {
    let mut all = Vec::new();
    let mut is_address = false;
    for word in words {
        let text = word.to_string_lossy();
        let (is_flag, holds_it) = (text == "--listen", text.starts_with("--listen="));
        if !is_address && !is_flag && !holds_it {
            all.push(word);
        }
        is_address = is_flag && !is_address;
    }
    all.extend(["--listen".into(), address.to_string().into()]);
    all
}

fn warn_of_switches(config: &ServerConfig) {
    if config.switches.insecure {
        tracing::warn!(
            "--insecure: every client that can reach {} is an administrator",
            config.listen
        );
    }
    if config.switches.unsafe_no_fsync {
        tracing::warn!(
            "--unsafe-no-fsync: a crash of this machine or of PostgreSQL LOSES ACCEPTED JOBS; \
             for experiments only"
        );
    }
    if config.switches.conformance {
        tracing::warn!("--conformance: POST /ojs/v1/admin/reset empties the store");
    }
    let is_plain = config.tls.is_none() && !config.listen.ip().is_loopback();
    if !config.tokens.is_empty() && is_plain {
        tracing::warn!(
            "tokens cross the network in plain: set `server.tls.cert` and `server.tls.key`, or \
             put TLS in front of {}",
            config.listen
        );
    }
}

fn failed(error: ServeError) -> Failure {
    let failure = Failure::failed(error.to_string());
    match &error {
        ServeError::Bind { .. } => {
            failure.with_hint("is another server running there? --listen chooses another address")
        }
        _ => failure,
    }
}

pub(super) fn server_settings(config: &ServerConfig, packs: PackSet) -> ServerSettings {
    ServerSettings {
        max_body: usize::try_from(config.max_body).unwrap_or(usize::MAX),
        access: Arc::new(Access::new(config.tokens.clone(), config.certificate_roles.clone())),
        hosts: config.hosts.clone(),
        base_path: config.base_path.clone(),
        ui: config.ui,
        hidden: HiddenKeys::new(config.hidden.iter().map(String::as_str)),
        connections: config.connection_limits(open_files::allowed()),
        shutdown_timeout: length(config.shutdown_timeout),
        budgets: budgets(config),
        scheduled_timeout: length(config.scheduled_timeout),
        start_timeout: length(config.start_timeout),
        check_interval: length(config.timeout_check_interval),
        timeout_monitor: config.enable_timeout_monitor,
        ojs_lease: length(config.ojs_lease),
        ojs_visibility: length(config.ojs_visibility),
        heartbeat_interval: length(config.heartbeat_interval),
        staleness_multiplier: config.heartbeat_staleness_multiplier,
        reconnect_window: length(config.reconnect_window),
        closed_window: length(config.closed_window),
        retention_finished: length(config.retention_finished),
        retention_workers: length(config.retention_workers),
        limits: config.limits.clone(),
        schedules: config.schedules.clone(),
        handlers: handlers(config).into(),
        conformance: config.switches.conformance,
        ..ServerSettings::with_packs(Arc::new(packs))
    }
}

fn handlers(config: &ServerConfig) -> Handlers {
    Handlers {
        rules: config.dead_letters.clone(),
        secret: config.webhook_secret.clone(),
        allowed: config.webhook_networks.clone(),
        timeout: length(config.webhook_timeout),
        give_up_after: length(config.give_up_after),
    }
}

pub(super) fn budgets(config: &ServerConfig) -> Budgets {
    Budgets {
        losses: config.loss_budget,
        interruptions: config.interruption_budget,
        interruption_charge: match config.interruptions {
            Interruptions::Free => InterruptionCharge::Free,
            Interruptions::Charge => InterruptionCharge::Charge,
        },
    }
}

pub(super) fn length(duration: Duration) -> Span {
    Span::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::listening_on;

    #[test]
    fn server_that_starts_again_listens_where_it_did() {
        let address = "127.0.0.1:4321".parse().unwrap();
        let after = |words: &str| listening_on(words.split(' ').map(Into::into), address);
        let whole = ["outlast", "server", "--packs", "x", "--listen", "127.0.0.1:4321"];
        assert_eq!(after("outlast server --packs x"), whole);
        assert_eq!(after("outlast server --listen 127.0.0.1:0 --packs x"), whole);
        assert_eq!(after("outlast server --listen=127.0.0.1:0 --packs x"), whole);
    }
}
