//! Jobs that are slow to claim: something in the database, such as a trigger, holds up what is
//! written when they are taken. They are set aside, so that the rest of their queue goes on.
//!
//! ```text
//! claim took too long ─▶ all jobs that it had chosen are set aside ─▶ each is tried by itself
//!      ┌──────────────────────────────────────────────────────────────┘     │
//!      ▼                                                                    ▼
//! taken: set aside no more                       too slow alone: tried again later and later
//! ```
//!
//! Each server finds this out for itself, and forgets it when it stops.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outlast_core::id::JobId;
use outlast_core::time::{BootTime, Span};
use outlast_store::command::{Claim, ClaimFrom, ClassId};
use outlast_store::error::ChosenJob;

/// Pause before a job is tried again that was slow alone: at first, and at most.
const PAUSE_MIN: Span = Span::from_secs(5);
const PAUSE_MAX: Span = Span::from_secs(240);
/// Pause after a try that met another job.
const MISSED_PAUSE: Span = Span::from_secs(1);
/// After so many tries that met other jobs, a job is set aside no more: it may be gone.
const MISSED_MAX: u32 = 8;
/// How many jobs are set aside at most.
const JOBS_MAX: usize = 256;

/// The jobs that are set aside.
#[derive(Debug, Default)]
pub(crate) struct SlowClaims {
    jobs: Mutex<HashMap<JobId, SetAside>>,
}

#[derive(Debug)]
struct SetAside {
    class: ClassId,
    /// How often it was slow alone.
    slow: u32,
    /// When it is tried next, and how long it waits for that.
    next: BootTime,
    pause: Span,
    /// How many tries met other jobs.
    missed: u32,
}

impl SlowClaims {
    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, SetAside>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs().is_empty()
    }

    /// Whether jobs of a class are set aside.
    pub(crate) fn any_of(&self, class: ClassId) -> bool {
        self.jobs().values().any(|job| job.class == class)
    }

    /// Sets the jobs aside that a slow claim had chosen. Returns whether another claim is worth a
    /// try.
    pub(crate) fn set_aside(&self, chosen: &[ChosenJob], now: BootTime) -> bool {
        let mut jobs = self.jobs();
        let mut any = false;
        for &ChosenJob { job, class } in chosen {
            let room = jobs.len() < JOBS_MAX;
            let is_new = !jobs.contains_key(&job);
            if is_new && !room {
                continue;
            }
            // One that was to be left out, and was chosen all the same, would be chosen again.
            any |= jobs.get(&job).is_none_or(|aside| aside.next <= now);
            let fresh = SetAside { class, slow: 0, next: now, pause: Span::ZERO, missed: 0 };
            let aside = jobs.entry(job).or_insert(fresh);
            if chosen.len() == 1 {
                aside.slow += 1;
                aside.pause = Span(aside.pause.0.saturating_mul(2)).max(PAUSE_MIN).min(PAUSE_MAX);
                aside.next = now.after(aside.pause);
                aside.missed = 0;
                tracing::warn!(%job, times = aside.slow, pause_ms = aside.pause.0,
                    "claiming a job took too long; it is set aside");
            }
        }
        any
    }

    /// Has a claim leave out the jobs that are set aside, but for one.
    pub(crate) fn avoid(&self, claim: &mut Claim, but: Option<JobId>) {
        for (id, job) in &*self.jobs() {
            let may_take = match &claim.from {
                ClaimFrom::Classes(classes) => classes.contains(&job.class),
                ClaimFrom::Queues { .. } => true,
            };
            if may_take && Some(*id) != but && !claim.avoids(*id) {
                claim.avoids.push(*id);
            }
        }
    }

    /// Returns the job that is to be tried next, of those whose classes a claim takes from.
    pub(crate) fn due(
        &self,
        takes: impl Fn(ClassId) -> bool,
        now: BootTime,
    ) -> Option<(JobId, ClassId)> {
        let jobs = self.jobs();
        let due = jobs.iter().filter(|(_, job)| job.next <= now && takes(job.class));
        due.min_by_key(|(id, job)| (job.next, **id)).map(|(id, job)| (*id, job.class))
    }

    /// A claim for this job alone went through. If it met another one, the job is tried again soon.
    pub(crate) fn tried(&self, job: JobId, now: BootTime) {
        if let Entry::Occupied(mut aside) = self.jobs().entry(job) {
            aside.get_mut().missed += 1;
            aside.get_mut().next = now.after(MISSED_PAUSE);
            if aside.get().missed >= MISSED_MAX {
                aside.remove();
            }
        }
    }

    /// Jobs were taken, or need not be.
    pub(crate) fn gone(&self, gone: impl Iterator<Item = JobId>) {
        let mut jobs = self.jobs();
        if !jobs.is_empty() {
            for job in gone {
                jobs.remove(&job);
            }
        }
    }

    /// Returns why a claimable job waits, if that is because it is slow to claim.
    pub(crate) fn reason(&self, job: JobId, now: BootTime) -> Option<String> {
        let jobs = self.jobs();
        let aside = jobs.get(&job).filter(|aside| aside.slow > 0)?;
        let times = match aside.slow {
            1 => "once".to_owned(),
            slow => format!("{slow} times"),
        };
        let wait = aside.next.since(now).as_secs();
        Some(format!(
            "set aside for now: claiming it took too long, {times}, as when a trigger in the database \
             hangs; tried again in {wait} s"
        ))
    }
}

#[cfg(test)]
mod tests;
