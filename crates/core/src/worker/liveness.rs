//! The server's view of a worker: what it does, and whether it lives.
//!
//! ```text
//! live ──connection dropped──▶ suspect ──window or lease passed──▶ lapsed
//!  ▲────any beat or re-attach────┘
//! live | suspect ──goodbye or proof of death──▶ gone
//! ```
//!
//! Beside it, the phase: running ⇄ quiet ─▶ draining. Only a live, running worker gets
//! new work. A lapsed or gone worker never comes back: it registers again, as another worker.

use std::fmt;

/// What the worker does about new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It takes new work.
    Running,
    /// It takes none and may take some again.
    Quiet,
    /// It takes none any more and is on its way out.
    Draining,
}

/// Whether the worker lives, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Liveness {
    /// It sends heartbeats.
    Live,
    /// Its connection is lost: it gets no new work and nothing is moved yet.
    Suspect,
    /// Its lease is over: its work moves.
    Lapsed,
    /// It deregistered, or its death was proven.
    Gone,
}

/// A worker as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Standing {
    /// What it does about new work.
    pub phase: Phase,
    /// Whether it lives.
    pub liveness: Liveness,
}

/// Something that happened to a worker, or was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkerEvent {
    /// A heartbeat arrived.
    Beat,
    /// Its session stream is attached (again).
    Attach,
    /// Its connection dropped without goodbye.
    Drop,
    /// It was silent for its reconnect window after a drop, or for its lease.
    Lapse,
    /// It is quiet, or is to be.
    Quiet,
    /// It runs again, or is to.
    Resume,
    /// It drains, or is to.
    Drain,
    /// It deregistered.
    Goodbye,
    /// Its death was proven.
    Died,
}

/// Why a worker's event was refused. The worker is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerRefusal {
    /// Its lease is over; it must register again.
    #[error("worker has lapsed and must register again")]
    Lapsed,
    /// It has left.
    #[error("worker has stopped and must register again")]
    Gone,
    /// It drains, and a drain goes forward only.
    #[error("worker is draining, which cannot be undone")]
    Draining,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 3] = [Self::Running, Self::Quiet, Self::Draining];
}

impl Liveness {
    /// Every degree of liveness.
    pub const ALL: [Self; 4] = [Self::Live, Self::Suspect, Self::Lapsed, Self::Gone];
}

impl WorkerEvent {
    /// Every event.
    pub const ALL: [Self; 9] = [
        Self::Beat,
        Self::Attach,
        Self::Drop,
        Self::Lapse,
        Self::Quiet,
        Self::Resume,
        Self::Drain,
        Self::Goodbye,
        Self::Died,
    ];
}

impl Standing {
    /// A worker that just registered.
    pub const NEW: Self = Self { phase: Phase::Running, liveness: Liveness::Live };

    /// Returns the one word for the state in the store and the API.
    #[must_use]
    pub const fn state(self) -> &'static str {
        match (self.liveness, self.phase) {
            (Liveness::Gone, _) => "stopped",
            (Liveness::Lapsed, _) => "lapsed",
            (Liveness::Suspect, _) => "suspect",
            (Liveness::Live, Phase::Running) => "running",
            (Liveness::Live, Phase::Quiet) => "quiet",
            (Liveness::Live, Phase::Draining) => "draining",
        }
    }

    /// Returns whether the worker may get new work: `active`, else `inactive`.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!((self.liveness, self.phase), (Liveness::Live, Phase::Running))
    }

    /// Returns whether the worker's lease can still be renewed.
    #[must_use]
    pub const fn holds_lease(self) -> bool {
        matches!(self.liveness, Liveness::Live | Liveness::Suspect)
    }

    const fn live(self) -> Self {
        Self { liveness: Liveness::Live, ..self }
    }

    const fn with(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state())
    }
}

/// Decides what `event` makes of a worker.
///
/// # Errors
/// Returns why the worker stays as it is.
pub const fn decide(worker: Standing, event: WorkerEvent) -> Result<Standing, WorkerRefusal> {
    match worker.liveness {
        // What must not overlap stays with a lapsed worker until its death is proven.
        Liveness::Lapsed if matches!(event, WorkerEvent::Died) => {
            Ok(Standing { liveness: Liveness::Gone, ..worker })
        }
        Liveness::Lapsed => Err(WorkerRefusal::Lapsed),
        Liveness::Gone => Err(WorkerRefusal::Gone),
        Liveness::Live | Liveness::Suspect => match event {
            WorkerEvent::Beat | WorkerEvent::Attach => Ok(worker.live()),
            WorkerEvent::Drop => Ok(Standing { liveness: Liveness::Suspect, ..worker }),
            WorkerEvent::Lapse => Ok(Standing { liveness: Liveness::Lapsed, ..worker }),
            WorkerEvent::Goodbye | WorkerEvent::Died => {
                Ok(Standing { liveness: Liveness::Gone, ..worker })
            }
            WorkerEvent::Drain => Ok(worker.with(Phase::Draining)),
            WorkerEvent::Quiet | WorkerEvent::Resume => match (worker.phase, event) {
                (Phase::Draining, _) => Err(WorkerRefusal::Draining),
                (Phase::Running | Phase::Quiet, WorkerEvent::Quiet) => {
                    Ok(worker.with(Phase::Quiet))
                }
                (Phase::Running | Phase::Quiet, _) => Ok(worker.with(Phase::Running)),
            },
        },
    }
}

#[cfg(test)]
mod tests;
