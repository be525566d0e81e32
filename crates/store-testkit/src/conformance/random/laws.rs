//! What holds in every reachable state, whatever the model and the store agree on.

use std::collections::BTreeMap;

use outlast_core::id::JobId;
use outlast_core::job::{Outcome, State};
use outlast_store::record::{AttemptRecord, JobRecord};
use outlast_store::store::Store as _;

use super::resolve::job_id;
use super::script::JOBS;
use crate::conformance::Harness;
use crate::model::ModelStore;

/// What was seen of every job so far.
#[derive(Debug, Default)]
pub(super) struct Laws {
    seen: BTreeMap<JobId, JobRecord>,
}

impl Laws {
    /// Looks at everything the model holds; `Err` says which law is broken.
    pub(super) fn hold<H: Harness>(
        &mut self,
        harness: &H,
        model: &ModelStore,
    ) -> Result<(), String> {
        let mut active_by_worker = 0;
        for id in JOBS.map(job_id) {
            let Some(job) = harness.block_on(model.job(id)).map_err(|e| e.to_string())? else {
                // Pruned; its id may come again as another job.
                self.seen.remove(&id);
                continue;
            };
            let attempts = harness.block_on(model.attempts(id)).map_err(|e| e.to_string())?;
            let known = self.seen.get(&id).filter(|known| known.job.created == job.job.created);
            let broken = known
                .and_then(|known| law_of_change(known, &job))
                .or_else(|| law_of_state(&job))
                .or_else(|| law_of_attempts(&job, &attempts));
            if let Some(law) = broken {
                return Err(format!("law broken: {law}\n{job:#?}\n{attempts:#?}"));
            }
            let native = job.holder.as_ref().is_some_and(|holder| holder.worker.is_some());
            active_by_worker += usize::from(native);
            self.seen.insert(id, job);
        }
        let mut in_flight = 0;
        let workers = harness.block_on(model.workers()).map_err(|e| e.to_string())?;
        for worker in workers {
            let of = harness.block_on(model.in_flight_of(worker.id)).map_err(|e| e.to_string())?;
            in_flight += of.len();
        }
        if in_flight == active_by_worker {
            Ok(())
        } else {
            Err(format!(
                "law broken: {in_flight} attempts are held, {active_by_worker} jobs say so"
            ))
        }
    }
}

fn law_of_change(before: &JobRecord, now: &JobRecord) -> Option<&'static str> {
    let same_life = before.life == now.life;
    let laws = [
        (now.epoch >= before.epoch, "epochs never fall"),
        (now.life >= before.life, "lives never fall"),
        (now.life.get() <= before.life.get() + 1, "a batch replays a job once"),
        (
            same_life || !matches!(before.state, State::Completed | State::Cancelled),
            "completed and cancelled jobs are never replayed",
        ),
        (
            !same_life || !before.state.is_terminal() || before.state == now.state,
            "a terminal state never changes within a life",
        ),
        (
            !same_life || !before.state.is_terminal() || before.epoch == now.epoch,
            "an ended job is never claimed",
        ),
        (!same_life || now.spent.failures >= before.spent.failures, "failures never fall"),
        (!same_life || now.spent.losses >= before.spent.losses, "losses never fall"),
        (before.job == now.job, "what was enqueued never changes"),
    ];
    laws.iter().find(|(holds, _)| !holds).map(|(_, law)| *law)
}

fn law_of_state(job: &JobRecord) -> Option<&'static str> {
    let in_flight = job.holder.is_some();
    let due = matches!(job.state, State::Scheduled | State::Retryable);
    let laws = [
        (job.state != State::Active || in_flight, "an active job is held"),
        (
            !in_flight || matches!(job.state, State::Active | State::Cancelled),
            "only active and cancelled jobs are held",
        ),
        (due == job.due.is_some(), "exactly the jobs that wait for a time are due"),
        (
            job.spent.failures <= job.job.rules.retry.max_attempts,
            "failures stay within max_attempts",
        ),
        (job.state.is_terminal() || job.finished.is_none(), "only an ended job has finished"),
        (job.result.is_none() || job.state == State::Completed, "only success has a result"),
        (
            job.dead_letter.is_none() || job.state == State::Discarded,
            "only discarded jobs are dead letters",
        ),
    ];
    laws.iter().find(|(holds, _)| !holds).map(|(_, law)| *law)
}

fn law_of_attempts(job: &JobRecord, attempts: &[AttemptRecord]) -> Option<&'static str> {
    let epochs = attempts.iter().map(|attempt| attempt.epoch.0);
    let running = attempts.iter().filter(|attempt| attempt.outcome.is_none()).count();
    let completed =
        attempts.iter().filter(|attempt| attempt.outcome == Some(Outcome::Completed)).count();
    // An attempt that may have run counts as a start, unless its holder gave it back.
    let starts = attempts.iter().filter(|attempt| attempt.life == job.life).filter(|attempt| {
        !matches!(attempt.outcome, Some(Outcome::Undelivered | Outcome::Requeued))
    });
    let once = job.job.rules.retry.max_attempts == 1;
    let laws = [
        (epochs.eq(1..=job.epoch.0), "every claim is one attempt"),
        (running == usize::from(job.holder.is_some()), "exactly the held attempt runs"),
        (completed <= 1, "a job completes once"),
        (
            (completed == 1) == (job.state == State::Completed),
            "the completed job has a completed attempt",
        ),
        (!once || starts.count() <= 1, "a job that may start once starts once in a life"),
    ];
    laws.iter().find(|(holds, _)| !holds).map(|(_, law)| *law)
}
