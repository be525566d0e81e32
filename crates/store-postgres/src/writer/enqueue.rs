//! Storing jobs: two rows each, written by one statement for all of a batch.

use std::sync::Arc;

use outlast_store::apply::enqueue;
use outlast_store::codec;
use outlast_store::command::NewJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};

use crate::failure::{Conflict, Failure};
use crate::row::{self, text};
use crate::writer::Writing;
use crate::writer::tables::NewRow;

type Outcome = Result<Enqueued, EnqueueRefusal>;

impl Writing<'_> {
    pub(super) async fn enqueue(&mut self, job: &NewJob) -> Result<Outcome, Failure> {
        if let Err(refusal) = enqueue::check(job, self.known.contains(&job.id), self.now) {
            return Ok(Err(refusal));
        }
        self.insert(job, None).await.map(Ok)
    }

    pub(super) async fn enqueue_all(
        &mut self,
        jobs: &[NewJob],
    ) -> Result<Result<Vec<Enqueued>, (usize, EnqueueRefusal)>, Failure> {
        let repeated = enqueue::repeated(jobs);
        for (at, job) in jobs.iter().enumerate() {
            let is_known = repeated == Some(at) || self.known.contains(&job.id);
            match enqueue::check(job, is_known, self.now) {
                Ok(()) => {}
                Err(refusal) if self.careful => return Ok(Err((at, refusal))),
                // A job before it may be there already, and the first fault is reported.
                Err(refusal) => return Err(Failure::Again(Conflict::Key, refusal.to_string())),
            }
        }
        let mut stored = Vec::with_capacity(jobs.len());
        for job in jobs {
            stored.push(self.insert(job, None).await?);
        }
        Ok(Ok(stored))
    }

    /// Stores a job; one that is refused, for a reason, is stored as discarded.
    pub(super) async fn insert(
        &mut self,
        job: &NewJob,
        refused: Option<&str>,
    ) -> Result<Enqueued, Failure> {
        let class = self.get_or_make(&job.class).await?;
        let key = Arc::clone(self.classes.key(class)?);
        let stored = enqueue::begin(job, (class, key), self.now);
        let stored = if refused.is_some() { stored.refused() } else { stored };
        self.tables.new.push(NewRow {
            id: job.id.0,
            class: class.0,
            priority: i16::from(job.priority),
            rules: codec::rules_text(&job.rules),
            timeout_ms: row::span(job.timeout),
            visibility_ms: row::span(job.visibility),
            strand_ms: row::strand_ms(job.scheduled_timeout),
            origin: row::origin_number(job.origin),
            created: self.now.0,
            scheduled_for: stored.job.scheduled_for.map(|at| at.0),
            expires_at: job.rules.expires_at.map(|at| at.0),
            args: text(&job.payload.args),
            meta: text(&job.payload.meta),
            extra: text(&job.payload.extra),
            state: stored.state.as_str(),
            refusal: refused.map(text),
        });
        self.known.insert(job.id);
        self.absent.remove(&job.id);
        Ok(stored.announce(&mut self.outbox))
    }
}
