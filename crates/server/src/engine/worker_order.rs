//! What an operator may order a worker to do.

use outlast_core::worker::liveness::{Phase, WorkerEvent};

/// An order to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerOrder {
    /// Take no new work, until resumed.
    Quiet,
    /// Take work again.
    Resume,
    /// Take no new work, finish what is running, and exit.
    Drain,
}

impl WorkerOrder {
    const ALL: [Self; 3] = [Self::Quiet, Self::Resume, Self::Drain];

    /// Returns the order's name in signals between servers.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Resume => "resume",
            Self::Drain => "drain",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.as_str() == name)
    }

    pub(crate) const fn event(self) -> WorkerEvent {
        match self {
            Self::Quiet => WorkerEvent::Quiet,
            Self::Resume => WorkerEvent::Resume,
            Self::Drain => WorkerEvent::Drain,
        }
    }
}

impl From<Phase> for WorkerOrder {
    /// Returns the order that leads to a phase.
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Running => Self::Resume,
            Phase::Quiet => Self::Quiet,
            Phase::Draining => Self::Drain,
        }
    }
}
