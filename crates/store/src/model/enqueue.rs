//! Storing jobs.

use std::collections::HashSet;
use std::sync::Arc;

use outlast_core::job::{Job, Place, State, Turn};

use crate::command::{First, NewJob};
use crate::model::tables::Row;
use crate::model::tx::Tx;
use crate::record::StoredJob;
use crate::reply::{EnqueueRefusal, Enqueued};
use crate::rules::enqueued_event;

impl Tx<'_> {
    pub(super) fn enqueue(&mut self, job: &NewJob) -> Result<Enqueued, EnqueueRefusal> {
        self.may_enqueue(job)?;
        Ok(self.insert(job))
    }

    /// All of them or none: every one is checked before the first is stored.
    pub(super) fn enqueue_all(
        &mut self,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>, (usize, EnqueueRefusal)> {
        let mut ids = HashSet::new();
        for (n, job) in jobs.iter().enumerate() {
            if !ids.insert(job.id) {
                return Err((n, EnqueueRefusal::DuplicateId(job.id)));
            }
            self.may_enqueue(job).map_err(|refusal| (n, refusal))?;
        }
        Ok(jobs.iter().map(|job| self.insert(job)).collect())
    }

    fn may_enqueue(&self, job: &NewJob) -> Result<(), EnqueueRefusal> {
        if job.rules.expires_at.is_some_and(|at| at <= self.now()) {
            return Err(EnqueueRefusal::Expired(job.id));
        }
        if self.tables.by_id.contains_key(&job.id) {
            return Err(EnqueueRefusal::DuplicateId(job.id));
        }
        Ok(())
    }

    fn insert(&mut self, new: &NewJob) -> Enqueued {
        let now = self.now();
        let key = new.stored_in();
        let class = self.tables.class(&key);
        let (state, place) = match new.first {
            First::At(at) if at > now => (State::Scheduled, Place::Timer(at)),
            First::Now | First::At(_) => (State::Available, Place::Ready(Turn::InOrder)),
            First::OnActivation => (State::Pending, Place::Pending),
        };
        let scheduled_for = match place {
            Place::Timer(at) => Some(at),
            Place::Ready(_) | Place::Pending | Place::Active | Place::Ended => None,
        };
        let stored = Arc::new(StoredJob {
            id: new.id,
            class,
            key: Arc::new(key.into_owned()),
            keys: new.keys.clone(),
            priority: new.priority,
            payload: new.payload.clone(),
            rules: new.rules.clone(),
            timeout: new.timeout,
            visibility: new.visibility,
            scheduled_timeout: new.scheduled_timeout,
            origin: new.origin,
            created: now,
            scheduled_for,
        });
        self.log_event(enqueued_event(&stored, state, &new.by));
        self.tables.add(Row {
            job: Job::new(state, new.rules.clone()),
            stored,
            place,
            class,
            since: now,
            attempt: 0,
            in_flight: None,
            attempts: Vec::new(),
            checkpoint: None,
            finished: None,
            result: None,
            stranded: None,
            ended_by: "",
            dead_letter: None,
            log: Vec::new(),
        });
        Enqueued { id: new.id, class, state, at: now }
    }
}
