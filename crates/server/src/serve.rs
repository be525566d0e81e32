//! Listener, limits on connections, and the order of a shutdown.
//!
//! Shutdown: readiness false → stop accepting → tell sessions and long polls →
//! finish requests under way → stop monitors → flush the batcher → close the store.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use outlast_store::{Store, StoreError};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::millis;
use crate::connection::{self, Site};
use crate::connections::Gate;
use crate::engine::input::Input;
use crate::engine::{ConfigureError, Engine};
use crate::http::gate::Hosts;
use crate::schedules::ConfigureSchedulesError;
use crate::settings::Settings;
use crate::{http, monitor, session, wire};

/// How long to wait after accepting failed, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time between two warnings about the same problem with connections.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// An address that no other process can take. It does not listen yet.
#[derive(Debug)]
pub struct Reserved {
    socket: TcpSocket,
    address: SocketAddr,
}

impl Reserved {
    /// Reserves `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// Returns what is wrong with the address.
    pub fn new(address: SocketAddr) -> Result<Self, ServeError> {
        let reserve = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // Connections of an earlier server may still be closing.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = reserve().map_err(|source| ServeError::Bind { address, source })?;
        Ok(Self { socket, address })
    }
}

/// A server that is bound and not yet serving.
#[derive(Debug)]
pub struct Server {
    engine: Engine,
    listener: TcpListener,
    address: SocketAddr,
}

/// Why a server failed to start or stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address asked for.
        address: SocketAddr,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A vital task has ended.
    #[error("{0}; the server stops so that its supervisor restarts it")]
    Dead(String),
    /// The store went back in time: what this process remembers of it is void.
    #[error("{0}; the server starts again")]
    Replaced(String),
    /// The store did not answer when the server started.
    #[error("cannot read the store: {0}")]
    Store(#[from] StoreError),
    /// The limits of the configuration are not in force.
    #[error("cannot set the limits of the configuration: {0}")]
    Limits(#[from] ConfigureError),
    /// The store does not have the schedules of the configuration.
    #[error(transparent)]
    Schedules(#[from] ConfigureSchedulesError),
}

impl ServeError {
    /// Whether a server may begin to serve later, without anybody's help.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Bind { .. } | Self::Dead(_) | Self::Replaced(_) => true,
            Self::Store(error) => !matches!(error, StoreError::Corrupt(_)),
            Self::Limits(error) => error.may_pass(),
            Self::Schedules(error) => error.may_pass(),
        }
    }
}

impl Server {
    /// Listens on a reserved address and starts the engine over `store`.
    ///
    /// # Errors
    /// Returns what is wrong with the address or the store.
    pub async fn bind(
        store: Arc<dyn Store>,
        settings: Settings,
        Reserved { socket, address }: Reserved,
    ) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { address, source };
        let listener = socket.listen(BACKLOG).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let now = store.now().await?;
        // Nothing here grows with the history: a large store starts as fast as a small one.
        let pauses = store.pauses().await?;
        let engine = Engine::start(store, settings);
        engine.shared().set_store_time(now);
        engine.read_fleet().await?;
        for queue in pauses.iter().filter(|queue| queue.paused) {
            engine.shared().set_paused(&queue.name, true);
        }
        // Before any job is claimed here.
        if let Some(limits) = engine.settings().limits.clone() {
            engine.configure_limits(&limits).await?;
        }
        if let Some(schedules) = engine.settings().schedules.clone() {
            engine.configure_schedules(&schedules).await?;
        }
        Ok(Self { engine, listener, address })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle on the engine.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.engine.clone()
    }

    /// Serves until `shutdown` is ready, then stops in order.
    ///
    /// # Errors
    /// Returns what went wrong when the store was closed.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { engine, listener, address } = self;
        let (connections, monitors) = (Tasks::default(), Tasks::default());
        monitor::start(&engine, &monitors.all, &monitors.stop);
        let site = Site {
            app: app(&engine),
            engine: engine.clone(),
            hosts: Arc::new(hosts(engine.settings(), address)),
            tls: engine.settings().tls.clone(),
            stop: connections.stop.clone(),
        };
        let scheme = if site.tls.is_some() { "https" } else { "http" };
        tracing::info!("listening on {scheme}://{address}");
        let mut acceptor =
            Acceptor { gate: Gate::new(engine.settings().connections), warned: None };

        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                // A graceful shutdown is impossible. Leases and transactions protect accepted jobs.
                why = engine.replaced() => return Err(ServeError::Replaced(why)),
                why = engine.died() => return Err(ServeError::Dead(why)),
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => acceptor.let_in(stream, from, &site, &connections.all),
                    Err(error) => {
                        acceptor.warn(&format!("failed to accept a connection: {error}"));
                        // Closing idle connections may free file descriptors.
                        acceptor.gate.make_room();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        stop(&engine, connections, monitors).await
    }
}

/// The listener with its limits.
struct Acceptor {
    gate: Arc<Gate>,
    warned: Option<Instant>,
}

impl Acceptor {
    fn let_in(&mut self, stream: TcpStream, from: SocketAddr, site: &Site, tasks: &TaskTracker) {
        if let Some(entered) = self.gate.enter(from.ip()) {
            tasks.spawn(connection::serve(stream, entered, site.clone()));
            return;
        }
        self.warn("too many busy connections: refusing a new one");
        if site.tls.is_some() {
            return;
        }
        let words = "too many connections are open";
        // As much as the system takes at once: the server does not wait for refused clients.
        drop(stream.try_write(&wire::response("503 Service Unavailable", words)));
    }

    /// Logs a warning, but not for every connection of a flood.
    fn warn(&mut self, words: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            tracing::warn!("{words}");
        }
    }
}

/// With tokens, host names are not checked.
fn hosts(settings: &Settings, address: SocketAddr) -> Hosts {
    if settings.access.is_open() {
        Hosts::of_open_server(address, &settings.hosts)
    } else {
        Hosts::default()
    }
}

fn app(engine: &Engine) -> Router {
    let sessions = session::service(engine.clone());
    http::router(engine.clone()).route_service(&format!("{}{{*call}}", session::PATH), sessions)
}

/// Tasks that are stopped together.
#[derive(Debug, Default)]
struct Tasks {
    all: TaskTracker,
    stop: CancellationToken,
}

async fn stop(engine: &Engine, connections: Tasks, monitors: Tasks) -> Result<(), ServeError> {
    tracing::info!("graceful shutdown: no new connections, finishing requests under way");
    engine.begin_stop();
    // The rest stops even if the loop has ended.
    drop(engine.send(Input::CloseSessions).await);
    connections.stop.cancel();
    connections.all.close();
    let grace = millis(engine.settings().shutdown_timeout);
    if tokio::time::timeout(grace, connections.all.wait()).await.is_err() {
        tracing::warn!(
            open = connections.all.len(),
            "connections still open after the grace period"
        );
    }
    monitors.stop.cancel();
    monitors.all.close();
    monitors.all.wait().await;
    let (done, flushed) = oneshot::channel();
    drop(engine.send(Input::Stop { done }).await);
    drop(flushed.await);
    engine.store().close().await?;
    tracing::info!("graceful shutdown complete");
    Ok(())
}
