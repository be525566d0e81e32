use std::time::Duration;

use tokio::time::Instant;

use super::attempt_task::judge;
use super::end::EndKind;
use super::stop::{Cause, KillSequence, Step};
use crate::process::protocol::{MainExit, Oom, StartFailure, Used};

const CAUSES: [Cause; 4] =
    [Cause::TimedOut, Cause::Cancelled, Cause::Interrupted, Cause::DeadlinePassed];

/// Goes through every step that is due from `now` on and returns them with their times.
fn run_out(kill_sequence: &mut KillSequence, now: Instant) -> Vec<(u128, Step)> {
    let mut steps = Vec::new();
    while let Some(due) = kill_sequence.due() {
        let step = kill_sequence.advance(due).unwrap();
        steps.push(((due - now).as_millis(), step));
    }
    steps
}

#[tokio::test]
async fn polite_end_goes_up_step_by_step_and_gives_up_five_seconds_after_the_kill() {
    let now = Instant::now();
    let mut kill_sequence = KillSequence::new(Duration::from_secs(3));
    assert_eq!(kill_sequence.stop(Cause::TimedOut, now), Some(Step::Terminate));
    let expected = [(3000, Step::Kill), (4000, Step::Force), (8000, Step::GiveUp)];
    assert_eq!(run_out(&mut kill_sequence, now), expected);
    assert_eq!(kill_sequence.advance(now + Duration::from_secs(60)), None);
}

#[tokio::test]
async fn step_is_not_taken_before_it_is_due() {
    let now = Instant::now();
    let mut kill_sequence = KillSequence::new(Duration::from_secs(3));
    kill_sequence.stop(Cause::Cancelled, now);
    assert_eq!(kill_sequence.advance(now + Duration::from_millis(2999)), None);
    assert_eq!(kill_sequence.advance(now + Duration::from_millis(3000)), Some(Step::Kill));
}

#[tokio::test]
async fn first_cause_counts_in_every_ordered_pair() {
    let now = Instant::now();
    for first in CAUSES {
        for second in CAUSES {
            let mut kill_sequence = KillSequence::new(Duration::from_secs(3));
            assert_eq!(kill_sequence.stop(first, now), Some(Step::Terminate));
            assert_eq!(kill_sequence.stop(second, now), None);
            assert_eq!(kill_sequence.kill(second, now), Some(Step::Kill));
            assert_eq!(kill_sequence.kill(second, now), None);
            assert_eq!(kill_sequence.cause(), Some(first));
        }
    }
}

#[tokio::test]
async fn end_of_the_main_process_bounds_the_rest_without_a_cause() {
    let now = Instant::now();
    let mut kill_sequence = KillSequence::new(Duration::from_secs(60));
    kill_sequence.main_ended(now);
    assert_eq!(kill_sequence.stop(Cause::Cancelled, now), None, "too late to cancel");
    assert_eq!(kill_sequence.cause(), None);
    assert_eq!(run_out(&mut kill_sequence, now), [(1000, Step::Force), (5000, Step::GiveUp)]);
}

fn exit(code: Option<i32>, signal: Option<i32>, signalled_by_us: bool, oom: Oom) -> MainExit {
    MainExit { code, signal, signalled_by_us, oom, exceeded: None, used: Used::default() }
}

#[test]
fn end_that_no_signal_of_ours_preceded_is_the_jobs_own_whatever_was_asked() {
    for cause in CAUSES.map(Some).into_iter().chain([None]) {
        let own = exit(Some(0), None, false, Oom::No);
        assert_eq!(judge(None, Some(&own), cause), EndKind::Exited { code: 0 });
        let killed = exit(None, Some(9), false, Oom::Unknown);
        let expected = EndKind::Signalled { signal: 9, oom: Oom::Unknown };
        assert_eq!(judge(None, Some(&killed), cause), expected);
        let outgrown = exit(Some(137), None, false, Oom::Yes);
        assert_eq!(judge(None, Some(&outgrown), cause), EndKind::OomKilled);
    }
}

#[test]
fn end_after_a_signal_of_ours_is_told_by_its_cause() {
    for cause in CAUSES {
        for exit in [
            exit(Some(75), None, true, Oom::No),
            exit(None, Some(9), true, Oom::No),
            exit(None, Some(15), true, Oom::No),
        ] {
            assert_eq!(judge(None, Some(&exit), Some(cause)), cause.into_kind());
        }
        assert_eq!(judge(None, None, Some(cause)), cause.into_kind(), "it would not end");
    }
}

// A job that had finished after SIGTERM ran again.
#[test]
fn exit_code_zero_is_an_interruption_of_nothing_and_undoes_no_other_reason() {
    let finished = exit(Some(0), None, true, Oom::No);
    for cause in [Cause::TimedOut, Cause::Cancelled, Cause::DeadlinePassed] {
        assert_eq!(judge(None, Some(&finished), Some(cause)), cause.into_kind());
    }
    let ended = judge(None, Some(&finished), Some(Cause::Interrupted));
    assert_eq!(ended, EndKind::Exited { code: 0 });
}

#[test]
fn nothing_known_and_nothing_asked_means_that_the_shim_was_lost() {
    assert!(matches!(judge(None, None, None), EndKind::ShimDied { .. }));
    let failure = StartFailure::of_host("program x not found");
    let expected = EndKind::SpawnFailed(failure.clone());
    assert_eq!(judge(Some(failure), None, Some(Cause::Cancelled)), expected);
}
