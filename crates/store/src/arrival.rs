//! Arrivals: jobs that programs stored by SQL in their own transactions, before a server has
//! taken them in.
//!
//! ```text
//! program's transaction ─▶ arrival ─TakeIn: planned, refused or stored─▶ job
//! ```
//!
//! An arrival is what its program wrote, as it wrote it. What job that is, the server
//! decides, by the rules of its other doors: it lends the store a [`Planner`]. A job is an
//! arrival or stored, never both. Only PostgreSQL has arrivals.

use std::fmt;
use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::time::{Span, Timestamp};

use crate::command::NewJob;
use crate::reply::Enqueued;

/// A job as a program stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its id.
    pub id: JobId,
    /// JSON: the job as the OJS API takes it.
    pub envelope: String,
    /// Whose it is, if its program said so.
    pub tenant: Option<String>,
}

/// What is stored of an arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The job; of the arrival's id.
    pub job: NewJob,
    /// JSON object: why it can never run. Then it is discarded at once, so that whoever looks
    /// for it finds the reason.
    pub refused: Option<String>,
}

/// Says what job an arrival is, at a time. Pure: a batch may be tried again.
#[derive(Clone)]
pub struct Planner(Arc<Plan>);

type Plan = dyn Fn(&Arrival, Timestamp) -> Planned + Send + Sync;

impl Planner {
    /// Returns a planner that plans so.
    #[must_use]
    pub fn new(plan: impl Fn(&Arrival, Timestamp) -> Planned + Send + Sync + 'static) -> Self {
        Self(Arc::new(plan))
    }

    /// Returns what is to be stored of an arrival if the time is `now`.
    #[must_use]
    pub fn plan(&self, arrival: &Arrival, now: Timestamp) -> Planned {
        (self.0)(arrival, now)
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

/// Takes arrivals in, in the order in which they were written.
#[derive(Clone, Debug)]
pub struct TakeIn {
    /// Only this one, should another server be at it after that has done.
    pub only: Option<JobId>,
    /// How many at most.
    pub limit: u32,
    /// How long this server will look for more without being told: meanwhile programs need
    /// not tell.
    pub watch: Option<Span>,
    /// What becomes of them.
    pub planner: Planner,
}

/// What was taken in.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TakenIn {
    /// Jobs that are stored now, the refused ones included.
    pub jobs: Vec<Enqueued>,
    /// Arrivals that were dropped since a job of their id was stored meanwhile.
    pub known: Vec<JobId>,
    /// When something is due first because of them.
    pub due: Option<Timestamp>,
    /// Whether the limit was reached, so that more should be taken in at once.
    pub more: bool,
}
