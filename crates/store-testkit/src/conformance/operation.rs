//! Operations: each step is stored with the jobs that it changes, or neither is.

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::State;
use outlast_core::limits::OPERATIONS_RUNNING_MAX;
use outlast_core::operation::{OperationId, OperationKind, OperationStatus, Skip};
use outlast_core::time::Span;
use outlast_store::command::{Command, JobAction, JobOrder, ReportedOutcome, Seen, WriteOperation};
use outlast_store::event::{EventName, EventQuery};
use outlast_store::operation::{
    ExpectedOperation, NewOperation, OperationChange, OperationQuery, OperationRecord,
    OperationRefusal, OperationWritten,
};
use outlast_store::query::{JobQuery, Page};
use outlast_store::reply::Reply;
use outlast_store::store::Store as _;
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::{World, failed, order};

cases![
    operation_is_kept_as_it_was_begun,
    step_changes_its_jobs_and_counts_them_together,
    step_of_another_revision_changes_no_job,
    two_steps_of_one_batch_see_each_other,
    jobs_that_moved_on_are_counted_by_what_they_are_now,
    job_of_another_tenant_is_not_there,
    retried_job_lives_again,
    stop_needs_no_revision_and_nothing_goes_on_after_it,
    operation_that_is_there_is_not_begun_again,
    only_so_many_run_at_a_time,
    operations_are_listed_latest_first_page_by_page,
    begin_and_end_are_in_the_event_log_once_each,
    events_of_jobs_name_the_operation,
    operations_that_ended_long_ago_are_pruned,
    operations_survive_a_crash_and_not_a_reset,
    every_job_of_a_page_says_where_the_next_page_begins,
];

pub(crate) fn operation_id(n: u8) -> OperationId {
    OperationId(Uuid::from_u128(0x5000 + u128::from(n)))
}

pub(crate) fn new() -> NewOperation {
    NewOperation {
        kind: OperationKind::Cancel,
        about: "jobs of queue mail".into(),
        definition: r#"{"filter":{"queue":"mail"}}"#.into(),
        by: "api: ops (test)".into(),
    }
}

pub(crate) fn begin(n: u8) -> WriteOperation {
    WriteOperation {
        id: operation_id(n),
        expected: ExpectedOperation::Absent,
        new: Some(new()),
        to: OperationChange::to(OperationStatus::Running),
        orders: vec![],
        by: "api: ops (test)".into(),
    }
}

fn step(n: u8, revision: u64, orders: Vec<JobOrder>) -> WriteOperation {
    let matched = u64::try_from(orders.len()).expect("a step is small");
    let to = OperationChange { matched, ..OperationChange::to(OperationStatus::Running) };
    let expected = ExpectedOperation::Revision(revision);
    WriteOperation { expected, new: None, to, orders, ..begin(n) }
}

fn ending(n: u8, expected: ExpectedOperation, status: OperationStatus) -> WriteOperation {
    let to = OperationChange::to(status);
    WriteOperation { expected, new: None, to, by: "api: other (test)".into(), ..begin(n) }
}

impl<H: Harness> World<'_, H> {
    fn write_operation(
        &mut self,
        write: WriteOperation,
    ) -> Result<OperationWritten, OperationRefusal> {
        match self.one(Command::WriteOperation(Box::new(write))) {
            Reply::OperationWritten(written) => written,
            other => panic!("not a reply about operations: {other:?}"),
        }
    }

    /// Begins an operation; returns its revision.
    fn begin_operation(&mut self, n: u8) -> u64 {
        self.write_operation(begin(n)).expect("there was none").record.revision
    }

    fn operation(&self, n: u8) -> Option<OperationRecord> {
        self.ask(self.store().operation(operation_id(n)))
    }

    fn operations(&self, query: OperationQuery) -> Vec<OperationId> {
        self.ask(self.store().operations(query)).into_iter().map(|it| it.id).collect()
    }

    fn states(&self, jobs: &[JobId]) -> Vec<State> {
        jobs.iter().map(|job| self.read(*job).state).collect()
    }
}

fn cancel(job: JobId) -> JobOrder {
    JobOrder { by: "operation: ops".into(), ..order(JobAction::Cancel, job) }
}

const ALL: OperationQuery = OperationQuery { running: None, after: None, limit: 100 };

fn operation_is_kept_as_it_was_begun<H: Harness>(world: &mut World<'_, H>) {
    assert_eq!(world.operation(1), None);
    let runner = Uuid::from_u128(7);
    let to =
        OperationChange { runner: Some(runner), ..OperationChange::to(OperationStatus::Running) };
    let written = world.write_operation(WriteOperation { to, ..begin(1) }).expect("it begins");
    let now = world.now();
    let made = OperationRecord {
        id: operation_id(1),
        revision: written.record.revision,
        new: new(),
        status: OperationStatus::Running,
        reached: None,
        runner: Some(runner),
        matched: 0,
        changed: 0,
        skipped: Default::default(),
        note: String::new(),
        created: now,
        updated: now,
        ended: None,
    };
    assert_eq!((&written.record, world.operation(1)), (&made, Some(made.clone())));
    world.wait(Span(700));
    let to = OperationChange {
        status: OperationStatus::Failed,
        reached: Some("17".into()),
        runner: None,
        note: Some("no luck: ünicode".into()),
        matched: 9,
        skipped: [(Skip::Changed, 2), (Skip::Gone, 1)].into(),
    };
    let write = WriteOperation { to, ..step(1, made.revision, vec![]) };
    assert!(world.write_operation(write).is_ok());
    let second = OperationRecord {
        revision: made.revision + 1,
        status: OperationStatus::Failed,
        reached: Some("17".into()),
        matched: 9,
        skipped: [(Skip::Changed, 2), (Skip::Gone, 1)].into(),
        note: "no luck: ünicode".into(),
        updated: world.now(),
        ended: Some(world.now()),
        ..made
    };
    assert_eq!(world.operation(1), Some(second));
}

fn step_changes_its_jobs_and_counts_them_together<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.begin_operation(1);
    let jobs: Vec<JobId> = (0..3).map(|_| world.add_plain()).collect();
    let orders = jobs[..2].iter().map(|job| cancel(*job)).collect();
    let to = OperationChange {
        reached: Some("1".into()),
        matched: 3,
        skipped: [(Skip::Changed, 1)].into(),
        ..OperationChange::to(OperationStatus::Running)
    };
    let write = WriteOperation { to, ..step(1, revision, orders) };
    let written = world.write_operation(write).expect("it is as it was read");
    let moved: Vec<JobId> = written.moved.iter().map(|moved| moved.job).collect();
    assert_eq!(moved, jobs[..2]);
    let record = world.operation(1).expect("it is there");
    assert_eq!(record, written.record);
    assert_eq!((record.revision, record.matched, record.changed), (revision + 1, 3, 2));
    assert_eq!((record.skipped(), record.reached.as_deref()), (1, Some("1")));
    let expected = [State::Cancelled, State::Cancelled, State::Available];
    assert_eq!(world.states(&jobs), expected);
    // The counts of a second step are added.
    world.wait(Span(5));
    let write = step(1, revision + 1, vec![cancel(jobs[2]), cancel(jobs[1])]);
    let record = world.write_operation(write).expect("it is as it was read").record;
    assert_eq!((record.matched, record.changed, record.reached.as_deref()), (5, 3, Some("1")));
    assert_eq!(record.skipped, [(Skip::Changed, 1), (Skip::Cancelled, 1)].into());
    assert_eq!(record.updated, world.now());
}

fn step_of_another_revision_changes_no_job<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.begin_operation(1);
    let job = world.add_plain();
    for (n, behind) in [(1, 1), (1, u64::MAX), (2, 0)] {
        let write = step(n, revision.wrapping_add(behind), vec![cancel(job)]);
        assert_eq!(world.write_operation(write), Err(OperationRefusal::Changed), "{n} {behind}");
    }
    let before = world.operation(1).expect("it is there");
    assert_eq!((before.revision, before.changed), (revision, 0));
    assert_eq!(world.states(&[job]), [State::Available]);
    // An end, too, is only written as it was read.
    let late = ExpectedOperation::Revision(revision - 1);
    let refused = world.write_operation(ending(1, late, OperationStatus::Done));
    assert_eq!((refused, world.operation(1)), (Err(OperationRefusal::Changed), Some(before)));
}

fn two_steps_of_one_batch_see_each_other<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.begin_operation(1);
    let (one, other) = (world.add_plain(), world.add_plain());
    let both = [one, other].map(|job| step(1, revision, vec![cancel(job)]));
    let commands = both.map(|write| Command::WriteOperation(Box::new(write)));
    let replies = world.apply(commands.into()).replies;
    assert!(matches!(&replies[0], Reply::OperationWritten(Ok(it)) if it.record.changed == 1));
    assert_eq!(replies[1], Reply::OperationWritten(Err(OperationRefusal::Changed)));
    assert_eq!(world.states(&[one, other]), [State::Cancelled, State::Available]);
    // Both that begin it at once: the first is there.
    let both = [begin(2), begin(2)].map(|write| Command::WriteOperation(Box::new(write)));
    let replies = world.apply(both.into()).replies;
    assert_eq!(replies[1], Reply::OperationWritten(Err(OperationRefusal::Changed)));
}

fn jobs_that_moved_on_are_counted_by_what_they_are_now<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let revision = world.begin_operation(1);
    let waits = Seen { state: State::Available, epoch: Epoch::ZERO, started: false };
    let seen = |job| JobOrder { expected: Some(waits), ..cancel(job) };
    world.add_plain();
    let completed = world.take(hand);
    world.finish(&completed, hand, ReportedOutcome::Completed).expect("it ends");
    world.add_plain();
    let running = world.take(hand);
    // Running too, but nothing is asked of it.
    world.add_plain();
    let stopped = world.take(hand);
    // It waits again, and is not as it was.
    world.add_plain();
    let again = world.take(hand);
    world.finish(&again, hand, ReportedOutcome::NotStarted).expect("it is given back");
    let orders = vec![
        seen(completed.job.id),
        seen(running.job.id),
        cancel(stopped.job.id),
        seen(again.job.id),
        cancel(JobId(Uuid::from_u128(9))),
    ];
    let record = world.write_operation(step(1, revision, orders)).expect("it is read").record;
    assert_eq!((record.matched, record.changed), (5, 1));
    let skipped = [(Skip::Completed, 1), (Skip::Running, 1), (Skip::Changed, 1), (Skip::Gone, 1)];
    assert_eq!(record.skipped, skipped.into());
    assert_eq!(
        record.outcome(),
        "1 cancelled, 4 skipped: 1 already running, 1 already completed, 1 deleted, 1 changed \
         since it began"
    );
}

fn job_of_another_tenant_is_not_there<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.begin_operation(1);
    let job = world.add_plain();
    let theirs = JobOrder { tenant: Some("acme".into()), ..cancel(job) };
    let record = world.write_operation(step(1, revision, vec![theirs])).expect("it is read").record;
    assert_eq!(record.skipped, [(Skip::Gone, 1)].into());
    assert_eq!(world.states(&[job]), [State::Available]);
}

fn retried_job_lives_again<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let revision = world.begin_operation(1);
    let mut job = world.job();
    job.rules.retry.max_attempts = 1;
    let job = world.add(job);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).expect("it fails");
    let seen = Seen { state: State::Discarded, epoch: claimed.epoch, started: false };
    let retry = JobOrder { expected: Some(seen), ..order(JobAction::Replay, job) };
    let write = step(1, revision, vec![retry.clone()]);
    assert_eq!(world.write_operation(write).expect("it is read").record.changed, 1);
    let record = world.read(job);
    assert_eq!((record.state, record.life.get()), (State::Available, 2));
    // The same again finds it waiting.
    let record = world.write_operation(step(1, revision + 1, vec![retry])).expect("read").record;
    assert_eq!(record.skipped, [(Skip::Waiting, 1)].into());
}

fn stop_needs_no_revision_and_nothing_goes_on_after_it<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.begin_operation(1);
    let job = world.add_plain();
    let stop = || ending(1, ExpectedOperation::Running, OperationStatus::Stopped);
    let stopped = world.write_operation(stop()).expect("it runs").record;
    assert_eq!((stopped.status, stopped.revision), (OperationStatus::Stopped, revision + 1));
    assert_eq!(stopped.ended, Some(world.now()));
    for write in [
        step(1, revision, vec![cancel(job)]),
        step(1, revision + 1, vec![cancel(job)]),
        stop(),
        ending(2, ExpectedOperation::Running, OperationStatus::Stopped),
    ] {
        assert_eq!(world.write_operation(write), Err(OperationRefusal::Changed));
    }
    assert_eq!(world.operation(1), Some(stopped));
    assert_eq!(world.states(&[job]), [State::Available]);
}

fn operation_that_is_there_is_not_begun_again<H: Harness>(world: &mut World<'_, H>) {
    world.begin_operation(1);
    let before = world.operation(1);
    let job = world.add_plain();
    let write = WriteOperation { orders: vec![cancel(job)], ..begin(1) };
    assert_eq!(world.write_operation(write), Err(OperationRefusal::Changed));
    assert_eq!((world.operation(1), world.states(&[job])), (before, vec![State::Available]));
}

fn only_so_many_run_at_a_time<H: Harness>(world: &mut World<'_, H>) {
    let most = u8::try_from(OPERATIONS_RUNNING_MAX).expect("they are few");
    for n in 0..most {
        world.begin_operation(n);
    }
    assert_eq!(world.write_operation(begin(most)), Err(OperationRefusal::TooMany));
    assert_eq!(world.operation(most), None);
    let end = ending(0, ExpectedOperation::Running, OperationStatus::Done);
    assert!(world.write_operation(end).is_ok());
    assert!(world.write_operation(begin(most)).is_ok());
}

fn operations_are_listed_latest_first_page_by_page<H: Harness>(world: &mut World<'_, H>) {
    for n in [3, 1, 2] {
        world.begin_operation(n);
        world.wait(Span(10));
    }
    // In the same millisecond as the one after it.
    world.begin_operation(5);
    world.begin_operation(4);
    let ids = |all: &[u8]| -> Vec<OperationId> { all.iter().map(|n| operation_id(*n)).collect() };
    assert_eq!(world.operations(ALL), ids(&[5, 4, 2, 1, 3]));
    let first = world.ask(world.store().operations(OperationQuery { limit: 2, ..ALL }));
    let after = first.last().map(|it| (it.created, it.id));
    assert_eq!(world.operations(OperationQuery { after, limit: 2, ..ALL }), ids(&[2, 1]));
    let end = ending(2, ExpectedOperation::Running, OperationStatus::Stopped);
    assert!(world.write_operation(end).is_ok());
    let of = |running| OperationQuery { running: Some(running), ..ALL };
    assert_eq!(world.operations(of(false)), ids(&[2]));
    assert_eq!(world.operations(of(true)), ids(&[5, 4, 1, 3]));
    let running = world.ask(world.store().running_operations());
    let mut running: Vec<OperationId> = running.into_iter().map(|it| it.id).collect();
    running.sort_unstable();
    assert_eq!(running, ids(&[1, 3, 4, 5]));
}

fn begin_and_end_are_in_the_event_log_once_each<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.begin_operation(1);
    let (job, other) = (world.add_plain(), world.add_plain());
    world.cancel(other).expect("it waits");
    assert!(world.write_operation(step(1, revision, vec![cancel(job), cancel(other)])).is_ok());
    let stop = OperationChange {
        note: Some("stopped by ops".into()),
        ..OperationChange::to(OperationStatus::Stopped)
    };
    let write = ending(1, ExpectedOperation::Running, OperationStatus::Stopped);
    assert!(world.write_operation(WriteOperation { to: stop, ..write }).is_ok());
    let of = EventQuery { names: vec!["operation.*".into()], ..EventQuery::all(10) };
    let events = world.ask(world.store().events(of)).events;
    let seen: Vec<_> =
        events.iter().map(|(_, it)| (it.kind, it.by.as_str(), it.evidence.text.as_str())).collect();
    let about = format!("{}: cancel jobs of queue mail", operation_id(1));
    let outcome = "stopped: 1 cancelled, 1 skipped: 1 already cancelled; stopped by ops";
    let expected = [
        (EventName::OperationStarted, "api: ops (test)", about.clone()),
        (EventName::OperationEnded, "api: other (test)", format!("{about}: {outcome}")),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(kind, by, words)| (*kind, *by, words.as_str())).collect();
    assert_eq!(seen, expected);
}

fn events_of_jobs_name_the_operation<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.begin_operation(1);
    let job = world.add_plain();
    assert!(world.write_operation(step(1, revision, vec![cancel(job)])).is_ok());
    let of =
        EventQuery { names: vec!["job.cancelled".into()], job: Some(job), ..EventQuery::all(10) };
    let events = world.ask(world.store().events(of)).events;
    let by: Vec<&str> = events.iter().map(|(_, it)| it.by.as_str()).collect();
    assert_eq!(by, ["operation: ops"]);
}

fn operations_that_ended_long_ago_are_pruned<H: Harness>(world: &mut World<'_, H>) {
    for n in 1..=3 {
        world.begin_operation(n);
    }
    let end = |n| ending(n, ExpectedOperation::Running, OperationStatus::Done);
    assert!(world.write_operation(end(1)).is_ok());
    world.wait(Span(1_000));
    assert!(world.write_operation(end(2)).is_ok());
    // What ended at the time itself stays, and what runs always does.
    let now = world.now();
    world.prune(now);
    assert_eq!(world.operations(ALL), [operation_id(3), operation_id(2)]);
}

fn operations_survive_a_crash_and_not_a_reset<H: Harness>(world: &mut World<'_, H>) {
    world.begin_operation(1);
    let before = world.operation(1);
    world.crash();
    assert_eq!(world.operation(1), before);
    assert_eq!(world.one(Command::Reset), Reply::Done);
    assert_eq!(world.operation(1), None);
    assert_eq!(world.ask(world.store().running_operations()), []);
}

fn every_job_of_a_page_says_where_the_next_page_begins<H: Harness>(world: &mut World<'_, H>) {
    let jobs: Vec<JobId> = (0..4).map(|_| world.add_plain()).collect();
    let page = |world: &World<'_, H>, cursor| {
        let query = JobQuery::all(Page { limit: 10, cursor });
        world.ask(world.store().jobs(query))
    };
    let all = page(world, None);
    assert_eq!((all.jobs.len(), all.cursors.len()), (4, 4));
    for (at, cursor) in all.cursors.iter().enumerate() {
        let rest = page(world, Some(cursor.clone()));
        let rest: Vec<JobId> = rest.jobs.into_iter().map(|job| job.job.id).collect();
        let newest_first: Vec<JobId> = jobs.iter().rev().skip(at + 1).copied().collect();
        assert_eq!(rest, newest_first);
    }
}
