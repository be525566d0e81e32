//! Which attempts a plain client's heartbeat extends.
//!
//! A heartbeat names the jobs that its sender holds, or only counts them. A client may hold fewer
//! than the store believes: the response to its fetch was lost. A count does not say which jobs
//! these are, so a count that is too low extends only attempts that an earlier heartbeat agreed
//! with. The others run out with their visibility.
//!
//! ```text
//! claimed ──count ≥ held, or named──▶ confirmed ──any count but 0──▶ extended
//!    └──────count < held────────────▶ unconfirmed: visibility passes, the job runs again
//! ```
//!
//! No memory of heartbeats is needed, so each may go to another server: an attempt is confirmed if
//! its visibility was ever reset. Attempts that were claimed after the heartbeat arrived are left
//! out, since its sender cannot have counted them.

use outlast_core::evidence::Evidence;
use outlast_core::id::{Epoch, JobId};
use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};

use crate::event::{Event, EventName};
use crate::request::requests;

/// A plain heartbeat's effect on what its sender holds.
#[derive(Clone, Debug)]
pub struct Extend {
    /// The id that the client gave itself.
    pub worker: String,
    /// The jobs that it says it holds.
    pub holds: Holds,
}

/// The jobs that a client holds, by its own account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// These.
    Jobs(Vec<JobId>),
    /// So many.
    Count(JobCount),
}

/// How many jobs a client holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCount {
    /// The number.
    pub jobs: u32,
    /// When the heartbeat arrived, by the store's clock.
    pub arrived: Timestamp,
    /// Jobs that are logged if they are still unconfirmed.
    pub report: Vec<JobId>,
}

/// An attempt that a count does not extend.
#[derive(Clone, Debug)]
pub struct Unconfirmed<'a> {
    /// Its job.
    pub job: JobId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its job's type.
    pub job_type: &'a str,
    /// Its job's queue.
    pub queue: &'a str,
    /// How many attempts the store holds for the client.
    pub held: usize,
}

/// Returns whether an earlier heartbeat agreed with an attempt.
#[must_use]
pub fn is_confirmed(claimed: Timestamp, visible_until: Timestamp, visibility: Span) -> bool {
    visible_until > claimed.after(visibility)
}

/// Returns whether a heartbeat that counts `count` jobs extends an attempt of its sender, for whom
/// `held` attempts are stored.
#[must_use]
pub fn is_extended(confirmed: bool, held: usize, count: u32) -> bool {
    confirmed || usize::try_from(count).is_ok_and(|count| held <= count)
}

/// Returns the event of an attempt that a heartbeat did not extend.
#[must_use]
pub fn unconfirmed_event(of: &Unconfirmed<'_>, worker: &str, count: u32, at: Timestamp) -> Event {
    let held = of.held;
    let words = format!(
        "the heartbeat of {worker} counts {count}, and {held} jobs are held for it: this one is not extended"
    );
    let evidence = Evidence { code: None, text: words };
    Event {
        job: Some(of.job),
        epoch: Some(of.epoch),
        job_type: Some(of.job_type.to_owned()),
        queue: Some(of.queue.to_owned()),
        state: Some(State::Active),
        ..Event::new(at, EventName::JobUnconfirmed, worker, evidence)
    }
}

/// What a plain heartbeat prolonged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// The jobs whose visibility was prolonged.
    pub jobs: Vec<JobId>,
    /// Jobs that its sender holds and that were passed over, since another transaction has
    /// them locked: a heartbeat waits for no job.
    pub passed_over: Vec<JobId>,
    /// Jobs that the store holds for its sender and that it did not count, as far as is known.
    pub unconfirmed: Vec<JobId>,
}

impl Extended {
    /// Returns the outcome when no job was passed over, and none is unconfirmed.
    #[must_use]
    pub const fn all(jobs: Vec<JobId>) -> Self {
        Self { jobs, passed_over: Vec::new(), unconfirmed: Vec::new() }
    }
}

requests! {
    Extend as Extend -> Extended(Extended);
}
