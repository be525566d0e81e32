//! What becomes of a new job when another one has its unique key.

use std::borrow::Cow;
use std::collections::HashSet;

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::command::{First, JobAction, JobOrder, NewJob};
use outlast_store::record::StoredJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::unique::{Fingerprint, KeyHolder, KeyOutcome, OnConflict, Unique};

/// What a new job does about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No job is in the way: it takes the key, from the job that had it before if there is one.
    Take(Option<JobId>),
    /// It is not stored, and this job is the answer.
    Ignore(KeyHolder),
    /// It takes the key from this job, which is cancelled.
    Replace(KeyHolder),
}

/// Decides what a job does about its key.
///
/// # Errors
/// Returns why it is not stored.
pub fn judge(
    unique: &Unique,
    holder: Option<KeyHolder>,
    now: Timestamp,
) -> Result<Verdict, EnqueueRefusal> {
    let Some(found) = holder else { return Ok(Verdict::Take(None)) };
    if !unique.conflicts_with(found.holder, now) {
        return Ok(Verdict::Take(Some(found.job)));
    }
    match unique.on_conflict {
        OnConflict::Reject => {
            Err(EnqueueRefusal::NotUnique { holder: found.job, state: found.holder.state })
        }
        OnConflict::Ignore => Ok(Verdict::Ignore(found)),
        OnConflict::Replace | OnConflict::ReplaceExceptSchedule => Ok(Verdict::Replace(found)),
    }
}

/// Returns the position of the first job that has the unique key of one before it.
#[must_use]
pub fn repeated_key(jobs: &[NewJob]) -> Option<usize> {
    let mut seen: HashSet<Fingerprint> = HashSet::new();
    let of = |job: &NewJob| job.unique.map(|unique| unique.fingerprint);
    jobs.iter().position(|job| of(job).is_some_and(|key| !seen.insert(key)))
}

/// Returns the order that cancels the job which `new` replaces.
#[must_use]
pub fn replacing(new: &NewJob, holder: JobId) -> JobOrder {
    JobOrder {
        job: holder,
        action: JobAction::Cancel,
        tenant: None,
        by: new.by.clone(),
        expected: None,
    }
}

/// Returns the job that takes the place of `old`: with its time, if the policy keeps that.
#[must_use]
pub fn in_place_of<'a>(new: &'a NewJob, old: &StoredJob, state: State) -> Cow<'a, NewJob> {
    let keeps = new.unique.is_some_and(|it| it.on_conflict == OnConflict::ReplaceExceptSchedule);
    match old.scheduled_for {
        // One that waits for activation has no time.
        Some(at) if keeps && state == State::Scheduled && new.first != First::OnActivation => {
            Cow::Owned(NewJob { first: First::At(at), ..new.clone() })
        }
        Some(_) | None => Cow::Borrowed(new),
    }
}

/// Returns the reply to the producer of a job that was not stored.
#[must_use]
pub const fn ignored(found: &KeyHolder) -> Enqueued {
    Enqueued {
        id: found.job,
        class: found.class,
        state: found.holder.state,
        at: found.holder.created,
        by_key: Some(KeyOutcome::Ignored),
    }
}
