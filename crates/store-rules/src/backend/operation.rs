//! Beginning operations, their steps, and their ends.

use outlast_core::operation::{OperationId, OperationStatus};
use outlast_store::command::WriteOperation;
use outlast_store::event::EventName;
use outlast_store::operation::{
    ExpectedOperation, OperationRecord, OperationRefusal, OperationWritten,
};

use super::order::Refused;
use super::{Backend, Transaction, order};
use crate::apply::operation::{skip, write as decide};
use crate::rules::operation_event;

/// Operations.
#[expect(
    async_fn_in_trait,
    reason = "an embedded database has no futures that other threads could run"
)]
pub trait OperationTables: Transaction {
    /// Loads and locks an operation.
    async fn find_operation(
        &mut self,
        id: OperationId,
    ) -> Result<Option<OperationRecord>, Self::Error>;

    /// Counts the operations that run.
    async fn count_running_operations(&mut self) -> Result<usize, Self::Error>;

    /// Stores an operation that was not found.
    fn make_operation(&mut self, record: &OperationRecord) -> Result<(), Self::Error>;

    /// Stores what can change of an operation that was found.
    fn change_operation(&mut self, record: &OperationRecord) -> Result<(), Self::Error>;
}

pub(super) async fn write<B: Backend>(
    b: &mut B,
    write: &WriteOperation,
) -> Result<Result<OperationWritten, OperationRefusal>, B::Error> {
    let found = b.find_operation(write.id).await?;
    let running = match write.expected {
        ExpectedOperation::Absent if found.is_none() => b.count_running_operations().await?,
        _ => 0,
    };
    let mut record = match decide(found.as_ref(), running, write, &b.context()) {
        Ok(record) => record,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut moved = Vec::with_capacity(write.orders.len());
    for given in &write.orders {
        match order::order_seen(b, given).await? {
            Ok(done) => {
                record.changed = record.changed.saturating_add(1);
                moved.push(done);
            }
            Err(Refused { refusal, present }) => {
                let skip = skip(refusal, given.expected.map(|seen| seen.state), present);
                *record.skipped.entry(skip).or_default() += 1;
            }
        }
    }
    let now = b.context().now;
    if found.is_none() {
        b.make_operation(&record)?;
        let event = operation_event(&record, EventName::OperationStarted, now, &write.by);
        b.outbox().events.push(event);
    } else {
        b.change_operation(&record)?;
    }
    if record.status != OperationStatus::Running {
        let event = operation_event(&record, EventName::OperationEnded, now, &write.by);
        b.outbox().events.push(event);
    }
    Ok(Ok(OperationWritten { record, moved }))
}
