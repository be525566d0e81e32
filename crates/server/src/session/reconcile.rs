//! Compares what the worker says it holds with what the store says.
//!
//! The worker must stop an attempt that only it holds. An attempt that only the store has never
//! reached the worker, or the worker dropped it: it goes back unstarted, or counts as lost if it
//! had started.

use std::collections::HashSet;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_proto::v1::AttemptKey;
use outlast_store::Command;
use outlast_store::command::{EndDetail, Ending, Finish};
use outlast_store::record::HeldJob;

use crate::engine::{Engine, Unavailable};
use crate::session::convert::{self, native_fence};

/// Hands back what only the store has; returns what the worker must stop.
pub(super) async fn reconcile(
    engine: &Engine,
    worker: WorkerId,
    stored: &[HeldJob],
    claimed_by_worker: &[AttemptKey],
) -> Result<Vec<AttemptKey>, Unavailable> {
    let says: HashSet<(JobId, Epoch)> =
        claimed_by_worker.iter().filter_map(convert::attempt).collect();
    for held in stored.iter().filter(|held| !says.contains(&(held.job, held.epoch))) {
        tracing::info!(job = %held.job, epoch = %held.epoch, %worker, started = held.started,
            "worker does not hold an attempt that was claimed for it");
        engine.submit(hand_back(worker, held)).await?;
    }
    Ok(to_stop(stored, claimed_by_worker))
}

/// Returns what the worker holds and the store has not, or has cancelled.
pub(super) fn to_stop(stored: &[HeldJob], claimed_by_worker: &[AttemptKey]) -> Vec<AttemptKey> {
    let has: HashSet<(JobId, Epoch)> =
        stored.iter().filter(|held| !held.cancelled).map(|held| (held.job, held.epoch)).collect();
    let says = claimed_by_worker.iter().filter_map(convert::attempt);
    says.filter(|own| !has.contains(own)).map(|(job, epoch)| convert::key(job, epoch)).collect()
}

fn hand_back(worker: WorkerId, held: &HeldJob) -> Command {
    let (ending, evidence) = if held.started {
        (Ending::Lost, "worker attached without it although it had started")
    } else {
        (Ending::NotStarted, "worker attached without it: the claim never reached it")
    };
    Command::Finish(Box::new(Finish {
        job: held.job,
        fence: native_fence(worker, held.epoch),
        ending,
        detail: EndDetail { evidence: evidence.into(), ..EndDetail::default() },
        by: "server".into(),
    }))
}
