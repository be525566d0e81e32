//! What a store lost when a standby took the place of its primary, by what a server remembers.

use outlast_core::id::{Epoch, JobId, WorkerId};

use crate::reply::{MoveRefusal, Moved};
use crate::request::{requests, unit_requests};

/// Notes again that a worker was given a job, or that it started it: the store lost that.
///
/// The job must wait under a lower epoch, and the worker must hold a lease; or the worker must hold
/// the attempt. It counts as started, because its start may be lost as well. Limits do not
/// count it.
#[derive(Clone, Debug)]
pub struct Adopt {
    /// The job.
    pub job: JobId,
    /// The epoch under which it was given out.
    pub epoch: Epoch,
    /// The native worker that was given it.
    pub worker: WorkerId,
    /// Who says so, for the event log.
    pub by: String,
}

/// Notes what was acknowledged and is not in the store any more: an event for each.
#[derive(Clone, Debug)]
pub struct NoteLoss {
    /// What happened, in words; empty if it was noted before.
    pub summary: String,
    /// What was lost.
    pub lost: Vec<Lost>,
    /// Who says so, for the event log.
    pub by: String,
}

/// One fact that was acknowledged and lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The job that it is about.
    pub job: JobId,
    /// The fact.
    pub what: LostFact,
}

/// What was lost about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostFact {
    /// That it was stored.
    Job,
    /// That a worker was given it.
    Claim {
        /// Under which epoch.
        epoch: Epoch,
        /// The native worker, if it was one.
        worker: Option<WorkerId>,
    },
    /// That an operator or a producer moved it: cancelled it, or retried it.
    Order,
    /// How an attempt ended.
    Result {
        /// The attempt's epoch.
        epoch: Epoch,
        /// The native worker that had it, if it was one.
        worker: Option<WorkerId>,
    },
}

requests! {
    Adopt as Adopt -> Moved(Result<Moved, MoveRefusal>);
}
unit_requests! {
    NoteLoss as NoteLoss;
}
