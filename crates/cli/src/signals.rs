//! Signals that ask this process to stop or to reload, as events to wait for.

use std::fs::{self, File};

use outlast_cli_core::exit::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP, which asks a service to reload, and tells a command that its terminal was closed.
#[derive(Debug)]
pub(crate) struct Hangups {
    signal: Signal,
    /// Whether there was a terminal at the start that this process is to end with.
    had_terminal: bool,
}

impl Hangups {
    pub(crate) fn new() -> Result<Self, Failure> {
        let had_terminal = !ignores_hangups() && has_terminal();
        let signal = listen(SignalKind::hangup())?;
        Ok(Self { signal, had_terminal })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        self.signal.recv().await;
    }

    /// Whether the terminal has gone in which this process was started.
    pub(crate) fn is_terminal_closed(&self) -> bool {
        self.had_terminal && !has_terminal()
    }
}

/// Whether this process belongs to a terminal, wherever its input and output go.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether it was started to outlive its terminal, as by `nohup`.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Of the mask, the lowest bit is signal 1.
    ignored.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1))
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
