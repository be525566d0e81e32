//! `Idempotency-Key`: a request that is sent again is answered again, and nothing more.
//!
//! ```text
//! key + token ─▶ fingerprint ─▶ stored with the jobs, in their transaction
//! same key, same request ─▶ the answer of the first time, `Idempotency-Replayed: true`
//! same key, other request ─▶ 409
//! ```
//!
//! An answer is written from the part of a job that never changes, the first time too: so
//! it need not be kept to be the same.

use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::{Epoch, JobId};
use outlast_core::job::State;
use outlast_core::limits::{IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENCY_KEY_KEPT};
use outlast_store::command::NewJob;
use outlast_store::once::{Fingerprint, Once, OnceRefusal, Onced};
use outlast_store::record::{JobRecord, StoredJob};
use outlast_store::{Command, Reply};
use outlast_wire::Fault;
use sha2::{Digest as _, Sha256};

use super::call::Call;
use super::error::Failure;
use super::{App, orders};
use crate::engine::unexpected;

/// The header that asks for it.
pub(super) const HEADER: &str = "idempotency-key";
/// The header of an answer that was given before.
pub(super) const REPLAYED: &str = "idempotency-replayed";

/// A key, and whose it is.
#[derive(Debug)]
pub(super) struct Key {
    text: String,
    fingerprint: Fingerprint,
}

/// Which request a key stands for: the same path under another name is the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Door {
    Execution,
    Job,
    Batch,
}

/// What a keyed request came to.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The jobs as they were when they were new.
    pub(super) jobs: Vec<JobRecord>,
    pub(super) replayed: bool,
}

impl Key {
    /// Reads the key of a request, if it has one.
    pub(super) fn of(call: &Call) -> Result<Option<Self>, Failure> {
        let mut values = call.headers().get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let fault = |problem: String| Failure::from(Fault::field("Idempotency-Key", problem));
        if values.next().is_some() {
            return Err(fault("must be given once".to_owned()));
        }
        let text = value.to_str().map(str::trim).unwrap_or_default();
        if text.is_empty() || text.len() > IDEMPOTENCY_KEY_BYTES_MAX {
            let problem = format!("must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable characters");
            return Err(fault(problem));
        }
        let owner = call.token().map_or(b"anonymous".as_slice(), |token| token.hash.bytes());
        let fingerprint = hash(&[owner, text.as_bytes()]);
        Ok(Some(Self { text: text.to_owned(), fingerprint }))
    }

    /// Stores jobs, or finds those that were stored for this key and request before.
    pub(super) async fn enqueue(
        self,
        app: &App,
        request: Fingerprint,
        jobs: Vec<NewJob>,
    ) -> Result<Outcome, Failure> {
        let once = Once { key: self.fingerprint, request, keep: IDEMPOTENCY_KEY_KEPT, jobs };
        let outcome = match app.engine.submit(Command::EnqueueOnce(Box::new(once))).await? {
            Reply::Onced(outcome) => outcome,
            other => return Err(unexpected("a keyed enqueue", &other).into()),
        };
        let (ids, replayed): (Vec<JobId>, bool) = match outcome {
            Ok(Onced::Stored(stored)) => (stored.iter().map(|stored| stored.id).collect(), false),
            Ok(Onced::Before(ids)) => (ids, true),
            Err(OnceRefusal::Job(_position, refusal)) => return Err(Failure::Enqueue(refusal)),
            Err(OnceRefusal::OtherRequest) => {
                return Err(Failure::Conflict(format!(
                    "Idempotency-Key {:?} was used for another request less than 24 hours ago; \
                     a new request needs a key of its own",
                    self.text
                )));
            }
        };
        let mut jobs = Vec::with_capacity(ids.len());
        for id in ids {
            jobs.push(newborn(orders::job(app, id, None).await?.job));
        }
        Ok(Outcome { jobs, replayed })
    }
}

/// Returns what a request is known by.
pub(super) fn request(door: Door, tenant: Option<&str>, body: &[u8]) -> Fingerprint {
    let door = match door {
        Door::Execution => b"execution",
        Door::Job => b"ojs   job",
        Door::Batch => b"ojs batch",
    };
    hash(&[door, tenant.unwrap_or_default().as_bytes(), body])
}

/// Hashes parts together with their lengths, so that no two lists of parts look alike.
fn hash(parts: &[&[u8]]) -> Fingerprint {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Returns a job as it was before anything happened to it.
fn newborn(job: Arc<StoredJob>) -> JobRecord {
    JobRecord {
        state: if job.scheduled_for.is_some() { State::Scheduled } else { State::Available },
        epoch: Epoch::ZERO,
        life: NonZeroU32::MIN,
        spent: Spent::default(),
        attempt: 0,
        isolated: false,
        since: job.created,
        due: job.scheduled_for,
        holder: None,
        last_holder: None,
        claimed: None,
        started: None,
        finished: None,
        result: None,
        error: None,
        ended_by: String::new(),
        dead_letter: None,
        job,
    }
}
