//! From an attempt's end to the outcome that is reported.

use std::time::Duration;

use outlast_core::limits::RESULT_BYTES_MAX;
use outlast_core::resources::Resources;
use outlast_packs::Action;
use outlast_sdk::{EvidenceCode, Outcome, StopReason};
use serde_json::{Value, json};

use super::checks::space::in_words;
use crate::attempt::{AttemptEnd, EndKind, Oom, StartFailure, StartFault};
use crate::mask::Mask;

/// Longest message made of what a program said.
const MESSAGE_CHARS_MAX: usize = 1000;

/// What is kept of a result that is too large.
const RESULT_HEAD_CHARS: usize = 4096;

/// Drops what is left of a secret value where output was cut: no part of one is shown.
pub(super) fn drop_cut_values(ending: &mut AttemptEnd, mask: &Mask) {
    for captured in [&mut ending.output.stdout, &mut ending.output.stderr] {
        let kept = u64::try_from(captured.bytes.len()).unwrap_or(u64::MAX);
        if kept < captured.total {
            mask.drop_cut_beginning(&mut captured.bytes);
        }
        if captured.cut {
            mask.drop_cut_end(&mut captured.bytes);
        }
    }
}

/// What an attempt was bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long it might run.
    pub(super) time: Duration,
    /// What it might use.
    pub(super) resources: Resources,
}

/// Returns the outcome of an attempt. What is shortened is masked first: a cut must not show part
/// of a secret.
pub(super) fn outcome_of(
    action: &Action,
    ending: &AttemptEnd,
    bounds: &Bounds,
    stop: Option<StopReason>,
    mask: &Mask,
) -> Outcome {
    let evidence = ending.kind.to_string();
    let mut outcome = match &ending.kind {
        EndKind::Exited { code: 0 } => Outcome::completed(result(action, ending, mask)),
        EndKind::Exited { code } => {
            Outcome::failed("exit_code", said(ending, mask, &format!("exit code {code}")))
        }
        EndKind::Signalled { signal, oom } => {
            let by = match oom {
                Oom::Unknown => " (perhaps for want of memory)",
                Oom::Yes | Oom::No => "",
            };
            Outcome::failed("signal", said(ending, mask, &format!("killed by signal {signal}{by}")))
        }
        EndKind::TimedOut => Outcome::timed_out(bounds.time),
        EndKind::Cancelled => Outcome::cancelled(""),
        EndKind::Interrupted => Outcome::interrupted(match stop {
            Some(StopReason::DeadlineNear) => return lease_over(ending),
            Some(StopReason::Forced) => "killed by a forced shutdown",
            Some(StopReason::Cancelled | StopReason::Stale | StopReason::Interrupted) | None => {
                "ended by the worker's shutdown"
            }
        }),
        EndKind::DeadlinePassed => return lease_over(ending),
        EndKind::OomKilled => {
            // A host that is short of memory kills as well.
            let is_near =
                |most: &u64| ending.usage.peak_memory.is_some_and(|peak| peak >= most / 10 * 9);
            let message = match bounds.resources.memory().filter(is_near) {
                Some(most) => {
                    format!("needed more than its limit of {} of memory", in_words(most))
                }
                None => "killed for want of memory".to_owned(),
            };
            Outcome::failed("oom_killed", message).known_by(EvidenceCode::Oom)
        }
        EndKind::TooManyProcesses => {
            let most = bounds.resources.processes().unwrap_or_default();
            Outcome::failed("too_many_processes", format!("had more than {most} processes"))
        }
        EndKind::SpawnFailed(StartFailure { reason, fault: StartFault::Job }) => {
            Outcome::failed("spawn_failed", reason.clone()).permanently()
        }
        // Nothing was executed, and the job is not to blame.
        EndKind::SpawnFailed(StartFailure {
            reason,
            fault: StartFault::Scarcity | StartFault::Host,
        }) => {
            return Outcome::not_started(reason.clone()).known_by(EvidenceCode::Host);
        }
        // Nothing else runs as the job's user and has reason to. If it were not charged, a job
        // that does it would run until the interruption budget is spent.
        EndKind::ShimKilled => Outcome::failed(
            "shim_killed",
            "the process that holds the job was killed, most likely by the job itself",
        ),
        // The job is not known to be the cause, so it is not charged.
        EndKind::ShimDied { reason } => {
            let message = format!("lost its shim: {reason}");
            let outcome = Outcome::interrupted(message.clone()).because("shim_died", message);
            outcome.known_by(EvidenceCode::ShimLost)
        }
    };
    outcome.evidence = evidence;
    outcome.exit_code = ending.code;
    outcome.tree_empty = ending.tree_empty;
    outcome.executed = ending.executed;
    outcome.usage = ending.usage;
    outcome
}

/// Hides secret values in everything that is reported about an attempt.
pub(super) fn hide(outcome: &mut Outcome, mask: &Mask) {
    if mask.is_empty() {
        return;
    }
    outcome.result_json = mask.json(std::mem::take(&mut outcome.result_json).into()).into();
    if let Some(failure) = &mut outcome.failure {
        failure.message = mask.text(&failure.message);
    }
}

/// The shim or the engine ended it because the lease was not renewed: neither a shutdown nor the
/// job's doing.
fn lease_over(ending: &AttemptEnd) -> Outcome {
    let message = EndKind::DeadlinePassed.to_string();
    let outcome = Outcome::interrupted(message.clone()).because("lease_not_renewed", message);
    Outcome {
        exit_code: ending.code,
        tree_empty: ending.tree_empty,
        executed: ending.executed,
        usage: ending.usage,
        ..outcome.known_by(EvidenceCode::Lease)
    }
}

fn result(action: &Action, ending: &AttemptEnd, mask: &Mask) -> Vec<u8> {
    let stdout = &ending.output.stdout;
    let mut result = action.result(&stdout.bytes);
    if !stdout.is_whole()
        && let Some(fields) = result.strip_suffix('}')
    {
        let missing = stdout.total.saturating_sub(u64::try_from(stdout.bytes.len()).unwrap_or(0));
        let comma = if fields.trim_end().ends_with('{') { "" } else { "," };
        let cut = if stdout.cut { r#","output_cut":true"# } else { "" };
        result = format!(r#"{fields}{comma}"output_missing_bytes":{missing}{cut}}}"#);
    }
    let bytes = result.into_bytes();
    if bytes.len() <= RESULT_BYTES_MAX { bytes } else { head_only(&mask.json(bytes)) }
}

/// The work was done; only its result is too long to keep.
fn head_only(bytes: &[u8]) -> Vec<u8> {
    let head: String = String::from_utf8_lossy(bytes).chars().take(RESULT_HEAD_CHARS).collect();
    let value: Value = json!({
        "output_error": format!("result is larger than {RESULT_BYTES_MAX} bytes"),
        "output_head": head,
    });
    value.to_string().into_bytes()
}

/// What happened, with the last line of the program's standard error.
fn said(ending: &AttemptEnd, mask: &Mask, what: &str) -> String {
    let stderr = mask.text(&String::from_utf8_lossy(&ending.output.stderr.bytes));
    match stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => {
            let line: String = line.chars().take(MESSAGE_CHARS_MAX).collect();
            format!("{what}: {line}")
        }
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests;
