use std::time::Duration;

use outlast_core::limits::RESULT_BYTES_MAX;
use outlast_core::resources::{Resources, Usage};
use outlast_core::time::BootTime;
use outlast_packs::PackSet;
use outlast_sdk::{EvidenceCode, Outcome, OutcomeKind as Kind, StopReason};

use super::{Bounds, drop_cut_values, hide, outcome_of};
use crate::attempt::{AttemptEnd, Captured, EndKind, Oom, OutputSummary, StartFailure, StartFault};
use crate::mask::Mask;

const BOUNDS: Bounds = Bounds { time: Duration::from_secs(7), resources: Resources::NONE };

fn captured(text: &str) -> Captured {
    let total = u64::try_from(text.len()).unwrap();
    Captured { bytes: text.as_bytes().to_vec(), total, cut: false }
}

fn ending(kind: EndKind, stdout: &str, stderr: &str) -> AttemptEnd {
    AttemptEnd {
        code: if let EndKind::Exited { code } = kind { Some(code) } else { None },
        kind,
        signal: None,
        tree_empty: true,
        executed: true,
        started: BootTime(1),
        duration: Duration::from_secs(1),
        output: OutputSummary {
            stdout: captured(stdout),
            stderr: captured(stderr),
            ..OutputSummary::default()
        },
        usage: Usage::default(),
    }
}

fn judged(ending: &AttemptEnd, stop: Option<StopReason>) -> Outcome {
    let packs = PackSet::embedded_core().unwrap();
    let action = packs.get("core.echo").unwrap();
    outcome_of(action, ending, &BOUNDS, stop, &Mask::default())
}

fn check(kind: EndKind, expected: Kind, error_type: Option<&str>) {
    let outcome = judged(&ending(kind.clone(), "", ""), None);
    assert_eq!(outcome.kind, expected, "{kind:?}");
    let failure = outcome.failure.as_ref().map(|failure| failure.error_type.as_str());
    assert_eq!(failure, error_type, "{kind:?}");
    assert_eq!(outcome.evidence, kind.to_string());
}

#[test]
fn every_ending_is_reported_as_what_it_was() {
    let reason = "why".to_owned();
    check(EndKind::Exited { code: 0 }, Kind::Completed, None);
    check(EndKind::Exited { code: 3 }, Kind::Failed, Some("exit_code"));
    check(EndKind::Signalled { signal: 9, oom: Oom::Unknown }, Kind::Failed, Some("signal"));
    check(EndKind::OomKilled, Kind::Failed, Some("oom_killed"));
    check(EndKind::TooManyProcesses, Kind::Failed, Some("too_many_processes"));
    check(EndKind::TimedOut, Kind::TimedOut, Some("timeout"));
    check(EndKind::Cancelled, Kind::Cancelled, None);
    check(EndKind::Interrupted, Kind::Interrupted, Some("shutdown"));
    check(EndKind::DeadlinePassed, Kind::Interrupted, Some("lease_not_renewed"));
    let not_started = |fault| {
        // A name of the job's own in the words decides nothing.
        let reason = "program too long for the system (os error 11) not found".to_owned();
        EndKind::SpawnFailed(StartFailure { reason, fault })
    };
    check(not_started(StartFault::Job), Kind::Failed, Some("spawn_failed"));
    for fault in [StartFault::Scarcity, StartFault::Host] {
        let faulty = judged(&ending(not_started(fault), "", ""), None);
        assert_eq!((faulty.kind, faulty.executed), (Kind::NotStarted, false));
        assert_eq!(faulty.evidence_code, Some(EvidenceCode::Host));
    }
    let lost = EndKind::ShimDied { reason };
    check(lost.clone(), Kind::Interrupted, Some("shim_died"));
    let code = judged(&ending(lost, "", ""), None).evidence_code;
    assert_eq!(code, Some(EvidenceCode::ShimLost));
}

#[test]
fn a_failure_is_told_with_the_last_line_of_standard_error() {
    let outcome = judged(&ending(EndKind::Exited { code: 3 }, "", "first\nno such file\n\n"), None);
    assert_eq!(outcome.failure.unwrap().message, "exit code 3: no such file");
    assert_eq!(outcome.exit_code, Some(3));
}

#[test]
fn an_end_without_proof_is_told_as_such() {
    let mut unproved = ending(EndKind::Interrupted, "", "");
    unproved.tree_empty = false;
    assert!(!judged(&unproved, Some(StopReason::Forced)).tree_empty);
}

#[test]
fn a_result_too_large_to_keep_leaves_the_job_completed_and_says_so() {
    // Each byte takes six in JSON.
    let outcome = judged(
        &ending(EndKind::Exited { code: 0 }, &"\u{1}".repeat(RESULT_BYTES_MAX / 2), ""),
        None,
    );
    assert_eq!(outcome.kind, Kind::Completed);
    assert!(outcome.result_json.len() <= RESULT_BYTES_MAX);
    let result: serde_json::Value = serde_json::from_slice(&outcome.result_json).unwrap();
    assert!(result["output_error"].as_str().unwrap().contains("larger"));
}

#[test]
fn output_of_which_only_the_end_was_kept_says_how_much_is_missing() {
    let mut cut = ending(EndKind::Exited { code: 0 }, "tail", "");
    cut.output.stdout.total = 1004;
    let outcome = judged(&cut, None);
    let result: serde_json::Value = serde_json::from_slice(&outcome.result_json).unwrap();
    assert_eq!(result["output_missing_bytes"], 1000);
}

const SECRET: &str = "sesame-opens-the-door";

fn masked(ending: &mut AttemptEnd) -> String {
    let packs = PackSet::embedded_core().unwrap();
    let mask = Mask::of([SECRET.as_bytes()].into_iter()).unwrap();
    drop_cut_values(ending, &mask);
    let action = packs.get("core.echo").unwrap();
    let mut outcome = outcome_of(action, ending, &BOUNDS, None, &mask);
    hide(&mut outcome, &mask);
    let message = outcome.failure.map(|failure| failure.message).unwrap_or_default();
    format!("{message}{}", String::from_utf8_lossy(&outcome.result_json))
}

/// No part of a secret is shown either, wherever what is reported was cut.
#[test]
fn a_secret_across_a_cut_shows_no_part() {
    for place in 0..=SECRET.len() {
        let line = format!("{}{SECRET}", "x".repeat(super::MESSAGE_CHARS_MAX - place));
        let said = masked(&mut ending(EndKind::Exited { code: 3 }, "", &line));
        let huge = format!("{}{SECRET}", "y".repeat(RESULT_BYTES_MAX - place));
        let head = masked(&mut ending(EndKind::Exited { code: 0 }, &huge, ""));
        let head_cut =
            format!("{}{SECRET}{}", "z".repeat(4000 + place * 5), "z".repeat(RESULT_BYTES_MAX));
        let head_cut = masked(&mut ending(EndKind::Exited { code: 0 }, &head_cut, ""));
        let mut tail = ending(EndKind::Exited { code: 3 }, &SECRET[place..], &SECRET[place..]);
        for captured in [&mut tail.output.stdout, &mut tail.output.stderr] {
            captured.total = 1_000_000;
        }
        let tail_failed = masked(&mut tail);
        tail.kind = EndKind::Exited { code: 0 };
        let tail_result = masked(&mut tail);
        let mut given_up = ending(EndKind::Exited { code: 0 }, &SECRET[..place], "");
        given_up.output.stdout.cut = true;
        for shown in [said, head, head_cut, tail_failed, tail_result, masked(&mut given_up)] {
            let parts = (0..SECRET.len() - 5).map(|at| &SECRET[at..at + 5]);
            let part = parts.clone().find(|part| shown.contains(part));
            assert_eq!(part, None, "cut at {place}: {}", &shown[shown.len().saturating_sub(200)..]);
        }
    }
}
