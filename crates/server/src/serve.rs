//! Listener, limits on connections, and the order of a shutdown.
//!
//! Stopping goes: readiness false → stop accepting → tell sessions and long polls →
//! finish requests under way → stop monitors → flush the batcher → close the store.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use outlast_store::{Store, StoreError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::input::Input;
use crate::engine::{Engine, millis};
use crate::settings::Settings;
use crate::stall::Impatient;
use crate::{http, monitor, session};

/// Longest a client may take to send a request's head, and to leave a kept-alive
/// connection unused.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between pings on an HTTP/2 connection, and how long an answer may take: a black
/// hole is noticed within their sum.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Most streams a client may open on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// How long to wait after accepting failed, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that is bound and not yet serving.
#[derive(Debug)]
pub struct Server<S: Store> {
    engine: Engine<S>,
    listener: TcpListener,
    address: SocketAddr,
}

/// Why a server could not start or stop well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A part that the server cannot do without has ended.
    #[error("{0}; the server stops, so that whoever watches it starts it again")]
    Dead(String),
    /// The store did not answer when the server started.
    #[error("cannot read the store: {0}")]
    Store(#[from] StoreError),
}

impl<S: Store> Server<S> {
    /// Binds `address` and starts the engine over `store`. Port 0 takes any free port.
    ///
    /// # Errors
    /// Returns what is wrong with the address or the store.
    pub async fn bind(
        store: S,
        settings: Settings,
        address: SocketAddr,
    ) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let now = store.now().await?;
        // Nothing here grows with what has ended: a large store starts as fast as a small one.
        let pauses = store.pauses().await?;
        let engine = Engine::start(store, settings);
        engine.board().set_clock(now);
        engine.read_fleet().await?;
        for queue in pauses.iter().filter(|queue| queue.paused) {
            engine.board().set_paused(&queue.name, true);
        }
        Ok(Self { engine, listener, address })
    }

    /// Returns the address that is listened on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle on the engine.
    #[must_use]
    pub fn engine(&self) -> Engine<S> {
        self.engine.clone()
    }

    /// Serves until `shutdown` is ready, then stops in order.
    ///
    /// # Errors
    /// Returns what went wrong when the store was closed.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { engine, listener, address } = self;
        let (connections, monitors) = (TaskTracker::new(), TaskTracker::new());
        let (stop_connections, stop_monitors) =
            (CancellationToken::new(), CancellationToken::new());
        monitor::start(&engine, &monitors, &stop_monitors);
        let app = app(&engine);
        tracing::info!("listening on http://{address}");

        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                // Nothing can be finished in order any more: leases and the store's own
                // transactions keep what was accepted.
                why = engine.died() => return Err(ServeError::Dead(why)),
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let serve = connection(stream, app.clone(), stop_connections.clone());
                        connections.spawn(serve);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        stop(&engine, (connections, stop_connections), (monitors, stop_monitors)).await
    }
}

fn app<S: Store>(engine: &Engine<S>) -> Router {
    let sessions = session::service(engine.clone());
    http::router(engine.clone()).route_service("/outlast.session.v1.Session/{*call}", sessions)
}

async fn stop<S: Store>(
    engine: &Engine<S>,
    (connections, stop_connections): (TaskTracker, CancellationToken),
    (monitors, stop_monitors): (TaskTracker, CancellationToken),
) -> Result<(), ServeError> {
    tracing::info!("graceful shutdown: no new connections, finishing requests under way");
    engine.begin_stop();
    // The loop gone is no reason not to stop the rest.
    drop(engine.send(Input::CloseSessions).await);
    stop_connections.cancel();
    connections.close();
    let grace = millis(engine.settings().shutdown_timeout);
    if tokio::time::timeout(grace, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "connections still open after the grace period");
    }
    stop_monitors.cancel();
    monitors.close();
    monitors.wait().await;
    let (done, flushed) = oneshot::channel();
    drop(engine.send(Input::Stop { done }).await);
    drop(flushed.await);
    engine.store().close().await?;
    tracing::info!("graceful shutdown complete");
    Ok(())
}

/// Serves one connection, HTTP/1 or HTTP/2, until it ends or the server stops.
pub(crate) async fn connection(stream: TcpStream, app: Router, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .pipeline_flush(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let service = TowerToHyperService::new(app);
    let serving = builder.serve_connection_with_upgrades(
        TokioIo::new(Impatient::new(stream, stop.clone())),
        service,
    );
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended badly");
    }
}
