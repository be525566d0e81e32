//! Requests for new jobs: one way in, and one way to answer, whatever the endpoint.
//!
//! A response is written from the part of a job that never changes. So it is the same when a
//! request is repeated with its [`IdempotencyKey`], although it is not stored.

use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_store::command::{EnqueueAll, First, NewJob};
use outlast_store::idempotency::{EnqueueOnceRefusal, EnqueuedOnce};
use outlast_store::record::{JobRecord, StoredJob};
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store_rules::{apply, list};

use super::error::ApiError;
use super::idempotency::{self, Endpoint, IdempotencyKey};
use super::job_view::JobDetails;
use super::{App, orders};

/// A request for new jobs.
#[derive(Debug)]
pub(super) struct Intake<'a> {
    pub(super) app: &'a App,
    pub(super) endpoint: Endpoint,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) tenant: Option<&'a str>,
    /// As it was sent: a repeated request has the same.
    pub(super) body: &'a [u8],
}

/// The jobs that a request is answered with.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) jobs: Vec<AnsweredJob>,
    /// Whether the request had a key, so that it may be repeated and must be answered the same.
    pub(super) keyed: bool,
    /// Whether it was repeated.
    pub(super) replayed: bool,
}

/// A job that a producer gets as its answer.
#[derive(Debug)]
pub(super) struct AnsweredJob {
    pub(super) details: JobDetails,
    /// Whether it was there before, and the new one was not stored: then it is shown as it is
    /// now, else as it was when it was new.
    pub(super) deduplicated: bool,
}

impl Intake<'_> {
    /// Stores jobs, all or none. With a key, finds those that were stored for it before.
    pub(super) async fn submit(self, jobs: Vec<NewJob>) -> Result<Outcome, ApiError> {
        if let Some(key) = &self.key {
            return self.submit_once(key, jobs).await;
        }
        let (stored, jobs) = self.store(jobs).await?;
        let jobs = if stored.iter().any(|stored| stored.by_key.is_some()) {
            self.read(&stored).await?
        } else {
            let fresh = jobs.into_iter().zip(&stored).map(|(job, stored)| fresh(job, stored));
            fresh.map(|record| self.newborn(record)).collect()
        };
        Ok(Outcome { jobs, keyed: false, replayed: false })
    }

    async fn store(&self, mut jobs: Vec<NewJob>) -> Result<(Vec<Enqueued>, Vec<NewJob>), ApiError> {
        let engine = &self.app.engine;
        if let Endpoint::Job | Endpoint::Execution = self.endpoint
            && let Some(job) = jobs.pop()
        {
            let (stored, job) = engine.submit_keeping(job).await?;
            return Ok((vec![stored.map_err(|refusal| self.refused(0, refusal))?], vec![job]));
        }
        let (stored, EnqueueAll(jobs)) = engine.submit_keeping(EnqueueAll(jobs)).await?;
        Ok((stored.map_err(|(place, refusal)| self.refused(place, refusal))?, jobs))
    }

    async fn submit_once(
        &self,
        key: &IdempotencyKey,
        jobs: Vec<NewJob>,
    ) -> Result<Outcome, ApiError> {
        // The same request asks for the same jobs.
        let firsts: Vec<First> = jobs.iter().map(|job| job.first).collect();
        let request = idempotency::request(self.endpoint, self.tenant, self.body);
        let (ids, replayed) = match self.app.engine.submit(key.once(request, jobs)).await? {
            Ok(EnqueuedOnce::Stored(stored)) if stored.iter().any(Enqueued::is_old) => {
                let jobs = self.read(&stored).await?;
                return Ok(Outcome { jobs, keyed: true, replayed: false });
            }
            Ok(EnqueuedOnce::Stored(stored)) => {
                (stored.iter().map(|stored| stored.id).collect::<Vec<JobId>>(), false)
            }
            Ok(EnqueuedOnce::Before(ids)) => (ids, true),
            Err(EnqueueOnceRefusal::Job(place, refusal)) => {
                return Err(self.refused(place, refusal));
            }
            Err(EnqueueOnceRefusal::OtherRequest) => return Err(key.reused()),
        };
        let mut jobs = Vec::with_capacity(ids.len());
        for (id, first) in ids.into_iter().zip(firsts) {
            let record = newborn(orders::job(self.app, id, None).await?.job, first);
            jobs.push(self.newborn(record));
        }
        Ok(Outcome { jobs, keyed: true, replayed })
    }

    /// Reads the jobs that a producer of unique jobs gets as its answer, as they are now: several
    /// as lists show them.
    async fn read(&self, stored: &[Enqueued]) -> Result<Vec<AnsweredJob>, ApiError> {
        let mut jobs = Vec::with_capacity(stored.len());
        for stored in stored {
            let record = orders::job(self.app, stored.id, None).await?;
            let details = match self.endpoint {
                Endpoint::Batch => JobDetails::newborn(self.app, list::listed(record)),
                Endpoint::Job | Endpoint::Execution => JobDetails::of(self.app, record).await?,
            };
            jobs.push(AnsweredJob { details, deduplicated: stored.is_old() });
        }
        Ok(jobs)
    }

    fn newborn(&self, record: JobRecord) -> AnsweredJob {
        let details = JobDetails::newborn(self.app, record);
        AnsweredJob { details, deduplicated: false }
    }

    fn refused(&self, place: usize, refusal: EnqueueRefusal) -> ApiError {
        let error = ApiError::Enqueue(refusal);
        match self.endpoint {
            Endpoint::Batch => error.of_job(place),
            Endpoint::Job | Endpoint::Execution => error,
        }
    }
}

/// Returns a job that was stored a moment ago.
fn fresh(new: NewJob, stored: &Enqueued) -> JobRecord {
    let key = Arc::new(new.class.clone());
    let job = apply::enqueue::begin(&new, stored.class, key, stored.at).job;
    let first = new.first;
    newborn(Arc::new(StoredJob { payload: new.payload, ..job }), first)
}

/// Returns a job as it was when it was new.
fn newborn(job: Arc<StoredJob>, first: First) -> JobRecord {
    let state = match first {
        First::OnActivation => State::Pending,
        First::Now | First::At(_) if job.scheduled_for.is_some() => State::Scheduled,
        First::Now | First::At(_) => State::Available,
    };
    let (since, due) = (job.created, job.scheduled_for);
    JobRecord { since, due, ..JobRecord::new(job, state, Spent::default()) }
}
