//! Arrivals: jobs that programs stored by SQL in their own transactions, before a server has
//! enqueued them.
//!
//! ```text
//! program's transaction ─▶ arrival ─read─▶ a server plans the job ─EnqueueArrived─▶ job
//! ```
//!
//! An arrival is what its program wrote, unchanged. A server reads it and decides which job it
//! becomes, by the rules of its other APIs. The command that stores the job deletes the arrival
//! as a compare-and-set: an arrival that is gone is skipped. So each becomes a job once, however
//! many servers read it, and one whose server died stays. Only PostgreSQL has arrivals.

use outlast_core::id::JobId;
use outlast_core::time::Span;

use crate::job::{Enqueued, NewJob};
use crate::request::requests;

/// A job as a program stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its place among the arrivals.
    pub number: ArrivalNumber,
    /// The job's id.
    pub id: JobId,
    /// JSON: the job in the format of the OJS API.
    pub envelope: String,
    /// The tenant, if the program named one.
    pub tenant: Option<String>,
}

/// Place of an arrival in the order in which they were written. No number is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArrivalNumber(pub i64);

/// Where a job is that a program may have stored by SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrivalState {
    /// Nowhere.
    Unknown,
    /// It waits to be enqueued.
    Waiting(Arrival),
    /// It is a job.
    Enqueued,
}

/// The job that an arrival becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivedJob {
    /// The arrival that it replaces.
    pub number: ArrivalNumber,
    /// The job, with the arrival's id.
    pub job: NewJob,
    /// JSON object: why the job can never run. It is then stored as discarded, so that its
    /// program finds the reason.
    pub refused: Option<String>,
}

/// Turns arrivals into jobs, in this order.
#[derive(Clone, Debug)]
pub struct EnqueueArrived {
    /// What becomes of which arrival.
    pub jobs: Vec<ArrivedJob>,
    /// Whether to wait for arrivals that another transaction has locked, instead of leaving
    /// them.
    pub wait: bool,
    /// How long this server will poll for more: meanwhile programs need not notify.
    pub watch: Option<Span>,
}

/// What became of arrivals. Those that are not listed were gone, locked, or met a lock.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EnqueuedArrived {
    /// The jobs that were stored, the refused ones included.
    pub jobs: Vec<Enqueued>,
    /// Arrivals that were dropped because another job has their id.
    pub known: Vec<JobId>,
    /// How many were tried, counted from the first. The store gives up after it has met too
    /// many locks.
    pub tried: usize,
}

impl EnqueuedArrived {
    /// Returns the outcome when none of the arrivals was there.
    #[must_use]
    pub fn all_gone(order: &EnqueueArrived) -> Self {
        Self { tried: order.jobs.len(), ..Self::default() }
    }
}

requests! {
    EnqueueArrived as EnqueueArrived -> EnqueuedArrived(EnqueuedArrived);
}
