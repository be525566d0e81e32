//! Workflows: which are found, logged, kept and forgotten.

use outlast_core::id::JobId;
use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::WorkflowId;
use outlast_store::command::{Command, WriteWorkflow};
use outlast_store::event::{EventName, EventQuery};
use outlast_store::query::{JobQuery, Page};
use outlast_store::reply::Reply;
use outlast_store::store::Store as _;
use outlast_store::workflow::{
    DueWorkflows, ItemRecord, ItemState, NewWorkflow, Runs, StepRecord, WhichItems, WorkflowCounts,
    WorkflowEvent, WorkflowLook, WorkflowQuery, WorkflowState,
};

use crate::conformance::Harness;
use crate::conformance::workflow::{item, new, state, waiting_item, workflow_id, write};
use crate::conformance::world::{START, World};

cases![
    workflows_to_look_at_are_due_or_have_ends,
    workflows_are_listed_latest_first,
    items_whose_end_was_never_noted_are_found,
    jobs_are_found_by_their_workflow,
    workflows_are_logged,
    workflows_that_ended_long_ago_are_forgotten,
    workflows_survive_a_crash_and_not_a_reset,
];

fn workflows_to_look_at_are_due_or_have_ends<H: Harness>(world: &mut World<'_, H>) {
    for (n, due) in [(1, Some(30)), (2, Some(10)), (3, None)] {
        let to = WorkflowState { due: due.map(|ms| START.after(Span(ms))), ..state(0) };
        assert!(world.write_workflow(WriteWorkflow { to: Some(to), ..write(n, None) }).is_ok());
    }
    world.wait(Span(20));
    let job = world.add_of(item(3, 0), |_| ());
    world.cancel(job).expect("it waits");
    let noted = world.now();
    let asked = |world: &World<'_, H>, from: Timestamp, ms: u64, max: u32| {
        let until = START.after(Span(ms));
        world.ask(world.store().due_workflows(DueWorkflows { until, ends_from: from, max }))
    };
    let of =
        |numbers: &[u8]| -> Vec<WorkflowId> { numbers.iter().map(|n| workflow_id(*n)).collect() };
    assert_eq!(asked(world, START, 9, 10), of(&[]));
    assert_eq!(asked(world, START, 19, 10), of(&[2]));
    assert_eq!(asked(world, START, 20, 10), of(&[2, 3]));
    assert_eq!(asked(world, noted.after(Span(1)), 25, 10), of(&[2]));
    assert_eq!(asked(world, START, 30, 10), of(&[1, 2, 3]));
    assert_eq!(asked(world, START, 30, 1).len(), 1);
    let counts = world.ask(world.store().workflow_counts());
    assert_eq!(counts, WorkflowCounts { running: 3, oldest_end: Some(noted) });
}

fn items_whose_end_was_never_noted_are_found<H: Harness>(world: &mut World<'_, H>) {
    let found = |world: &World<'_, H>| -> Vec<u32> {
        let mut found = world.ask(world.store().unnoted_ends(10));
        found.sort_by_key(|it| it.item);
        assert!(found.iter().all(|it| (it.workflow, it.step) == (workflow_id(1), 1)));
        found.into_iter().map(|it| it.item).collect()
    };
    let (lives, ends) = (world.job_of(item(1, 0)), world.job_of(item(1, 1)));
    let gone =
        |n, runs| ItemRecord { state: ItemState::Running, runs: Some(runs), ..waiting_item(n, "") };
    let made = WriteWorkflow {
        jobs: vec![lives, ends.clone()],
        items: vec![
            gone(2, Runs::Job(JobId(workflow_id(99).0))),
            gone(3, Runs::Workflow(workflow_id(98))),
            gone(4, Runs::Workflow(workflow_id(1))),
            waiting_item(5, "[]"),
        ],
        ..write(1, None)
    };
    let revision = world.write_workflow(made).expect("there was none").revision;
    assert_eq!(found(world), [2, 3]);
    world.cancel(ends.id).expect("it waits");
    assert_eq!(found(world), [2, 3]);
    // Its end is taken, and nothing follows from it.
    let taken = world.look(1).ends.iter().map(|end| end.number).collect();
    assert!(world.write_workflow(WriteWorkflow { taken, ..write(1, Some(revision)) }).is_ok());
    assert_eq!(found(world), [1, 2, 3]);
    assert_eq!(world.ask(world.store().unnoted_ends(2)).len(), 2);
    assert_eq!(
        world.ask(world.store().workflow(workflow_id(1))).map(|it| it.revision),
        Some(revision + 1)
    );
    assert_eq!(world.ask(world.store().workflow(workflow_id(2))), None);
}

fn workflows_are_listed_latest_first<H: Harness>(world: &mut World<'_, H>) {
    for n in 1..=4 {
        let name = if n == 3 { "other" } else { "nightly" };
        let tenant = if n == 4 { "acme".to_owned() } else { String::new() };
        let status = if n == 1 { "failed" } else { "running" };
        let to = WorkflowState { status: status.into(), ..state(0) };
        let made = NewWorkflow { tenant, ..new(name) };
        let write = WriteWorkflow { to: Some(to), new: Some(made), ..write(n, None) };
        assert!(world.write_workflow(write).is_ok());
        // Two in the same millisecond.
        world.wait(Span(u64::from(n % 2)));
    }
    let list = |world: &World<'_, H>, query: WorkflowQuery| -> Vec<WorkflowId> {
        let found = world.ask(world.store().workflows(query));
        assert!(found.iter().all(|it| it.new.definition.is_empty()));
        found.into_iter().map(|it| it.id).collect()
    };
    let of =
        |numbers: &[u8]| -> Vec<WorkflowId> { numbers.iter().map(|n| workflow_id(*n)).collect() };
    let all = WorkflowQuery { limit: 10, ..WorkflowQuery::default() };
    assert_eq!(list(world, all.clone()), of(&[4, 3, 2, 1]));
    assert_eq!(list(world, WorkflowQuery { limit: 2, ..all.clone() }), of(&[4, 3]));
    let third = world.record(3).expect("it is there");
    let after = Some((third.created, third.id));
    assert_eq!(list(world, WorkflowQuery { after, ..all.clone() }), of(&[2, 1]));
    let named = WorkflowQuery { name: Some("nightly".into()), ..all.clone() };
    assert_eq!(list(world, named), of(&[4, 2, 1]));
    let failed = WorkflowQuery { status: Some("failed".into()), ..all.clone() };
    assert_eq!(list(world, failed), of(&[1]));
    assert_eq!(list(world, WorkflowQuery { tenant: Some("acme".into()), ..all }), of(&[4]));
}

fn jobs_are_found_by_their_workflow<H: Harness>(world: &mut World<'_, H>) {
    let mut add = |extra: String| {
        let mut job = world.job();
        job.payload.extra = extra;
        world.add(job)
    };
    let marked =
        |n: u8| format!("{{{},\"step\":\"a\"}}}}", outlast_store::workflow::mark(workflow_id(n)));
    let mine = [add(marked(1)), add(marked(1))];
    add(marked(2));
    add(String::new());
    let page = Page { limit: 10, cursor: None };
    let query = JobQuery { workflow: Some(workflow_id(1)), ..JobQuery::all(page) };
    let found = world.ask(world.store().jobs(query)).jobs;
    let found: Vec<JobId> = found.into_iter().map(|job| job.job.id).collect();
    assert_eq!(found, [mine[1], mine[0]]);
}

fn workflows_are_logged<H: Harness>(world: &mut World<'_, H>) {
    let event = |kind, words: &str| WorkflowEvent { kind, words: words.into() };
    let write = WriteWorkflow {
        events: vec![
            event(EventName::WorkflowStarted, ""),
            event(EventName::WorkflowStepEnded, "load: completed"),
        ],
        ..write(1, None)
    };
    assert!(world.write_workflow(write).is_ok());
    let of = EventQuery { names: vec!["workflow.*".into()], ..EventQuery::all(10) };
    let events = world.ask(world.store().events(of)).events;
    let seen: Vec<_> =
        events.iter().map(|(_, it)| (it.kind, it.by.clone(), it.evidence.text.clone())).collect();
    let id = workflow_id(1);
    assert_eq!(
        seen,
        [
            (EventName::WorkflowStarted, "operator".into(), id.to_string()),
            (EventName::WorkflowStepEnded, "operator".into(), format!("{id}: load: completed")),
        ]
    );
}

fn workflows_that_ended_long_ago_are_forgotten<H: Harness>(world: &mut World<'_, H>) {
    let old = world.now();
    let to = WorkflowState { finished: Some(old), status: "completed".into(), ..state(0) };
    let step = StepRecord { step: 1, state: "{}".into() };
    let job = world.job_of(item(1, 0));
    let done = WriteWorkflow {
        to: Some(to),
        steps: vec![step.clone()],
        jobs: vec![job.clone()],
        ..write(1, None)
    };
    assert!(world.write_workflow(done).is_ok());
    let live = WriteWorkflow { steps: vec![step.clone()], ..write(2, None) };
    assert!(world.write_workflow(live).is_ok());
    world.cancel(job.id).expect("it waits");
    world.wait(Span::from_secs(10));
    world.prune(old);
    assert!(world.record(1).is_some());
    world.prune(old.after(Span(1)));
    let gone = WorkflowLook { record: None, steps: vec![], ends: vec![], more: false };
    assert_eq!((world.look(1), world.items(1, WhichItems::All)), (gone, vec![]));
    assert!(world.record(2).is_some() && world.look(2).steps == [step]);
}

fn workflows_survive_a_crash_and_not_a_reset<H: Harness>(world: &mut World<'_, H>) {
    let job = world.job_of(item(1, 0));
    let made = WriteWorkflow { jobs: vec![job.clone()], ..write(1, None) };
    assert!(world.write_workflow(made).is_ok());
    world.cancel(job.id).expect("it waits");
    let before = (world.look(1), world.items(1, WhichItems::All));
    assert_eq!(before.0.ends.len(), 1);
    world.crash();
    assert_eq!((world.look(1), world.items(1, WhichItems::All)), before);
    assert_eq!(world.one(Command::Reset), Reply::Done);
    let gone = WorkflowLook { record: None, steps: vec![], ends: vec![], more: false };
    assert_eq!((world.look(1), world.items(1, WhichItems::All)), (gone, vec![]));
}
