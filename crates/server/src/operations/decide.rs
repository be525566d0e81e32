//! What becomes of a job that was found: it is changed if it certainly matched when the operation began.
//!
//! What a job was at a time is not stored, but mostly follows from what it is: since when it has been in
//! its state, whether a worker ever had it, and whether it was ever retried.

use outlast_core::id::Epoch;
use outlast_core::job::State;
use outlast_core::operation::{OperationKind, Skip};
use outlast_core::time::Timestamp;
use outlast_store::command::{JobAction, Seen};
use outlast_store::record::JobRecord;

/// What decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) kind: OperationKind,
    /// When the jobs have to have matched.
    pub(crate) as_of: Timestamp,
    /// Whether the filter asks for nothing that can change before a job ends.
    pub(crate) is_lasting: bool,
}

/// What becomes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is changed, if it is still what was seen.
    Change(Option<Seen>),
    /// It stays as it is, and is counted with the reason.
    Skip(Skip),
    /// It did not match when the operation began.
    Leave,
}

impl Rule {
    /// Returns what is ordered.
    pub(crate) const fn action(self) -> JobAction {
        match self.kind {
            OperationKind::Cancel => JobAction::Cancel,
            OperationKind::Retry => JobAction::Replay,
        }
    }

    /// Decides about a job that matches now.
    pub(crate) fn of(self, job: &JobRecord) -> Verdict {
        if job.job.created > self.as_of {
            return Verdict::Leave;
        }
        match self.kind {
            OperationKind::Cancel => self.cancel(job),
            OperationKind::Retry => self.retry(job),
        }
    }

    fn cancel(self, job: &JobRecord) -> Verdict {
        match job.state {
            State::Completed => return Verdict::Skip(Skip::Completed),
            State::Cancelled => return Verdict::Skip(Skip::Cancelled),
            State::Discarded => return Verdict::Skip(Skip::Failed),
            State::Scheduled
            | State::Available
            | State::Pending
            | State::Active
            | State::Retryable => {}
        }
        let was_never_retried = job.life.get() == 1;
        let was_live = was_never_retried || job.since <= self.as_of;
        if self.is_lasting {
            // Whatever it does meanwhile, it matches until it ends.
            return if was_live { Verdict::Change(None) } else { Verdict::Skip(Skip::Changed) };
        }
        let was_never_claimed = was_never_retried && job.epoch == Epoch::ZERO;
        if was_never_claimed || changed_at(job) <= self.as_of {
            Verdict::Change(Some(seen(job)))
        } else {
            Verdict::Skip(Skip::Changed)
        }
    }

    fn retry(self, job: &JobRecord) -> Verdict {
        match job.state {
            State::Scheduled | State::Available | State::Pending | State::Retryable => {
                Verdict::Skip(Skip::Waiting)
            }
            State::Active => Verdict::Skip(Skip::Running),
            State::Completed => Verdict::Skip(Skip::Completed),
            State::Cancelled => Verdict::Skip(Skip::Cancelled),
            State::Discarded if job.since <= self.as_of => Verdict::Change(Some(seen(job))),
            // It had not ended then.
            State::Discarded if job.life.get() == 1 => Verdict::Leave,
            // It may have been retried meanwhile, and have failed again.
            State::Discarded => Verdict::Skip(Skip::Changed),
        }
    }
}

/// When the job became what it is.
fn changed_at(job: &JobRecord) -> Timestamp {
    let started = job.started.filter(|_| job.state == State::Active);
    started.map_or(job.since, |started| started.max(job.since))
}

fn seen(job: &JobRecord) -> Seen {
    let started = job.state == State::Active && job.started.is_some();
    Seen { state: job.state, epoch: job.epoch, started }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use outlast_core::budget::{ScheduledTimeout, Spent};
    use outlast_core::id::JobId;
    use outlast_core::job::Rules;
    use outlast_store::command::{ClassId, ClassKey, Origin, Payload, Route};
    use outlast_store::record::StoredJob;
    use uuid::Uuid;

    use super::*;

    const BEGUN: Timestamp = Timestamp(1_000);

    /// A job that was made at 100, in this state since a time, claimed so often, in this life.
    fn job(state: State, since: i64, epoch: u64, life: u32) -> JobRecord {
        let key = ClassKey {
            queue: "q".into(),
            job_type: "t".into(),
            route: Route::Plain,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Default::default(),
        };
        let stored = StoredJob {
            id: JobId(Uuid::nil()),
            class: ClassId(1),
            key: Arc::new(key),
            keys: Default::default(),
            priority: 0,
            payload: Payload::default(),
            rules: Rules::standard(),
            timeout: None,
            visibility: None,
            scheduled_timeout: ScheduledTimeout::Never,
            origin: Origin::Ojs,
            created: Timestamp(100),
            scheduled_for: None,
        };
        JobRecord {
            since: Timestamp(since),
            epoch: Epoch(epoch),
            life: NonZeroU32::new(life).unwrap(),
            ..JobRecord::new(Arc::new(stored), state, Spent::default())
        }
    }

    fn rule(kind: OperationKind, is_lasting: bool) -> Rule {
        Rule { kind, as_of: BEGUN, is_lasting }
    }

    fn change(job: &JobRecord, started: bool) -> Verdict {
        Verdict::Change(Some(Seen { state: job.state, epoch: job.epoch, started }))
    }

    #[test]
    fn job_that_was_made_after_the_begin_is_left_alone() {
        for kind in OperationKind::ALL {
            let mut late = job(State::Available, 1_001, 0, 1);
            Arc::make_mut(&mut late.job).created = Timestamp(1_001);
            assert_eq!(rule(kind, true).of(&late), Verdict::Leave);
            assert_eq!(rule(kind, false).of(&late), Verdict::Leave);
        }
    }

    #[test]
    fn whatever_a_live_job_does_meanwhile_it_is_cancelled_if_only_its_end_could_matter() {
        let rule = rule(OperationKind::Cancel, true);
        for (state, since) in [
            (State::Available, 900),
            (State::Available, 1_500),
            (State::Active, 1_500),
            (State::Retryable, 1_500),
            (State::Pending, 1_000),
        ] {
            let verdict = rule.of(&job(state, since, 3, 1));
            assert_eq!(verdict, Verdict::Change(None), "{state} {since}");
        }
        // One that may have lived again only after the begin.
        assert_eq!(rule.of(&job(State::Active, 1_000, 3, 2)), Verdict::Change(None));
        assert_eq!(rule.of(&job(State::Active, 1_001, 3, 2)), Verdict::Skip(Skip::Changed));
    }

    #[test]
    fn cancel_by_what_can_change_is_for_jobs_that_were_so_at_the_begin() {
        let rule = rule(OperationKind::Cancel, false);
        let old = job(State::Available, 1_000, 2, 1);
        assert_eq!(rule.of(&old), change(&old, false));
        let again = job(State::Available, 1_001, 2, 1);
        assert_eq!(rule.of(&again), Verdict::Skip(Skip::Changed));
        // It came due meanwhile, and no worker has ever had it.
        let due = job(State::Available, 1_001, 0, 1);
        assert_eq!(rule.of(&due), change(&due, false));
        let replayed = job(State::Available, 1_001, 0, 2);
        assert_eq!(rule.of(&replayed), Verdict::Skip(Skip::Changed));
        let mut running = job(State::Active, 900, 1, 1);
        assert_eq!(rule.of(&running), change(&running, false));
        running.started = Some(Timestamp(950));
        assert_eq!(rule.of(&running), change(&running, true));
        running.started = Some(Timestamp(1_001));
        assert_eq!(rule.of(&running), Verdict::Skip(Skip::Changed));
    }

    #[test]
    fn job_that_fails_after_the_begin_is_not_retried() {
        for is_lasting in [true, false] {
            let rule = rule(OperationKind::Retry, is_lasting);
            let failed = job(State::Discarded, 1_000, 1, 1);
            assert_eq!(rule.of(&failed), change(&failed, false));
            let twice = job(State::Discarded, 900, 4, 3);
            assert_eq!(rule.of(&twice), change(&twice, false));
            // It was no failure at the begin.
            assert_eq!(rule.of(&job(State::Discarded, 1_001, 1, 1)), Verdict::Leave);
            // It may have been one, and was retried by someone.
            let again = rule.of(&job(State::Discarded, 1_001, 2, 2));
            assert_eq!(again, Verdict::Skip(Skip::Changed));
        }
    }

    #[test]
    fn job_that_ended_or_lives_again_when_it_is_read_is_named() {
        let (cancel, retry) = (rule(OperationKind::Cancel, true), rule(OperationKind::Retry, true));
        for (state, by_cancel, by_retry) in [
            (State::Completed, Some(Skip::Completed), Some(Skip::Completed)),
            (State::Cancelled, Some(Skip::Cancelled), Some(Skip::Cancelled)),
            (State::Discarded, Some(Skip::Failed), None),
            (State::Available, None, Some(Skip::Waiting)),
            (State::Active, None, Some(Skip::Running)),
        ] {
            let job = job(state, 900, 1, 1);
            for (rule, skip) in [(cancel, by_cancel), (retry, by_retry)] {
                if let Some(skip) = skip {
                    assert_eq!(rule.of(&job), Verdict::Skip(skip), "{state}");
                }
            }
        }
    }
}
