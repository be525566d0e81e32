//! What a worker has to say when it has ended.

use std::fmt;

use outlast_core::evidence::EvidenceCode;
use outlast_core::labels::LabelError;

use crate::session::BadAddress;

/// What became of everything the worker was handed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Attempts that completed.
    pub completed: u64,
    /// Attempts that failed or timed out.
    pub failed: u64,
    /// Attempts that the shutdown ended.
    pub interrupted: u64,
    /// Attempts that were stopped by an order, or whose claim was void.
    pub stopped: u64,
    /// Deliveries handed back unrun.
    pub handed_back: u64,
    /// Reports that the server refused: a newer claim exists, or the job has ended.
    pub refused: u64,
    /// Reports that were never answered.
    pub unanswered: u64,
    /// Results of attempts that had ended, and that no server took before this worker ended. Their
    /// jobs run again.
    pub thrown_away: u64,
    /// How often the lease was lost.
    pub lapses: u64,
    /// It was terminated three times and left at once.
    pub left_at_once: bool,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.completed, "completed"),
            (self.failed, "failed"),
            (self.interrupted, "interrupted"),
            (self.stopped, "stopped"),
            (self.handed_back, "handed back"),
            (self.refused, "refused"),
            (self.unanswered, "unanswered"),
            (self.thrown_away, "thrown away"),
            (self.lapses, "times lapsed"),
        ];
        let mut said = counts.iter().filter(|(count, _)| *count > 0);
        match said.next() {
            None => f.write_str("no attempts")?,
            Some((count, words)) => write!(f, "{count} {words}")?,
        }
        said.try_for_each(|(count, words)| write!(f, ", {count} {words}"))
    }
}

/// Why a worker cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The address or the token cannot be used.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// A label or a pool that a worker cannot have.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Two handlers for one type.
    #[error("job type {0:?} has two handlers; it can have one")]
    TwoHandlers(String),
    /// Something was said about a type that has no handler.
    #[error("job type {0:?} forbids overlap but has no handler; add one with `handle`")]
    NoHandler(String),
    /// A handler whose jobs forbid overlap, in a process that must not be ended.
    #[error(
        "job type {0:?} forbids overlap, and this worker runs no such job because its process \
         must not be ended; let it be ended, or serve the type from a process of its own"
    )]
    MayNotEnd(String),
}

/// Why a worker cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The address or the token cannot be used.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The server refuses this worker: versions too far apart, or settings that make no
    /// sense to it.
    #[error("server refuses this worker: {0}")]
    Refused(String),
    /// The token is missing, wrong, or not for workers.
    #[error("server does not allow this worker: {0}")]
    NotAllowed(String),
    /// There is nothing that it could run.
    #[error("worker has no handler; add one with `WorkerBuilder::handle`")]
    NoHandler,
    /// The process cannot listen for signals.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The heartbeat's thread cannot be started.
    #[error("cannot start the heartbeat thread")]
    Heartbeat(#[source] std::io::Error),
    /// The heartbeat's thread has ended; everything was ended and handed back.
    #[error("the heartbeat thread has ended")]
    HeartbeatGone,
    /// The guardian is gone; everything was ended and handed back.
    #[error("the worker's guardian has exited")]
    GuardianGone,
}

impl RunError {
    /// How the end of everything that the worker runs is known, if it is ended for this.
    pub(crate) const fn evidence(&self) -> Option<(EvidenceCode, &'static str)> {
        match self {
            Self::GuardianGone => {
                Some((EvidenceCode::GuardianKilled, "the worker's guardian was killed"))
            }
            Self::HeartbeatGone => Some((
                EvidenceCode::EngineKilled,
                "the worker's heartbeat thread ended, and its engine cannot go on without it",
            )),
            Self::Address(_)
            | Self::Refused(_)
            | Self::NotAllowed(_)
            | Self::NoHandler
            | Self::Signals(_)
            | Self::Heartbeat(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn a_summary_says_what_there_was_in_words() {
        assert_eq!(Summary::default().to_string(), "no attempts");
        let summary = Summary { completed: 5, handed_back: 1, lapses: 2, ..Summary::default() };
        assert_eq!(summary.to_string(), "5 completed, 1 handed back, 2 times lapsed");
    }
}
