use super::*;

fn run(events: &[StageEvent]) -> (Stage, Vec<Act>) {
    let mut stage = Stage::Running;
    let acts = events
        .iter()
        .map(|event| {
            let (next, act) = decide(stage, *event);
            stage = next;
            act
        })
        .collect();
    (stage, acts)
}

#[test]
fn sigterm_drains_then_ends_trees_then_leaves() {
    let (stage, acts) =
        run(&[StageEvent::TerminateSignal, StageEvent::GraceOver, StageEvent::Empty]);
    assert_eq!(stage, Stage::Stopped);
    assert_eq!(acts, [Act::Drain, Act::EndTrees, Act::Leave]);
}

#[test]
fn second_sigterm_forces_and_third_exits_at_once() {
    let (stage, acts) = run(&[StageEvent::TerminateSignal; 3]);
    assert_eq!(stage, Stage::Forced);
    assert_eq!(acts, [Act::Drain, Act::KillTrees, Act::ExitNow]);
}

#[test]
fn sigcont_resumes_only_what_sigtstp_quieted() {
    let (stage, _) = run(&[StageEvent::QuietOrder, StageEvent::ContinueSignal]);
    assert_eq!(stage, Stage::Quiet(QuietBy::Order));
    let (stage, acts) = run(&[StageEvent::StopSignal, StageEvent::ContinueSignal]);
    assert_eq!(stage, Stage::Running);
    assert_eq!(acts, [Act::TakeNoWork, Act::TakeWork]);
}

#[test]
fn both_reasons_to_be_quiet_must_be_taken_back() {
    let (stage, _) =
        run(&[StageEvent::StopSignal, StageEvent::QuietOrder, StageEvent::ResumeOrder]);
    assert_eq!(stage, Stage::Quiet(QuietBy::Signal));
}

#[test]
fn no_event_leads_from_a_drain_back_to_work() {
    for stage in [Stage::Draining, Stage::Stopping, Stage::Forced, Stage::Stopped] {
        for event in StageEvent::ALL {
            let (next, act) = decide(stage, event);
            assert!(next >= stage, "{stage:?} {event:?} → {next:?}");
            assert!(!next.takes_work() && act != Act::TakeWork, "{stage:?} {event:?}");
        }
    }
}
