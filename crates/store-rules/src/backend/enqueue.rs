//! Storing jobs.

use std::collections::BTreeSet;

use outlast_core::queue::waits;
use outlast_store::command::NewJob;
use outlast_store::idempotency::{EnqueueOnce, EnqueueOnceRefusal, EnqueuedOnce};
use outlast_store::reply::{EnqueueRefusal, Enqueued};

use super::unique::{Plan, plan};
use super::{Backend, Key, unique};
use crate::apply::depth::{Adds, Depths};
use crate::apply::enqueue::{check, repeated};
use crate::apply::unique::repeated_key;

pub(super) async fn enqueue<B: Backend>(
    backend: &mut B,
    job: &NewJob,
) -> Result<Result<Enqueued, EnqueueRefusal>, B::Error> {
    if let Err(refusal) = check(job, false, backend.context().now) {
        return Ok(Err(refusal));
    }
    let depths = depths_of(backend, std::slice::from_ref(job)).await?;
    if job.unique.is_some() {
        return enqueue_unique(backend, job, &depths).await;
    }
    if !depths.is_empty() {
        if backend.is_stored(job.id)? {
            return Ok(Err(EnqueueRefusal::DuplicateId(job.id)));
        }
        if let Err((_, refusal)) = adds_of(&[(job, &Plan::Store)]).fit(&depths) {
            return Ok(Err(refusal));
        }
    }
    let stored = backend.insert(job).await?;
    Ok(stored.ok_or(EnqueueRefusal::DuplicateId(job.id)))
}

async fn enqueue_unique<B: Backend>(
    backend: &mut B,
    job: &NewJob,
    depths: &Depths<'_>,
) -> Result<Result<Enqueued, EnqueueRefusal>, B::Error> {
    let plan = match plan(backend, job).await? {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // Before another job is cancelled for it.
    if plan.stores() && backend.is_stored(job.id)? {
        return Ok(Err(EnqueueRefusal::DuplicateId(job.id)));
    }
    if let Err((_, refusal)) = adds_of(&[(job, &plan)]).fit(depths) {
        return Ok(Err(refusal));
    }
    unique::carry_out(backend, job, plan).await.map(Ok)
}

/// Returns how full the bounded ones are of the queues of new jobs.
async fn depths_of<'a, B: Backend>(
    backend: &mut B,
    jobs: &'a [NewJob],
) -> Result<Depths<'a>, B::Error> {
    let mut depths = Depths::new();
    if !backend.has_bounds() {
        return Ok(depths);
    }
    let queues: BTreeSet<&str> = jobs.iter().map(|job| job.class.queue.as_str()).collect();
    for queue in queues {
        if let Some(depth) = backend.depth(queue).await? {
            depths.insert(queue, depth);
        }
    }
    Ok(depths)
}

/// Returns by how much planned jobs change how many wait in each queue.
fn adds_of<'a>(planned: &[(&'a NewJob, &'a Plan)]) -> Adds<'a> {
    let mut adds = Adds::default();
    for (job, plan) in planned {
        if plan.stores() {
            adds.stored(&job.class.queue);
        }
        if let Plan::Replace(old) = plan
            && waits(old.job.state)
        {
            adds.replaced(&old.stored.key.queue);
        }
    }
    adds
}

/// Stores all jobs, or none: then it returns the first refusal with its position.
pub(super) async fn enqueue_all<B: Backend>(
    backend: &mut B,
    jobs: &[NewJob],
) -> Result<Result<Vec<Enqueued>, (usize, EnqueueRefusal)>, B::Error> {
    let (repeated, repeated_key) = (repeated(jobs), repeated_key(jobs));
    let depths = depths_of(backend, jobs).await?;
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
    if let Err(refused) = fit(jobs, &plans, &depths) {
        return Ok(Err(refused));
    }
    let mut plans = plans.into_iter().peekable();
    let mut stored = Vec::with_capacity(jobs.len());
    for (position, job) in jobs.iter().enumerate() {
        stored.push(match plans.next_if(|(at, _)| *at == position) {
            Some((_, plan)) => unique::carry_out(backend, job, plan).await?,
            None => unique::insert(backend, job).await?,
        });
    }
    Ok(Ok(stored))
}

/// Checks that the queues have room for all jobs; else returns the first one of a queue that has not.
fn fit(
    jobs: &[NewJob],
    plans: &[(usize, Plan)],
    depths: &Depths<'_>,
) -> Result<(), (usize, EnqueueRefusal)> {
    if depths.is_empty() {
        return Ok(());
    }
    let mut planned: Vec<(&NewJob, &Plan)> = jobs.iter().map(|job| (job, &Plan::Store)).collect();
    for (position, plan) in plans {
        if let Some((_, planned)) = planned.get_mut(*position) {
            *planned = plan;
        }
    }
    adds_of(&planned).fit(depths).map_err(|(queue, refusal)| {
        let position = jobs.iter().position(|job| job.class.queue == queue);
        (position.unwrap_or(0), refusal)
    })
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
