//! Storing jobs: two rows each.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{Answer, Hold, Place, State, Transition, Turn};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::codec;
use outlast_store::command::{First, NewJob};
use outlast_store::list::BLOCK_BITS;
use outlast_store::record::StoredJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::settle::enqueued_event;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Writing;

type Outcome = Result<Enqueued, EnqueueRefusal>;

impl Writing<'_> {
    pub(super) fn enqueue(&mut self, job: NewJob) -> Result<Outcome, StoreError> {
        let id = job.id;
        if is_expired(&job, self.now) {
            return Ok(Err(EnqueueRefusal::Expired(id)));
        }
        // The insert itself finds a known id; only a class must not be made in vain.
        if !self.classes.has(&job.class) && self.seq_of(id)?.is_some() {
            return Ok(Err(EnqueueRefusal::DuplicateId(id)));
        }
        Ok(self.insert(job)?.ok_or(EnqueueRefusal::DuplicateId(id)))
    }

    pub(super) fn enqueue_all(
        &mut self,
        jobs: Vec<NewJob>,
    ) -> Result<Result<Vec<Enqueued>, (usize, EnqueueRefusal)>, StoreError> {
        let mut seen = HashSet::with_capacity(jobs.len());
        for (at, job) in jobs.iter().enumerate() {
            if !seen.insert(job.id) {
                return Ok(Err((at, EnqueueRefusal::DuplicateId(job.id))));
            }
            if let Some(refusal) = self.enqueue_refusal(job)? {
                return Ok(Err((at, refusal)));
            }
        }
        let mut stored = Vec::with_capacity(jobs.len());
        for job in jobs {
            let id = job.id;
            let lost = || StoreError::Corrupt(format!("job {id} appeared while it was stored"));
            stored.push(self.insert(job)?.ok_or_else(lost)?);
        }
        Ok(Ok(stored))
    }

    fn enqueue_refusal(&self, job: &NewJob) -> Result<Option<EnqueueRefusal>, StoreError> {
        if is_expired(job, self.now) {
            return Ok(Some(EnqueueRefusal::Expired(job.id)));
        }
        let known = self.seq_of(job.id)?.is_some();
        Ok(known.then_some(EnqueueRefusal::DuplicateId(job.id)))
    }

    pub(super) fn seq_of(&self, id: JobId) -> Result<Option<i64>, StoreError> {
        let mut select =
            self.db.prepare_cached("select seq from job_row where id = ?").map_err(failed)?;
        select.query_row([id.0.as_bytes().as_slice()], |row| row.get(0)).optional().map_err(failed)
    }

    /// Stores a job, or returns `None` when its id is known.
    fn insert(&mut self, job: NewJob) -> Result<Option<Enqueued>, StoreError> {
        let class = self.classes.get_or_make(self.db, &job.class)?;
        let (state, place) = match job.first {
            First::Now => (State::Available, Place::Ready(Turn::InOrder)),
            First::At(at) if at <= self.now => (State::Available, Place::Ready(Turn::InOrder)),
            First::At(at) => (State::Scheduled, Place::Timer(at)),
            First::OnActivation => (State::Pending, Place::Pending),
        };
        let scheduled_for = match place {
            Place::Timer(at) => Some(at),
            Place::Ready(_) | Place::Pending | Place::Held | Place::Ended => None,
        };
        let expires_at = job.rules.expires_at;
        let stored = StoredJob {
            id: job.id,
            class,
            key: Arc::clone(self.classes.key(class)?),
            priority: job.priority,
            payload: job.payload,
            rules: job.rules,
            timeout: job.timeout,
            visibility: job.visibility,
            scheduled_timeout: job.scheduled_timeout,
            origin: job.origin,
            created: self.now,
            scheduled_for,
        };
        let Some(seq) = self.insert_job_row(&stored)? else { return Ok(None) };
        if self.classes.enters(class, seq >> BLOCK_BITS) {
            self.execute(
                "insert or ignore into class_block (class, block) values (?, ?)",
                (class.0, seq >> BLOCK_BITS),
            )?;
        }
        let newborn = Transition {
            from: state,
            epoch: Epoch::ZERO,
            to: state,
            next_epoch: Epoch::ZERO,
            life: NonZeroU32::MIN,
            spent: Spent::default(),
            isolated: false,
            place,
            hold: Hold::None,
            attempt: 0,
            dead_letter: None,
            alarm: None,
            answer: Answer::Accepted,
        };
        match place {
            Place::Ready(turn) => self.insert_ready((seq, &stored), class, turn, &newborn)?,
            Place::Timer(_) | Place::Pending | Place::Held | Place::Ended => {
                self.insert_waiting(seq, &newborn)?;
            }
        }
        if let Some(at) = expires_at {
            self.execute("insert into expiry (at, seq) values (?, ?)", (at.0, seq))?;
        }
        self.tally.stored(class, state);
        self.events.push(enqueued_event(&stored, state, &job.by));
        Ok(Some(Enqueued { id: stored.id, class, state, at: self.now }))
    }

    fn insert_job_row(&self, job: &StoredJob) -> Result<Option<i64>, StoreError> {
        let stored = self.execute(
            "insert into job_row (id, class, priority, args, meta, extra, rules, timeout_ms,
                                  visibility_ms, strand_ms, origin, created, scheduled_for,
                                  expires_at)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             on conflict (id) do nothing",
            (
                job.id.0.as_bytes().as_slice(),
                job.class.0,
                job.priority,
                &job.payload.args,
                &job.payload.meta,
                &job.payload.extra,
                codec::rules_text(&job.rules),
                row::span(job.timeout),
                row::span(job.visibility),
                row::strand_ms(job.scheduled_timeout),
                row::origin_number(job.origin),
                job.created.0,
                job.scheduled_for.map(|at| at.0),
                job.rules.expires_at.map(|at| at.0),
            ),
        )?;
        Ok((stored == 1).then(|| self.db.last_insert_rowid()))
    }
}

fn is_expired(job: &NewJob, now: Timestamp) -> bool {
    job.rules.expires_at.is_some_and(|at| at <= now)
}
