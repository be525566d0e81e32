//! Storing jobs: two rows each.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::Epoch;
use outlast_core::job::{Answer, Hold, Place, State, Transition, Turn};
use outlast_core::time::Timestamp;
use outlast_store::command::{EndDetail, First, NewJob, Payload};
use outlast_store::event::{Event, EventName};
use outlast_store::record::StoredJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::settle::enqueued_event;
use outlast_store::{StoreError, codec};

use crate::failure::{Conflict, Failure};
use crate::row::{self, text};
use crate::writer::Writing;
use crate::writer::tables::{ExpiryRow, JobRow};

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
        let (state, place) = match job.first {
            _ if refused.is_some() => (State::Discarded, Place::Ended),
            First::Now => (State::Available, Place::Ready(Turn::InOrder)),
            First::At(at) if at <= self.now => (State::Available, Place::Ready(Turn::InOrder)),
            First::At(at) => (State::Scheduled, Place::Timer(at)),
            First::OnActivation => (State::Pending, Place::Pending),
        };
        let scheduled_for = match place {
            Place::Timer(at) => Some(at),
            Place::Ready(_) | Place::Pending | Place::Held | Place::Ended => None,
        };
        let stored = StoredJob {
            id: job.id,
            class,
            key: Arc::clone(self.classes.key(class)?),
            priority: job.priority,
            // Written below, and not looked at again.
            payload: Payload::default(),
            rules: job.rules.clone(),
            timeout: job.timeout,
            visibility: job.visibility,
            scheduled_timeout: job.scheduled_timeout,
            origin: job.origin,
            created: self.now,
            scheduled_for,
        };
        let seq = self.numbers.pop_front();
        let seq = seq.ok_or_else(|| StoreError::Corrupt("too few numbers for jobs".into()))?;
        self.put_job_row(seq, &stored, &job.payload);
        let newborn = newborn(state, place);
        match place {
            Place::Ready(turn) => self.put_ready((seq, &stored), class, turn, &newborn),
            Place::Timer(_) | Place::Pending | Place::Held => self.put_waiting(seq, &newborn),
            Place::Ended => {}
        }
        if let Some(at) = stored.rules.expires_at.filter(|_| refused.is_none()) {
            self.tables.expiries.push(ExpiryRow { at: at.0, seq });
        }
        self.events.push(enqueued_event(&stored, state));
        if let Some(error) = refused {
            self.refuse((seq, &stored), &newborn, error);
        }
        self.known.insert(job.id);
        self.absent.remove(&job.id);
        Ok(Enqueued { id: job.id, class, state, at: self.now })
    }

    fn refuse(&mut self, (seq, stored): (i64, &StoredJob), newborn: &Transition, error: &str) {
        let evidence = "refused when it was taken in".to_owned();
        let detail = EndDetail { error: Some(error.to_owned()), evidence, ..EndDetail::default() };
        self.put_finished(seq, newborn, &detail, "refused");
        let told = enqueued_event(stored, State::Discarded);
        let evidence = detail.evidence;
        let by = "server".to_owned();
        self.events.push(Event { kind: EventName::JobDiscarded, by, evidence, ..told });
    }

    fn put_job_row(&mut self, seq: i64, job: &StoredJob, payload: &Payload) {
        self.tables.jobs.push(JobRow {
            seq,
            id: job.id.0,
            class: job.class.0,
            priority: i16::from(job.priority),
            rules: codec::rules_text(&job.rules),
            timeout_ms: row::span(job.timeout),
            visibility_ms: row::span(job.visibility),
            strand_ms: row::strand_ms(job.scheduled_timeout),
            origin: row::origin_number(job.origin),
            created: job.created.0,
            scheduled_for: job.scheduled_for.map(|at| at.0),
            expires_at: job.rules.expires_at.map(|at| at.0),
            args: text(&payload.args),
            meta: text(&payload.meta),
            extra: text(&payload.extra),
        });
    }
}

const fn newborn(state: State, place: Place) -> Transition {
    Transition {
        from: state,
        epoch: Epoch::ZERO,
        to: state,
        next_epoch: Epoch::ZERO,
        life: NonZeroU32::MIN,
        spent: Spent { failures: 0, losses: 0, interruptions: 0 },
        isolated: false,
        place,
        hold: Hold::None,
        attempt: 0,
        dead_letter: None,
        alarm: None,
        answer: Answer::Accepted,
    }
}

fn is_expired(job: &NewJob, now: Timestamp) -> bool {
    job.rules.expires_at.is_some_and(|at| at <= now)
}
