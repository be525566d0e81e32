//! Signals that ask this process to end, or to read its files again, as events to wait for.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// The signal that asks a server to read again what it was started with: SIGHUP.
#[derive(Debug)]
pub(crate) struct Hangups(Signal);

impl Hangups {
    pub(crate) fn new() -> Result<Self, Failure> {
        let hangups = signal(SignalKind::hangup());
        hangups.map(Self).map_err(|error| Failure::failed(format!("cannot take signals: {error}")))
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// Signals that ask this process to end.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot take signals: {error}")))
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
