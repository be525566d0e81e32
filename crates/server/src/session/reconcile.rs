//! Compares what the worker says it holds with what the store says.
//!
//! The worker must stop an attempt that only it holds. An attempt that only the store has never
//! reached the worker, or the worker dropped it: it goes back unstarted, or counts as lost if it
//! had started.

use std::collections::HashSet;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_proto::v1::AttemptKey;
use outlast_store::command::{EndDetail, Finish, ReportedOutcome};
use outlast_store::record::InFlightJob;

use crate::engine::{Engine, Unavailable};
use crate::session::convert::{self, native_fence};

/// Hands back what only the store has; returns what the worker must stop.
pub(super) async fn reconcile(
    engine: &Engine,
    worker: WorkerId,
    stored: &[InFlightJob],
    claimed_by_worker: &[AttemptKey],
) -> Result<Vec<AttemptKey>, Unavailable> {
    let says: HashSet<(JobId, Epoch)> =
        claimed_by_worker.iter().filter_map(convert::attempt).collect();
    for attempt in stored.iter().filter(|attempt| !says.contains(&(attempt.job, attempt.epoch))) {
        tracing::info!(job = %attempt.job, epoch = %attempt.epoch, %worker, started = attempt.started,
            "worker does not hold an attempt that was claimed for it");
        if let Err(refusal) = engine.submit(hand_back(worker, attempt)).await? {
            tracing::debug!(job = %attempt.job, %refusal, "attempt ended in the meantime");
        }
    }
    Ok(to_stop(stored, claimed_by_worker))
}

/// Returns what the worker holds and the store has not, or has cancelled.
pub(super) fn to_stop(stored: &[InFlightJob], claimed_by_worker: &[AttemptKey]) -> Vec<AttemptKey> {
    let has: HashSet<(JobId, Epoch)> = stored
        .iter()
        .filter(|attempt| !attempt.cancelled)
        .map(|attempt| (attempt.job, attempt.epoch))
        .collect();
    let says = claimed_by_worker.iter().filter_map(convert::attempt);
    says.filter(|own| !has.contains(own)).map(|(job, epoch)| convert::key(job, epoch)).collect()
}

fn hand_back(worker: WorkerId, attempt: &InFlightJob) -> Finish {
    let (reported, text) = if attempt.started {
        (ReportedOutcome::Lost, "worker attached without it although it had started")
    } else {
        (ReportedOutcome::NotStarted, "worker attached without it: the claim never reached it")
    };
    let evidence = Evidence::of(EvidenceCode::NotHeld, text);
    Finish {
        job: attempt.job,
        fence: native_fence(worker, attempt.epoch),
        reported,
        detail: EndDetail { evidence, ..EndDetail::default() },
        by: "server".into(),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_a_worker_attaches_without_has_a_code_however_far_it_was() {
        for (started, reported) in
            [(true, ReportedOutcome::Lost), (false, ReportedOutcome::NotStarted)]
        {
            let attempt = InFlightJob {
                job: JobId(Uuid::from_u128(1)),
                epoch: Epoch(1),
                started,
                cancelled: false,
                isolated: false,
                claimed: outlast_core::time::Timestamp(0),
            };
            let finish = hand_back(WorkerId(Uuid::nil()), &attempt);
            assert_eq!(finish.reported, reported);
            assert_eq!(finish.detail.evidence.code, Some(EvidenceCode::NotHeld));
        }
    }
}
