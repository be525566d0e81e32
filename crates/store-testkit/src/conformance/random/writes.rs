//! Commands that write a schedule, a workflow or an operation as it is, or as it was before.

use std::collections::BTreeMap;

use outlast_core::operation::{OperationStatus, Skip};
use outlast_store::Command;
use outlast_store::command::{NewJob, WriteOperation, WriteSchedule, WriteWorkflow};
use outlast_store::event::EventName;
use outlast_store::operation::{ExpectedOperation, OperationChange};
use outlast_store::schedule::{ScheduleEvent, ScheduleState};
use outlast_store::store::Store as _;
use outlast_store::workflow::{StepRecord, WorkflowState};

use super::new_job::new_job;
use super::resolve::View;
use super::script::Spec;
use crate::conformance::Harness;
use crate::conformance::operation;
use crate::conformance::schedule::schedule_name;
use crate::conformance::workflow;

impl<H: Harness> View<'_, H> {
    pub(super) fn write_schedule(
        &self,
        which: u8,
        stale: bool,
        to: Option<ScheduleState>,
        specs: &[Spec],
    ) -> Command {
        let name = schedule_name(which);
        let found = self.harness.block_on(self.model.schedule(name.clone()));
        let revision = found.expect("the model is open").map(|found| found.revision);
        let of = |spec: &Spec| NewJob { unique: None, ..new_job(spec, self.now()) };
        let jobs: Vec<NewJob> = specs.iter().map(of).collect();
        let events = jobs.iter().map(|job| ScheduleEvent {
            kind: EventName::CronTriggered,
            job: Some(job.id),
            words: "in time".into(),
        });
        Command::WriteSchedule(Box::new(WriteSchedule {
            name,
            expected: if stale { revision.map(|it| it - 1) } else { revision },
            to,
            events: events.collect(),
            jobs,
            workflows: Vec::new(),
            by: "scheduler".into(),
        }))
    }

    pub(super) fn write_workflow(
        &self,
        which: u8,
        stale: bool,
        to: WorkflowState,
        specs: &[Spec],
    ) -> Command {
        let id = workflow::workflow_id(which);
        let found = self.harness.block_on(self.model.look_at_workflow(id, false));
        let revision = found.expect("the model is open").record.map(|found| found.revision);
        let of = |(n, spec): (u32, &Spec)| {
            let mut job = new_job(spec, self.now());
            job.rules.workflow = Some(workflow::item(which, n));
            job
        };
        let jobs: Vec<NewJob> = (0..).zip(specs).map(of).collect();
        let expected = if stale { revision.map(|it| it - 1) } else { revision };
        Command::WriteWorkflow(Box::new(WriteWorkflow {
            steps: vec![StepRecord { step: u32::from(stale), state: to.progress.clone() }],
            items: vec![workflow::waiting_item(9, "[9]")],
            to: Some(to),
            jobs,
            ..workflow::write(which, expected)
        }))
    }

    pub(super) fn write_operation(
        &self,
        which: u8,
        how: u8,
        stale: bool,
        given: impl Iterator<Item = Command>,
    ) -> Command {
        let id = operation::operation_id(which);
        let found = self.harness.block_on(self.model.operation(id));
        let found = found.expect("the model is open");
        let mut orders = BTreeMap::new();
        for command in given {
            if let Command::Order(order) = command {
                orders.insert(order.job, order);
            }
        }
        let matched = u64::try_from(orders.len()).unwrap_or(u64::MAX);
        let status = match how {
            0..20 => OperationStatus::Done,
            20..40 => OperationStatus::Stopped,
            _ => OperationStatus::Running,
        };
        let expected = match &found {
            None => ExpectedOperation::Absent,
            Some(_) if status == OperationStatus::Stopped => ExpectedOperation::Running,
            Some(found) => ExpectedOperation::Revision(found.revision - u64::from(stale)),
        };
        let to = OperationChange {
            reached: (how > 100).then(|| how.to_string()),
            note: (status != OperationStatus::Running).then(|| "as it was to be".to_owned()),
            matched: matched + 1,
            skipped: [(Skip::Changed, 1)].into(),
            ..OperationChange::to(status)
        };
        Command::WriteOperation(Box::new(WriteOperation {
            expected,
            to,
            orders: orders.into_values().collect(),
            ..operation::begin(which)
        }))
    }
}
