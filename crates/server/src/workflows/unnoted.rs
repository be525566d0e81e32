//! Ends that were never noted: a server of a build before workflows ended the job, or someone changed the
//! store by hand. A workflow must not wait for them forever.

use outlast_core::job::{DeadLetterReason, Outcome, State};
use outlast_core::workflow::{ItemOutcome, WorkflowItem};
use outlast_store::command::WriteWorkflow;
use outlast_store::record::JobRecord;
use outlast_store::workflow::{ItemEnd, ItemHappened, Runs, WorkflowItemRun};
use outlast_store_rules::apply::workflow::message;
use outlast_workflow::WorkflowStatus;

use super::look::{self, BY};
use super::service::WorkflowError;
use crate::engine::Engine;

/// Notes the end of an item, unless its workflow has changed meanwhile.
pub(crate) async fn note(engine: &Engine, run: WorkflowItemRun) -> Result<(), WorkflowError> {
    let Some(record) = engine.store().workflow(run.workflow).await? else { return Ok(()) };
    let of =
        WorkflowItem { workflow: run.workflow, step: run.step, item: run.item, keeps_result: true };
    let Some(end) = end(engine, of, run.runs).await? else { return Ok(()) };
    tracing::info!(
        workflow = %run.workflow,
        step = run.step,
        item = run.item,
        "the end of an item was not noted; it is noted now"
    );
    let write = WriteWorkflow {
        to: Some(record.state.clone()),
        ends: vec![end],
        ..look::nothing(run.workflow, Some(record.revision), BY)
    };
    // The server that changed the workflow may have taken the end.
    let _ = engine.submit(write).await?;
    Ok(())
}

async fn end(
    engine: &Engine,
    of: WorkflowItem,
    runs: Runs,
) -> Result<Option<ItemEnd>, WorkflowError> {
    let purged = ItemEnd {
        of,
        runs,
        what: ItemHappened::Ended(ItemOutcome::Purged),
        error: None,
        result: None,
    };
    match runs {
        Runs::Job(id) => {
            let Some(job) = engine.store().job(id).await? else { return Ok(Some(purged)) };
            if !job.state.is_terminal() {
                return Ok(None);
            }
            let last = engine.store().attempts(id).await?;
            let last = last.last().and_then(|attempt| attempt.outcome);
            let what = ItemHappened::Ended(outcome(&job, last));
            let error = job.error.as_deref().and_then(message);
            Ok(Some(ItemEnd { what, error, result: job.result, ..purged }))
        }
        Runs::Workflow(id) => {
            let Some(child) = engine.store().workflow(id).await? else { return Ok(Some(purged)) };
            let (status, progress) =
                look::parse(&child).map_err(|what| WorkflowError::Damaged(id, what))?;
            let result = progress.result.map(|result| result.get().to_owned());
            let outcome = WorkflowStatus::as_outcome(status);
            let end = |outcome| ItemEnd {
                what: ItemHappened::Ended(outcome),
                error: progress.error.clone(),
                result,
                ..purged
            };
            Ok(outcome.map(end))
        }
    }
}

fn outcome(job: &JobRecord, last: Option<Outcome>) -> ItemOutcome {
    let is_lost = matches!(
        job.dead_letter,
        Some(DeadLetterReason::PoisonSuspect | DeadLetterReason::AtMostOnce)
    );
    match job.state {
        State::Completed => ItemOutcome::Completed,
        State::Cancelled => ItemOutcome::Cancelled,
        _ if is_lost || last == Some(Outcome::Lost) => ItemOutcome::Abandoned,
        _ if job.ended_by == "expired" => ItemOutcome::Expired,
        _ if last == Some(Outcome::Timeout) => ItemOutcome::TimedOut,
        _ => ItemOutcome::Failed,
    }
}
