//! `Idempotency-Key`: a repeated request gets the first response again and does nothing else.
//!
//! ```text
//! key + token ─▶ fingerprint ─▶ stored with the jobs, in their transaction
//! same key, same request ─▶ the first response, `Idempotency-Replayed: true`
//! same key, other request ─▶ 409
//! ```
//!
//! A response is written from the part of a job that never changes, the first time too. So it
//! need not be stored to be the same.

use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::limits::{IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENCY_KEY_KEPT};
use outlast_store::command::{First, NewJob};
use outlast_store::idempotency::{EnqueueOnce, EnqueueOnceRefusal, EnqueuedOnce, Fingerprint};
use outlast_store::record::{JobRecord, StoredJob};
use outlast_store::reply::Enqueued;
use outlast_store::{apply, list};
use outlast_wire::Fault;
use sha2::{Digest as _, Sha256};

use super::error::ApiError;
use super::job_view::JobDetails;
use super::request::ApiRequest;
use super::{App, orders};

/// The request header.
pub(super) const HEADER: &str = "idempotency-key";
/// The response header of a repeated response.
pub(super) const REPLAYED: &str = "idempotency-replayed";

/// A key with its owner.
#[derive(Debug)]
pub(super) struct IdempotencyKey {
    text: String,
    fingerprint: Fingerprint,
}

/// The endpoint that a key was used at. Aliases of a path are the same endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Endpoint {
    Execution,
    Job,
    Batch,
}

/// What a key was used for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    endpoint: Endpoint,
    fingerprint: Fingerprint,
}

/// The outcome of a request with a key.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) jobs: Vec<AnsweredJob>,
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

impl AnsweredJob {
    /// Reads a job that a producer of unique jobs gets as its answer, as it is now.
    pub(super) async fn of(app: &App, stored: &Enqueued) -> Result<Self, ApiError> {
        let record = orders::job(app, stored.id, None).await?;
        let details = JobDetails::of(app, record).await?;
        Ok(Self { details, deduplicated: stored.is_old() })
    }

    /// The same for several jobs of one request: each as lists show it.
    pub(super) async fn of_all(app: &App, stored: &[Enqueued]) -> Result<Vec<Self>, ApiError> {
        let mut jobs = Vec::with_capacity(stored.len());
        for stored in stored {
            let record = orders::job(app, stored.id, None).await?;
            let details = JobDetails::newborn(app, list::listed(record));
            jobs.push(Self { details, deduplicated: stored.is_old() });
        }
        Ok(jobs)
    }
}

impl IdempotencyKey {
    /// Reads the key of a request, if it has one.
    pub(super) fn of(req: &ApiRequest) -> Result<Option<Self>, ApiError> {
        let mut values = req.headers().get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let fault = |problem: String| ApiError::from(Fault::field("Idempotency-Key", problem));
        if values.next().is_some() {
            return Err(fault("must be given once".to_owned()));
        }
        let text = value.to_str().map(str::trim).unwrap_or_default();
        if text.is_empty() || text.len() > IDEMPOTENCY_KEY_BYTES_MAX {
            let problem = format!("must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable characters");
            return Err(fault(problem));
        }
        let owner = req.token().map_or(b"anonymous".as_slice(), |token| token.hash.bytes());
        let fingerprint = hash(&[owner, text.as_bytes()]);
        Ok(Some(Self { text: text.to_owned(), fingerprint }))
    }

    /// Stores jobs, or finds those that were stored for this key and request before.
    pub(super) async fn enqueue(
        self,
        app: &App,
        Request { endpoint, fingerprint: request }: Request,
        jobs: Vec<NewJob>,
    ) -> Result<Outcome, ApiError> {
        // The same request asks for the same jobs.
        let firsts: Vec<First> = jobs.iter().map(|job| job.first).collect();
        let once = EnqueueOnce { key: self.fingerprint, request, keep: IDEMPOTENCY_KEY_KEPT, jobs };
        let (ids, replayed): (Vec<JobId>, bool) = match app.engine.submit(once).await? {
            Ok(EnqueuedOnce::Stored(stored)) if stored.iter().any(Enqueued::is_old) => {
                let jobs = match stored.as_slice() {
                    [one] => vec![AnsweredJob::of(app, one).await?],
                    several => AnsweredJob::of_all(app, several).await?,
                };
                return Ok(Outcome { jobs, replayed: false });
            }
            Ok(EnqueuedOnce::Stored(stored)) => {
                (stored.iter().map(|stored| stored.id).collect(), false)
            }
            Ok(EnqueuedOnce::Before(ids)) => (ids, true),
            Err(EnqueueOnceRefusal::Job(place, refusal)) => {
                let error = ApiError::Enqueue(refusal);
                return Err(match endpoint {
                    Endpoint::Batch => error.of_job(place),
                    Endpoint::Execution | Endpoint::Job => error,
                });
            }
            Err(EnqueueOnceRefusal::OtherRequest) => {
                return Err(ApiError::KeyReused(format!(
                    "Idempotency-Key {:?} was used for another request less than 24 hours ago",
                    self.text
                )));
            }
        };
        let mut jobs = Vec::with_capacity(ids.len());
        for (id, first) in ids.into_iter().zip(firsts) {
            let record = newborn(orders::job(app, id, None).await?.job, first);
            let details = JobDetails::newborn(app, record);
            jobs.push(AnsweredJob { details, deduplicated: false });
        }
        Ok(Outcome { jobs, replayed })
    }
}

/// Identifies a request.
pub(super) fn request(endpoint: Endpoint, tenant: Option<&str>, body: &[u8]) -> Request {
    let name = match endpoint {
        Endpoint::Execution => b"execution",
        Endpoint::Job => b"ojs   job",
        Endpoint::Batch => b"ojs batch",
    };
    let fingerprint = hash(&[name, tenant.unwrap_or_default().as_bytes(), body]);
    Request { endpoint, fingerprint }
}

/// Hashes parts with their lengths, so that different lists of parts differ.
fn hash(parts: &[&[u8]]) -> Fingerprint {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Returns a job that was stored a moment ago.
pub(super) fn stored(new: NewJob, stored: &Enqueued) -> JobRecord {
    let class = (stored.class, Arc::new(new.class.clone()));
    let job = apply::enqueue::begin(&new, class, stored.at).job;
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
