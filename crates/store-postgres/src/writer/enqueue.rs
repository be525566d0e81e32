//! Storing jobs: two rows each, written by one statement for all of a batch.

use std::collections::HashSet;
use std::sync::Arc;

use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::codec;
use outlast_store::command::{First, NewJob, Payload};
use outlast_store::event::{Event, EventName};
use outlast_store::record::StoredJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::settle::enqueued_event;

use crate::failure::{Conflict, Failure};
use crate::row::{self, text};
use crate::writer::Writing;
use crate::writer::tables::NewRow;

type Outcome = Result<Enqueued, EnqueueRefusal>;

impl Writing<'_> {
    pub(super) async fn enqueue(&mut self, job: &NewJob) -> Result<Outcome, Failure> {
        if let Some(refusal) = self.enqueue_refusal(job) {
            return Ok(Err(refusal));
        }
        self.insert(job, None).await.map(Ok)
    }

    pub(super) async fn enqueue_all(
        &mut self,
        jobs: &[NewJob],
    ) -> Result<Result<Vec<Enqueued>, (usize, EnqueueRefusal)>, Failure> {
        let mut seen = HashSet::with_capacity(jobs.len());
        for (at, job) in jobs.iter().enumerate() {
            let twice = !seen.insert(job.id);
            let refusal = match twice {
                true => Some(EnqueueRefusal::DuplicateId(job.id)),
                false => self.enqueue_refusal(job),
            };
            match refusal {
                None => {}
                Some(refusal) if self.careful => return Ok(Err((at, refusal))),
                // A job before it may be there already, and the first fault is told.
                Some(refusal) => {
                    return Err(Failure::Again(Conflict::Key, refusal.to_string()));
                }
            }
        }
        let mut stored = Vec::with_capacity(jobs.len());
        for job in jobs {
            stored.push(self.insert(job, None).await?);
        }
        Ok(Ok(stored))
    }

    fn enqueue_refusal(&self, job: &NewJob) -> Option<EnqueueRefusal> {
        if is_expired(job, self.now) {
            return Some(EnqueueRefusal::Expired(job.id));
        }
        self.known.contains(&job.id).then_some(EnqueueRefusal::DuplicateId(job.id))
    }

    /// Stores a job; one that is refused, for a reason, is stored as discarded.
    pub(super) async fn insert(
        &mut self,
        job: &NewJob,
        refused: Option<&str>,
    ) -> Result<Enqueued, Failure> {
        let class = self.get_or_make(&job.class).await?;
        let (state, scheduled_for) = match job.first {
            _ if refused.is_some() => (State::Discarded, None),
            First::Now => (State::Available, None),
            First::At(at) if at <= self.now => (State::Available, None),
            First::At(at) => (State::Scheduled, Some(at)),
            First::OnActivation => (State::Pending, None),
        };
        let rules = &job.rules;
        self.tables.new.push(NewRow {
            id: job.id.0,
            class: class.0,
            priority: i16::from(job.priority),
            rules: codec::rules_text(rules),
            timeout_ms: row::span(job.timeout),
            visibility_ms: row::span(job.visibility),
            strand_ms: row::strand_ms(job.scheduled_timeout),
            origin: row::origin_number(job.origin),
            created: self.now.0,
            scheduled_for: scheduled_for.map(|at| at.0),
            expires_at: rules.expires_at.map(|at| at.0),
            args: text(&job.payload.args),
            meta: text(&job.payload.meta),
            extra: text(&job.payload.extra),
            state: state.as_str(),
            refusal: refused.map(text),
        });
        let stored = StoredJob {
            id: job.id,
            class,
            key: Arc::clone(self.classes.key(class)?),
            priority: job.priority,
            // Written above, and not looked at again.
            payload: Payload::default(),
            rules: job.rules.clone(),
            timeout: job.timeout,
            visibility: job.visibility,
            scheduled_timeout: job.scheduled_timeout,
            origin: job.origin,
            created: self.now,
            scheduled_for,
        };
        self.tally.stored(class, state);
        self.events.push(enqueued_event(&stored, state, &job.by));
        if refused.is_some() {
            self.tell_refusal(&stored);
        }
        self.known.insert(job.id);
        self.absent.remove(&job.id);
        Ok(Enqueued { id: job.id, class, state, at: self.now })
    }

    fn tell_refusal(&mut self, stored: &StoredJob) {
        let told = enqueued_event(stored, State::Discarded, "server");
        let evidence = "refused when it was taken in".into();
        self.events.push(Event { kind: EventName::JobDiscarded, evidence, ..told });
    }
}

fn is_expired(job: &NewJob, now: Timestamp) -> bool {
    job.rules.expires_at.is_some_and(|at| at <= now)
}
