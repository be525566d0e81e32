//! Commands that write a schedule, a workflow or an operation as it is, or as it was before, and those
//! about sessions.

use std::collections::BTreeMap;

use outlast_core::operation::{OperationStatus, Skip};
use outlast_store::Command;
use outlast_store::command::{
    EndSessions, NewJob, RenewSession, WhichSessions, WriteOperation, WriteSchedule, WriteWorkflow,
};
use outlast_store::event::EventName;
use outlast_store::operation::{ExpectedOperation, OperationChange};
use outlast_store::schedule::{ScheduleEvent, ScheduleState};
use outlast_store::store::Store as _;
use outlast_store::workflow::{StepRecord, WorkflowState};

use super::new_job::new_job;
use super::resolve::View;
use super::script::Spec;
use crate::conformance::Harness;
use crate::conformance::browser_session::{begin, hash, session_id};
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

/// Begins, renews or ends a session.
pub(super) fn session(n: u8, token: u8, what: u8) -> Command {
    let (n, of, by) = (u16::from(n), hash(token, 0), "operator".to_owned());
    let which = match what {
        0..=2 => return Command::BeginSession(Box::new(begin(n, token))),
        3 => return Command::RenewSession(RenewSession { id: session_id(n) }),
        4 => WhichSessions::One(session_id(n), (n % 2 == 0).then_some(of)),
        _ => WhichSessions::OfTokens(vec![of, hash(9, 0)]),
    };
    Command::EndSessions(EndSessions { which, by })
}
