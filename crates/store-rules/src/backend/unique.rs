//! Storing a job of which there is one at a time.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::command::{Command, NewJob};
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::unique::{Fingerprint, KeyHolder, KeyOutcome};

use super::Backend;
use crate::apply::loaded::Loaded;
use crate::apply::order;
use crate::apply::unique::{Verdict, ignored, in_place_of, judge, replacing};

/// What is done to store a job. Everything that could refuse it was looked at.
pub(super) enum Plan {
    /// It has no unique key.
    Store,
    /// It takes its key, from the job that had it before if there is one.
    Take(Option<JobId>),
    /// It is not stored: this job has its key.
    Ignore(KeyHolder),
    /// This job, which is locked, is cancelled for it.
    Replace(Box<Loaded>),
}

impl Plan {
    /// Whether a job is stored.
    pub(super) const fn stores(&self) -> bool {
        !matches!(self, Self::Ignore(_))
    }
}

/// A job that is loaded without waiting for its lock.
#[derive(Debug)]
pub enum Free {
    /// It is locked now.
    Loaded(Box<Loaded>),
    /// Another transaction has locked it.
    Busy,
    /// It is not stored.
    Gone,
}

/// Returns the unique keys that the enqueues at the start of `commands` are about, and how many
/// commands those are.
pub(super) fn keys_of(commands: &[Command]) -> (Vec<Fingerprint>, usize) {
    let run = commands.iter().map(Command::new_jobs).take_while(|jobs| !jobs.is_empty());
    let mut keys = Vec::new();
    let mut count = 0;
    for jobs in run {
        keys.extend(jobs.iter().filter_map(|job| Some(job.unique?.fingerprint)));
        count += 1;
    }
    (keys, count)
}

/// Finds out what storing a job does about its key. Nothing changes.
pub(super) async fn plan<B: Backend>(
    backend: &mut B,
    job: &NewJob,
) -> Result<Result<Plan, EnqueueRefusal>, B::Error> {
    let Some(unique) = &job.unique else { return Ok(Ok(Plan::Store)) };
    let holder = backend.key_holder(&unique.fingerprint).await?;
    let found = match judge(unique, holder, backend.context().now) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(Verdict::Take(before)) => return Ok(Ok(Plan::Take(before))),
        Ok(Verdict::Ignore(found)) => return Ok(Ok(Plan::Ignore(found))),
        Ok(Verdict::Replace(found)) if found.job == job.id => {
            return Ok(Err(EnqueueRefusal::DuplicateId(job.id)));
        }
        Ok(Verdict::Replace(found)) => found,
    };
    Ok(match backend.find_free(found.job).await? {
        Free::Loaded(loaded) => Ok(Plan::Replace(loaded)),
        Free::Busy => Err(EnqueueRefusal::Busy(found.job)),
        Free::Gone => Ok(Plan::Take(Some(found.job))),
    })
}

/// Stores a job as it was planned.
pub(super) async fn carry_out<B: Backend>(
    backend: &mut B,
    job: &NewJob,
    plan: Plan,
) -> Result<Enqueued, B::Error> {
    match plan {
        Plan::Store => insert(backend, job).await,
        Plan::Ignore(found) => Ok(ignored(&found)),
        Plan::Take(before) => {
            let stored = insert(backend, job).await?;
            take(backend, job, &stored, before)?;
            Ok(stored)
        }
        Plan::Replace(old) => replace(backend, job, &old).await,
    }
}

async fn replace<B: Backend>(
    backend: &mut B,
    job: &NewJob,
    old: &Loaded,
) -> Result<Enqueued, B::Error> {
    let replaced = old.stored.id;
    let cancel = replacing(job, replaced);
    // One that has ended stays as it is.
    let moved = match order::order(old, &cancel, &backend.context()) {
        Ok(decided) => Some(Box::new(super::carry_out(backend, old, &decided).await?)),
        Err(_refusal) => None,
    };
    let new = in_place_of(job, &old.stored, old.job.state);
    let mut stored = insert(backend, &new).await?;
    take(backend, job, &stored, Some(replaced))?;
    stored.by_key = Some(KeyOutcome::Replaced { job: replaced, moved });
    Ok(stored)
}

/// Stores a job whose id is not known.
pub(super) async fn insert<B: Backend>(
    backend: &mut B,
    job: &NewJob,
) -> Result<Enqueued, B::Error> {
    let id = job.id;
    let appeared = || StoreError::Corrupt(format!("job {id} appeared while it was stored"));
    Ok(backend.insert(job).await?.ok_or_else(appeared)?)
}

fn take<B: Backend>(
    backend: &mut B,
    job: &NewJob,
    stored: &Enqueued,
    before: Option<JobId>,
) -> Result<(), B::Error> {
    match &job.unique {
        Some(unique) => backend.take_key(&unique.fingerprint, stored, before),
        None => Ok(()),
    }
}
