//! Signals that ask this process to stop or to reload, as events to wait for.

use outlast_cli_core::exit::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, which asks a server to reload.
#[derive(Debug)]
pub(crate) struct Hangups(Signal);

impl Hangups {
    pub(crate) fn new() -> Result<Self, Failure> {
        let hangups = signal(SignalKind::hangup());
        hangups
            .map(Self)
            .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// SIGINT and SIGTERM, which ask this process to stop.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
