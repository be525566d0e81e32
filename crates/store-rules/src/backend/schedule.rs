//! Making, changing, firing and removing schedules.

use outlast_core::schedule::ScheduleName;
use outlast_store::command::WriteSchedule;
use outlast_store::schedule::{ScheduleRecord, ScheduleRefusal, ScheduleWritten};

use super::{Backend, Transaction, enqueue};
use crate::apply::schedule::{Written, write as decide};
use crate::apply::workflow::started;
use crate::rules::schedule_event;

/// Schedules.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait ScheduleTables: Transaction {
    /// Loads and locks a schedule.
    async fn find_schedule(
        &mut self,
        name: &ScheduleName,
    ) -> Result<Option<ScheduleRecord>, Self::Error>;

    /// Counts the schedules.
    async fn count_schedules(&mut self) -> Result<usize, Self::Error>;

    /// Stores a schedule, in place of the one that was `found` under its name.
    fn write_schedule(
        &mut self,
        record: &ScheduleRecord,
        found: Option<&ScheduleRecord>,
    ) -> Result<(), Self::Error>;

    /// Deletes a schedule.
    fn delete_schedule(&mut self, name: &ScheduleName) -> Result<(), Self::Error>;
}

pub(super) async fn write<B: Backend>(
    b: &mut B,
    write: &WriteSchedule,
) -> Result<Result<ScheduleWritten, ScheduleRefusal>, B::Error> {
    let found = b.find_schedule(&write.name).await?;
    let count = match (&found, &write.to) {
        (None, Some(_)) => b.count_schedules().await?,
        _ => 0,
    };
    let Written { revision, record } = match decide(found.as_ref(), count, write, &b.context()) {
        Ok(written) => written,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let jobs = match enqueue::enqueue_all(b, &write.jobs).await? {
        Ok(jobs) => jobs,
        Err((position, refusal)) => return Ok(Err(ScheduleRefusal::Job(position, refusal))),
    };
    for workflow in &write.workflows {
        let record = started(workflow, &b.context());
        b.start_workflow(&record)?;
    }
    match &record {
        Some(record) => b.write_schedule(record, found.as_ref())?,
        None => b.delete_schedule(&write.name)?,
    }
    let now = b.context().now;
    for happened in &write.events {
        let event = schedule_event(&write.name, happened, now, &write.by);
        b.outbox().events.push(event);
    }
    Ok(Ok(ScheduleWritten { revision, jobs }))
}
