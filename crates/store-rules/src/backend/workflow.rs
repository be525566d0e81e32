//! Making and changing workflows.

use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_store::command::{NewJob, WriteWorkflow};
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::workflow::{
    ItemRecord, Runs, StepRecord, WorkflowRecord, WorkflowRefusal, WorkflowWritten,
};

use super::{Backend, Transaction, enqueue, unique};
use crate::apply::workflow::{Written, refused, running, started, write as decide};
use crate::rules::workflow_event;

/// Workflows.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait WorkflowTables: Transaction {
    /// Loads and locks a workflow, without its definition.
    async fn find_workflow(
        &mut self,
        id: WorkflowId,
    ) -> Result<Option<WorkflowRecord>, Self::Error>;

    /// Stores a workflow that was not found.
    fn make_workflow(&mut self, record: &WorkflowRecord) -> Result<(), Self::Error>;

    /// Stores a workflow, unless one of its id is there.
    fn start_workflow(&mut self, record: &WorkflowRecord) -> Result<(), Self::Error>;

    /// Stores what can change of a workflow that was found.
    fn change_workflow(&mut self, record: &WorkflowRecord) -> Result<(), Self::Error>;

    /// Stores how steps stand, in place of how they stood.
    fn write_steps(&mut self, id: WorkflowId, steps: &[StepRecord]) -> Result<(), Self::Error>;

    /// Stores how items stand, in place of how they stood.
    fn write_items(&mut self, id: WorkflowId, items: Vec<ItemRecord>) -> Result<(), Self::Error>;

    /// Deletes ends of items, by number.
    fn take_ends(&mut self, id: WorkflowId, numbers: &[i64]) -> Result<(), Self::Error>;
}

pub(super) async fn write<B: Backend>(
    b: &mut B,
    write: &WriteWorkflow,
) -> Result<Result<WorkflowWritten, WorkflowRefusal>, B::Error> {
    let found = b.find_workflow(write.id).await?;
    let Written { revision, record, is_new } = match decide(found.as_ref(), write, &b.context()) {
        Ok(written) => written,
        Err(refusal) => return Ok(Err(refusal)),
    };
    // Before anything is written: a job whose unique key is being moved is tried again.
    for job in &write.jobs {
        if let Err(EnqueueRefusal::Busy(_)) = unique::plan(b, job).await? {
            return Ok(Err(WorkflowRefusal::Changed));
        }
    }
    if let Some(record) = &record {
        if is_new {
            b.make_workflow(record)?;
        } else {
            b.change_workflow(record)?;
        }
        b.write_steps(write.id, &write.steps)?;
        let running = write
            .jobs
            .iter()
            .filter_map(|job| Some(running(job.rules.workflow?, Runs::Job(job.id))));
        let items = write.items.iter().cloned().chain(running).collect();
        b.write_items(write.id, items)?;
    }
    let mut jobs = Vec::with_capacity(write.jobs.len());
    for job in &write.jobs {
        jobs.extend(store(b, job).await?);
    }
    for child in &write.started {
        let record = started(child, &b.context());
        b.start_workflow(&record)?;
    }
    b.take_ends(write.id, &write.taken)?;
    b.outbox().item_ends.extend(write.ends.iter().cloned());
    let now = b.context().now;
    for happened in &write.events {
        let event = workflow_event(write.id, happened, now, &write.by);
        b.outbox().events.push(event);
    }
    Ok(Ok(WorkflowWritten { revision, jobs }))
}

/// Stores the job of an item. If it cannot be, that is the item's end: a workflow must not wait for it.
async fn store<B: Backend>(b: &mut B, job: &NewJob) -> Result<Option<Enqueued>, B::Error> {
    let end = |of: Option<WorkflowItem>, refusal| Some(refused(of?, job.id, refusal));
    let of = job.rules.workflow;
    match enqueue::enqueue(b, job).await? {
        Ok(stored) if stored.is_old() => {
            b.outbox().item_ends.extend(end(of, None));
            Ok(None)
        }
        Ok(stored) => Ok(Some(stored)),
        Err(refusal) => {
            let refusal = b.confirm_enqueue_refusal(refusal)?;
            b.outbox().item_ends.extend(end(of, Some(&refusal)));
            Ok(None)
        }
    }
}
