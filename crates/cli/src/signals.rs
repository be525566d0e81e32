//! Signals that ask this process to stop or to reload, as events to wait for.

use std::io::IsTerminal as _;

use outlast_cli_core::exit::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, which asks a service to reload, and tells a command that its terminal was closed.
#[derive(Debug)]
pub(crate) struct Hangups {
    signal: Signal,
    /// Whether there was a terminal at the start.
    had_terminal: bool,
}

impl Hangups {
    pub(crate) fn new() -> Result<Self, Failure> {
        let signal = listen(SignalKind::hangup())?;
        Ok(Self { signal, had_terminal: std::io::stdin().is_terminal() })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        self.signal.recv().await;
    }

    /// Whether the terminal has gone in which this process was started.
    pub(crate) fn is_terminal_closed(&self) -> bool {
        self.had_terminal && !std::io::stdin().is_terminal()
    }
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))
}

/// SIGINT and SIGTERM, which ask this process to stop.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(crate) fn new() -> Result<Self, Failure> {
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
