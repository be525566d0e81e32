//! Storing jobs.

use super::{Backend, Key};
use crate::StoreError;
use crate::apply::enqueue::{check, repeated};
use crate::command::NewJob;
use crate::idempotency::{EnqueueOnce, EnqueueOnceRefusal, EnqueuedOnce};
use crate::reply::{EnqueueRefusal, Enqueued};

pub(super) async fn enqueue<B: Backend>(
    backend: &mut B,
    job: &NewJob,
) -> Result<Result<Enqueued, EnqueueRefusal>, B::Error> {
    if let Err(refusal) = check(job, false, backend.context().now) {
        return Ok(Err(refusal));
    }
    let stored = backend.insert(job).await?;
    Ok(stored.ok_or(EnqueueRefusal::DuplicateId(job.id)))
}

/// Stores all jobs, or none: then it returns the first refusal with its position.
pub(super) async fn enqueue_all<B: Backend>(
    backend: &mut B,
    jobs: &[NewJob],
) -> Result<Result<Vec<Enqueued>, (usize, EnqueueRefusal)>, B::Error> {
    let repeated = repeated(jobs);
    let now = backend.context().now;
    for (position, job) in jobs.iter().enumerate() {
        let is_known = repeated == Some(position) || backend.is_stored(job.id)?;
        if let Err(refusal) = check(job, is_known, now) {
            return Ok(Err((position, backend.confirm_enqueue_refusal(refusal)?)));
        }
    }
    let mut stored = Vec::with_capacity(jobs.len());
    for job in jobs {
        let id = job.id;
        let appeared = || StoreError::Corrupt(format!("job {id} appeared while it was stored"));
        stored.push(backend.insert(job).await?.ok_or_else(appeared)?);
    }
    Ok(Ok(stored))
}

pub(super) async fn enqueue_once<B: Backend>(
    backend: &mut B,
    once: &EnqueueOnce,
) -> Result<Result<EnqueuedOnce, EnqueueOnceRefusal>, B::Error> {
    let expired = match backend.key(&once.key).await? {
        Key::InForce(request) if request != once.request => {
            return Ok(Err(EnqueueOnceRefusal::OtherRequest));
        }
        Key::InForce(_) => {
            return Ok(Ok(EnqueuedOnce::Before(backend.jobs_of_key(&once.key).await?)));
        }
        Key::Expired => true,
        Key::Unused => false,
    };
    let stored = match enqueue_all(backend, &once.jobs).await? {
        Ok(stored) => stored,
        Err((position, refusal)) => return Ok(Err(EnqueueOnceRefusal::Job(position, refusal))),
    };
    backend.write_key(once, &stored, expired)?;
    Ok(Ok(EnqueuedOnce::Stored(stored)))
}
