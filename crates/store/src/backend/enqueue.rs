//! Storing jobs.

use super::unique::{Plan, plan};
use super::{Backend, Key, unique};
use crate::apply::enqueue::{check, repeated};
use crate::apply::unique::repeated_key;
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
    if job.unique.is_some() {
        return enqueue_unique(backend, job).await;
    }
    let stored = backend.insert(job).await?;
    Ok(stored.ok_or(EnqueueRefusal::DuplicateId(job.id)))
}

async fn enqueue_unique<B: Backend>(
    backend: &mut B,
    job: &NewJob,
) -> Result<Result<Enqueued, EnqueueRefusal>, B::Error> {
    let plan = match plan(backend, job).await? {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // Before another job is cancelled for it.
    if plan.stores() && backend.is_stored(job.id)? {
        return Ok(Err(EnqueueRefusal::DuplicateId(job.id)));
    }
    unique::carry_out(backend, job, plan).await.map(Ok)
}

/// Stores all jobs, or none: then it returns the first refusal with its position.
pub(super) async fn enqueue_all<B: Backend>(
    backend: &mut B,
    jobs: &[NewJob],
) -> Result<Result<Vec<Enqueued>, (usize, EnqueueRefusal)>, B::Error> {
    let (repeated, repeated_key) = (repeated(jobs), repeated_key(jobs));
    let now = backend.context().now;
    let mut plans = Vec::new();
    for (position, job) in jobs.iter().enumerate() {
        let is_repeated = repeated == Some(position);
        let planned = match check(job, is_repeated, now) {
            Ok(()) if repeated_key == Some(position) => Err(EnqueueRefusal::RepeatedKey(job.id)),
            Ok(()) => plan(backend, job).await?,
            Err(refusal) => Err(refusal),
        };
        let planned = match planned {
            Ok(plan) if plan.stores() && backend.is_stored(job.id)? => {
                Err(EnqueueRefusal::DuplicateId(job.id))
            }
            other => other,
        };
        match planned {
            Ok(Plan::Store) => {}
            Ok(plan) => plans.push((position, plan)),
            Err(refusal) => {
                return Ok(Err((position, backend.confirm_enqueue_refusal(refusal)?)));
            }
        }
    }
    let mut plans = plans.into_iter().peekable();
    let mut stored = Vec::with_capacity(jobs.len());
    for (position, job) in jobs.iter().enumerate() {
        let plan = plans.next_if(|(at, _)| *at == position).map_or(Plan::Store, |(_, plan)| plan);
        stored.push(unique::carry_out(backend, job, plan).await?);
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
    // What found a job of another request may find it again.
    if !stored.iter().any(Enqueued::is_old) {
        backend.write_key(once, &stored, expired)?;
    }
    Ok(Ok(EnqueuedOnce::Stored(stored)))
}
