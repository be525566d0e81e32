//! Orders of operators and producers about one job.

use std::num::NonZeroU32;

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{Event, Job, State};

use super::report::{MoveRefusal, Moved};
use crate::request::{requests, unit_requests};

/// An order to move one job.
#[derive(Clone, Debug)]
pub struct JobOrder {
    /// The job.
    pub job: JobId,
    /// What to do with it.
    pub action: JobAction,
    /// Tenant that the order is limited to; another tenant's job is not found.
    pub tenant: Option<String>,
    /// Who orders it, for the event log.
    pub by: String,
    /// What the job has to be still; one that has moved since stays as it is.
    pub expected: Option<Seen>,
}

/// What is done with a job by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAction {
    /// It is cancelled.
    Cancel,
    /// It is activated, if it is pending.
    Activate,
    /// It becomes claimable, if it waits for a time.
    RunNow,
    /// It is replayed in a new life, if it is discarded.
    Replay,
}

impl JobAction {
    /// Returns what happens to the job.
    #[must_use]
    pub const fn event(self) -> Event<'static> {
        match self {
            Self::Cancel => Event::Cancel,
            Self::Activate => Event::Activate,
            Self::RunNow => Event::Due,
            Self::Replay => Event::Replay,
        }
    }
}

/// An order to take a dead letter off the list.
#[derive(Clone, Debug)]
pub struct ForgetDeadLetter {
    /// The job.
    pub job: JobId,
    /// Tenant that the order is limited to; another tenant's job is not found.
    pub tenant: Option<String>,
    /// Who orders it, for the event log.
    pub by: String,
    /// The life that the dead letter has to be of; one of a later life is not found.
    pub life: Option<NonZeroU32>,
}

/// A dead letter of one life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LetterKey {
    /// The job.
    pub job: JobId,
    /// Its life: a job that is replayed and dies again is another dead letter.
    pub life: NonZeroU32,
}

/// Notes that dead letters were handled, as the configuration says. One that is gone is left out.
#[derive(Clone, Debug)]
pub struct HandleLetters {
    /// The dead letters.
    pub letters: Vec<LetterKey>,
}

/// The job as its caller saw it when giving an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its state.
    pub state: State,
    /// The epoch of its latest claim.
    pub epoch: Epoch,
    /// Whether an attempt is known to have started.
    pub started: bool,
}

impl JobOrder {
    /// Returns whether the job is still as the caller saw it.
    #[must_use]
    pub fn still_meets(&self, job: &Job) -> bool {
        let started = job.holder.is_some_and(|holder| holder.started.is_some());
        let now = Seen { state: job.state, epoch: job.epoch, started };
        self.expected.is_none_or(|expected| expected == now)
    }
}

/// There is nothing to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is nothing to forget")]
pub struct NotFound;

requests! {
    JobOrder as Order -> Moved(Result<Moved, MoveRefusal>);
    ForgetDeadLetter as ForgetDeadLetter -> Forgotten(Result<(), NotFound>);
}
unit_requests! {
    HandleLetters as HandleLetters;
}
