//! Storing jobs.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{State, Turn};
use outlast_core::time::Timestamp;
use outlast_store::command::{ClassId, ClassKey, First, NewJob, Payload};
use outlast_store::event::{Event, EventName};
use outlast_store::job::rank;
use outlast_store::record::StoredJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};

use super::Outbox;
use super::step::{Counters, Put, ReadyRow, WaitingRow};
use crate::rules::enqueued_event;

/// Decides whether a job may be stored; `is_known` tells whether a job of its id is stored.
///
/// # Errors
/// Returns why it may not.
pub fn check(job: &NewJob, is_known: bool, now: Timestamp) -> Result<(), EnqueueRefusal> {
    if job.rules.expires_at.is_some_and(|at| at <= now) {
        return Err(EnqueueRefusal::Expired(job.id));
    }
    if is_known {
        return Err(EnqueueRefusal::DuplicateId(job.id));
    }
    Ok(())
}

/// Returns the position of the first job that has the id of one before it.
#[must_use]
pub fn repeated(jobs: &[NewJob]) -> Option<usize> {
    let mut seen: HashSet<JobId> = HashSet::with_capacity(jobs.len());
    jobs.iter().position(|job| !seen.insert(job.id))
}

/// A job that is stored now.
#[derive(Debug)]
pub struct Stored<'a> {
    /// Who enqueued it.
    by: &'a str,
    /// Its immutable part, without the payload.
    pub job: StoredJob,
    /// The state it begins in.
    pub state: State,
}

/// Decides how a job begins.
#[must_use]
pub fn begin(new: &NewJob, class: ClassId, key: Arc<ClassKey>, now: Timestamp) -> Stored<'_> {
    let (state, scheduled_for) = match new.first {
        First::Now => (State::Available, None),
        First::At(at) if at <= now => (State::Available, None),
        First::At(at) => (State::Scheduled, Some(at)),
        First::OnActivation => (State::Pending, None),
    };
    let job = StoredJob {
        id: new.id,
        class,
        key,
        keys: new.keys.clone(),
        priority: new.priority,
        payload: Payload::default(),
        rules: new.rules.clone(),
        timeout: new.timeout,
        visibility: new.visibility,
        scheduled_timeout: new.scheduled_timeout,
        origin: new.origin,
        created: now,
        scheduled_for,
    };
    Stored { by: &new.by, job, state }
}

impl Stored<'_> {
    /// Makes the job end as it is stored: it is refused, but a program stored it by SQL and
    /// looks for it.
    #[must_use]
    pub fn refused(mut self) -> Self {
        self.state = State::Discarded;
        self.job.scheduled_for = None;
        self
    }

    /// Returns the row that the job begins in, beside its immutable part. One that is refused
    /// begins in none of these.
    #[must_use]
    pub fn put(&self) -> Put<'static> {
        let counters =
            Counters { epoch: Epoch::ZERO, life: NonZeroU32::MIN, spent: Spent::default() };
        match self.state {
            State::Available => Put::Ready(ReadyRow {
                class: self.job.class,
                rank: rank(self.job.priority, Turn::InOrder),
                lane: self.job.keys.lane(),
                counters,
                since: self.job.created,
                scheduled_timeout: self.job.scheduled_timeout,
                expires: self.job.rules.expires_at,
            }),
            State::Scheduled | State::Pending => Put::Waiting(WaitingRow {
                state: self.state,
                due: self.job.scheduled_for,
                counters,
                isolated: false,
                since: self.job.created,
            }),
            State::Active
            | State::Completed
            | State::Retryable
            | State::Cancelled
            | State::Discarded => Put::Nowhere,
        }
    }

    /// Counts and logs the job; returns the reply to its producer.
    pub fn announce(&self, outbox: &mut Outbox) -> Enqueued {
        outbox.tally.stored(self.job.class, self.state, self.job.created);
        outbox.events.push(enqueued_event(&self.job, self.state, self.by));
        if self.state == State::Discarded {
            let event = enqueued_event(&self.job, self.state, "server");
            let evidence = "refused when it was taken in".into();
            outbox.events.push(Event { kind: EventName::JobDiscarded, evidence, ..event });
        }
        let StoredJob { id, class, created, .. } = &self.job;
        Enqueued { id: *id, class: *class, state: self.state, at: *created, by_key: None }
    }
}
