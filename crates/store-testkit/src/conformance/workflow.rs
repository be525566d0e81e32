//! Workflows: each is written as it was read, with its jobs; each end of an item is noted once.

use outlast_core::id::JobId;
use outlast_core::queue::{Change, QueueChange};
use outlast_core::retry::OnExhaustion;
use outlast_core::time::{Span, Timestamp};
use outlast_core::unique::{OnConflict, States, Unique};
use outlast_core::workflow::{ItemOutcome, WorkflowId, WorkflowItem};
use outlast_store::command::{Command, EndDetail, Finish, NewJob, ReportedOutcome, WriteWorkflow};
use outlast_store::reply::Reply;
use outlast_store::store::Store as _;
use outlast_store::workflow::{
    DueWorkflows, ItemEnd, ItemHappened, ItemQuery, ItemRecord, ItemState, NewWorkflow, Runs,
    StartedWorkflow, StepRecord, WhichItems, WorkflowCounts, WorkflowLook, WorkflowRecord,
    WorkflowRefusal, WorkflowState, WorkflowWritten,
};
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::{START, World, failed};

cases![
    workflow_is_kept_as_it_was_written,
    workflow_that_was_changed_since_is_not_written,
    two_writes_of_one_batch_see_each_other,
    steps_and_items_are_kept_as_they_were_written_last,
    items_are_read_page_by_page_as_far_as_they_fit,
    each_way_to_end_is_noted_once,
    only_the_last_of_several_attempts_is_an_end,
    result_is_noted_if_the_workflow_needs_it,
    job_that_lives_again_is_noted,
    ends_that_were_taken_do_not_come_again,
    job_that_is_refused_is_an_end_of_its_item,
    workflow_is_started_once_and_its_end_is_one_of_an_item,
    plain_jobs_leave_nothing,
];

pub(crate) fn workflow_id(n: u8) -> WorkflowId {
    WorkflowId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0002_0000 + u128::from(n)))
}

pub(crate) fn state(n: u64) -> WorkflowState {
    WorkflowState {
        status: "running".into(),
        due: None,
        finished: None,
        progress: format!(r#"{{"n":{n}}}"#),
    }
}

pub(crate) fn new(name: &str) -> NewWorkflow {
    NewWorkflow {
        name: name.into(),
        tenant: String::new(),
        definition: r#"{"steps":"täglich"}"#.into(),
        parent: None,
    }
}

pub(crate) fn write(n: u8, expected: Option<u64>) -> WriteWorkflow {
    WriteWorkflow {
        id: workflow_id(n),
        expected,
        to: Some(state(u64::from(n))),
        new: expected.is_none().then(|| new("nightly")),
        steps: vec![],
        items: vec![],
        jobs: vec![],
        started: vec![],
        ends: vec![],
        taken: vec![],
        events: vec![],
        by: "operator".into(),
    }
}

pub(crate) fn item(n: u8, item: u32) -> WorkflowItem {
    WorkflowItem { workflow: workflow_id(n), step: 1, item, keeps_result: false }
}

/// An item of step 1 that waits for its turn.
pub(crate) fn waiting_item(item: u32, input: &str) -> ItemRecord {
    ItemRecord {
        step: 1,
        item,
        state: ItemState::Held,
        runs: None,
        input: Some(input.into()),
        result: None,
    }
}

fn command(write: WriteWorkflow) -> Command {
    Command::WriteWorkflow(Box::new(write))
}

impl<H: Harness> World<'_, H> {
    pub(crate) fn write_workflow(
        &mut self,
        write: WriteWorkflow,
    ) -> Result<WorkflowWritten, WorkflowRefusal> {
        match self.one(command(write)) {
            Reply::WorkflowWritten(written) => written,
            other => panic!("not a reply about workflows: {other:?}"),
        }
    }

    /// Makes a workflow; returns its revision.
    fn make_workflow(&mut self, n: u8) -> u64 {
        self.write_workflow(write(n, None)).expect("there was none").revision
    }

    pub(crate) fn look(&self, n: u8) -> WorkflowLook {
        self.ask(self.store().look_at_workflow(workflow_id(n), true))
    }

    pub(crate) fn record(&self, n: u8) -> Option<WorkflowRecord> {
        self.look(n).record
    }

    fn ends(&self, n: u8) -> Vec<ItemEnd> {
        self.look(n).ends.into_iter().map(|end| end.end).collect()
    }

    pub(crate) fn items(&self, n: u8, which: WhichItems) -> Vec<ItemRecord> {
        let workflow = workflow_id(n);
        let query = ItemQuery {
            workflow,
            step: Some(1),
            which,
            with_values: true,
            after: None,
            limit: 100,
            bytes: usize::MAX,
        };
        self.ask(self.store().workflow_items(query))
    }

    pub(crate) fn job_of(&mut self, of: WorkflowItem) -> NewJob {
        let mut job = self.job();
        job.rules.workflow = Some(of);
        job
    }

    /// Stores a job of an item of workflow 1.
    pub(crate) fn add_of(&mut self, of: WorkflowItem, change: impl FnOnce(&mut NewJob)) -> JobId {
        let mut job = self.job_of(of);
        change(&mut job);
        self.add(job)
    }
}

fn ended(of: WorkflowItem, job: JobId, outcome: ItemOutcome, error: Option<&str>) -> ItemEnd {
    ItemEnd {
        of,
        runs: Runs::Job(job),
        what: ItemHappened::Ended(outcome),
        error: error.map(ToOwned::to_owned),
        result: None,
    }
}

fn workflow_is_kept_as_it_was_written<H: Harness>(world: &mut World<'_, H>) {
    assert_eq!(world.record(1), None);
    let parent = Some(WorkflowItem { keeps_result: true, ..item(9, 7) });
    let first = NewWorkflow { tenant: "acme".into(), parent, ..new("nightly") };
    let made = WriteWorkflow { new: Some(first.clone()), ..write(1, None) };
    let revision = world.write_workflow(made).expect("there was none").revision;
    let begun = world.now();
    let record = WorkflowRecord {
        id: workflow_id(1),
        revision,
        new: first,
        state: state(1),
        created: begun,
        updated: begun,
    };
    assert_eq!(world.record(1), Some(record.clone()));
    world.wait(Span(700));
    let to = WorkflowState {
        status: "failed".into(),
        due: Some(START),
        finished: Some(world.now()),
        progress: r#"{"error":"why not"}"#.into(),
    };
    let written = world.write_workflow(WriteWorkflow {
        to: Some(to.clone()),
        // What it is does not change.
        new: Some(new("another")),
        ..write(1, Some(revision))
    });
    assert_eq!(written, Ok(WorkflowWritten { revision: revision + 1, jobs: vec![] }));
    let record =
        WorkflowRecord { revision: revision + 1, state: to, updated: world.now(), ..record };
    assert_eq!(world.record(1), Some(record.clone()));
    let brief = world.ask(world.store().look_at_workflow(workflow_id(1), false)).record;
    let without = NewWorkflow { definition: String::new(), ..record.new.clone() };
    assert_eq!(brief, Some(WorkflowRecord { new: without, ..record }));
}

fn workflow_that_was_changed_since_is_not_written<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_workflow(1);
    let before = world.record(1);
    let job = world.job_of(item(1, 0));
    for (n, expected) in [(1, None), (1, Some(revision - 1)), (1, Some(revision + 1)), (2, Some(1))]
    {
        let refused = world.write_workflow(WriteWorkflow {
            jobs: vec![job.clone()],
            ends: vec![ended(item(3, 0), job.id, ItemOutcome::Failed, None)],
            ..write(n, expected)
        });
        assert_eq!(refused, Err(WorkflowRefusal::Changed), "{n} {expected:?}");
    }
    assert_eq!((world.record(1), world.record(2)), (before, None));
    assert_eq!((world.find(job.id), world.items(1, WhichItems::All)), (None, vec![]));
    assert_eq!(world.ends(3), []);
}

fn two_writes_of_one_batch_see_each_other<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_workflow(1);
    let (one, other) = (world.job_of(item(1, 0)), world.job_of(item(1, 0)));
    let of = |job: &NewJob| {
        command(WriteWorkflow { jobs: vec![job.clone()], ..write(1, Some(revision)) })
    };
    let replies = world.apply(vec![of(&one), of(&other)]).replies;
    assert!(matches!(&replies[0], Reply::WorkflowWritten(Ok(it)) if it.revision == revision + 1));
    assert_eq!(replies[1], Reply::WorkflowWritten(Err(WorkflowRefusal::Changed)));
    assert!(world.find(one.id).is_some() && world.find(other.id).is_none());
    let both = [command(write(5, None)), command(write(5, None))];
    let replies = world.apply(both.into()).replies;
    assert!(matches!(&replies[0], Reply::WorkflowWritten(Ok(_))));
    assert_eq!(replies[1], Reply::WorkflowWritten(Err(WorkflowRefusal::Changed)));
}

fn steps_and_items_are_kept_as_they_were_written_last<H: Harness>(world: &mut World<'_, H>) {
    let step = |step, state: &str| StepRecord { step, state: state.into() };
    let job = world.job_of(item(1, 0));
    let written = world.write_workflow(WriteWorkflow {
        steps: vec![step(1, "{}"), step(0, r#"{"status":"completed"}"#)],
        items: vec![waiting_item(2, "[2]"), waiting_item(1, "[1]")],
        jobs: vec![job.clone()],
        ..write(1, None)
    });
    let revision = written.expect("there was none").revision;
    let look = world.look(1);
    assert_eq!(look.steps, [step(0, r#"{"status":"completed"}"#), step(1, "{}")]);
    let running = ItemRecord {
        step: 1,
        item: 0,
        state: ItemState::Running,
        runs: Some(Runs::Job(job.id)),
        input: None,
        result: None,
    };
    let all = world.items(1, WhichItems::All);
    assert_eq!(all, [running.clone(), waiting_item(1, "[1]"), waiting_item(2, "[2]")]);
    assert_eq!(world.items(1, WhichItems::Held), [waiting_item(1, "[1]"), waiting_item(2, "[2]")]);
    let with = |state, result: Option<&str>| ItemRecord {
        state,
        result: result.map(ToOwned::to_owned),
        ..running.clone()
    };
    let done = with(ItemState::Ended(ItemOutcome::Completed), Some("{\"a\":1}"));
    let lost = ItemRecord { item: 1, ..with(ItemState::Ended(ItemOutcome::Abandoned), None) };
    let child = ItemRecord {
        item: 2,
        state: ItemState::Running,
        runs: Some(Runs::Workflow(workflow_id(8))),
        ..with(ItemState::Running, None)
    };
    let change = WriteWorkflow {
        steps: vec![step(1, r#"{"status":"running"}"#)],
        items: vec![done.clone(), lost.clone(), child.clone()],
        ..write(1, Some(revision))
    };
    assert!(world.write_workflow(change).is_ok());
    assert_eq!(world.look(1).steps[1], step(1, r#"{"status":"running"}"#));
    assert_eq!(world.items(1, WhichItems::Completed), std::slice::from_ref(&done));
    assert_eq!(world.items(1, WhichItems::Unsuccessful), [lost]);
    assert_eq!(world.items(1, WhichItems::Running), [child]);
}

fn items_are_read_page_by_page_as_far_as_they_fit<H: Harness>(world: &mut World<'_, H>) {
    let done = |n: u32, result: &str| ItemRecord {
        state: ItemState::Ended(ItemOutcome::Completed),
        runs: Some(Runs::Workflow(workflow_id(8))),
        input: None,
        result: Some(result.into()),
        ..waiting_item(n, "")
    };
    let items = [0, 1, 2].map(|n| done(n, "[1234567]")).to_vec();
    let made = WriteWorkflow { items, ..write(1, None) };
    assert!(world.write_workflow(made).is_ok());
    let many = ItemQuery {
        workflow: workflow_id(1),
        step: None,
        which: WhichItems::All,
        with_values: false,
        after: None,
        limit: 100,
        bytes: 0,
    };
    let places = |world: &World<'_, H>, query: ItemQuery| -> Vec<u32> {
        world.ask(world.store().workflow_items(query)).iter().map(|item| item.item).collect()
    };
    let first = world.ask(world.store().workflow_items(ItemQuery { limit: 1, ..many }));
    assert_eq!(first, [ItemRecord { result: None, ..done(0, "") }]);
    assert_eq!(places(world, many), [0, 1, 2]);
    assert_eq!(places(world, ItemQuery { step: Some(0), ..many }), Vec::<u32>::new());
    assert_eq!(places(world, ItemQuery { after: Some((1, 0)), ..many }), [1, 2]);
    assert_eq!(places(world, ItemQuery { after: Some((0, 7)), ..many }), [0, 1, 2]);
    assert_eq!(places(world, ItemQuery { after: Some((1, 2)), ..many }), Vec::<u32>::new());
    // As many as fit, and one at least.
    let of = |bytes| ItemQuery { with_values: true, bytes, ..many };
    assert_eq!(places(world, of(27)), [0, 1, 2]);
    assert_eq!(places(world, of(26)), [0, 1]);
    assert_eq!(places(world, of(3)), [0]);
}

fn each_way_to_end_is_noted_once<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut expected = Vec::new();
    let mut note = |of, job, outcome, error| expected.push(ended(of, job, outcome, error));
    let finish = |world: &mut World<'_, H>, reported, error: Option<&str>| {
        let claimed = world.run(hand);
        let detail = EndDetail {
            error: error.map(|text| format!(r#"{{"type":"e","message":"{text}"}}"#)),
            evidence: "said so".into(),
            ..EndDetail::default()
        };
        let fence = hand.fence(claimed.epoch);
        let (job, by) = (claimed.job.id, "test".into());
        let finish = Finish { job, fence, reported, detail, by };
        let applied = world.apply(vec![Command::Finish(Box::new(finish))]);
        assert_eq!(applied.workflows, [workflow_id(1)]);
    };
    let once = |job: &mut NewJob| job.rules.retry.max_attempts = 1;
    let job = world.add_of(item(1, 0), once);
    finish(world, ReportedOutcome::Completed, None);
    note(item(1, 0), job, ItemOutcome::Completed, None);
    let job = world.add_of(item(1, 1), once);
    finish(world, failed(), Some("no such table"));
    note(item(1, 1), job, ItemOutcome::Failed, Some("no such table"));
    let job = world.add_of(item(1, 2), once);
    finish(world, ReportedOutcome::TimedOut, Some("took too long"));
    note(item(1, 2), job, ItemOutcome::TimedOut, Some("took too long"));
    let job = world.add_of(item(1, 3), |_| ());
    world.cancel(job).expect("it waits");
    note(item(1, 3), job, ItemOutcome::Cancelled, None);
    let soon = world.now().after(Span(5));
    let job = world.add_of(item(1, 4), |job| job.rules.expires_at = Some(soon));
    world.wait(Span(6));
    world.sweep();
    note(item(1, 4), job, ItemOutcome::Expired, None);
    // A cancelled job whose process tree is still there has ended, and ends no second time.
    let job = world.add_of(item(1, 5), |_| ());
    let claimed = world.run(hand);
    world.cancel(job).expect("it runs");
    note(item(1, 5), job, ItemOutcome::Cancelled, None);
    drop(world.finish(&claimed, hand, ReportedOutcome::Completed));
    // A job that may start once, and whose worker died.
    let job = world.add_of(item(1, 6), once);
    world.run(hand);
    world.bury(hand.worker);
    note(item(1, 6), job, ItemOutcome::Abandoned, None);
    let errors_of_losses = |end: &mut ItemEnd| {
        if end.what == ItemHappened::Ended(ItemOutcome::Abandoned) {
            end.error = None;
        }
    };
    let mut ends = world.ends(1);
    ends.iter_mut().for_each(errors_of_losses);
    assert_eq!(ends, expected);
}

fn only_the_last_of_several_attempts_is_an_end<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let job = world.add_of(item(1, 0), |job| job.rules.retry.max_attempts = 2);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).expect("it is held");
    assert_eq!(world.ends(1), []);
    world.wait(Span::from_secs(3600));
    world.sweep();
    let hand = world.worker();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).expect("it is held");
    assert_eq!(world.ends(1), [ended(item(1, 0), job, ItemOutcome::Failed, None)]);
}

fn result_is_noted_if_the_workflow_needs_it<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for keeps_result in [true, false] {
        let of = WorkflowItem { keeps_result, ..item(1, u32::from(keeps_result)) };
        let job = world.add_of(of, |_| ());
        let claimed = world.run(hand);
        let detail = EndDetail {
            result: Some(r#"{"files":["ä.csv"]}"#.into()),
            evidence: "said so".into(),
            ..EndDetail::default()
        };
        let (fence, by) = (hand.fence(claimed.epoch), "test".into());
        let reported = ReportedOutcome::Completed;
        let finish = Finish { job, fence, reported, detail, by };
        world.moved(Command::Finish(Box::new(finish))).expect("it is held");
    }
    let results: Vec<Option<String>> = world.ends(1).into_iter().map(|end| end.result).collect();
    assert_eq!(results, [Some(r#"{"files":["ä.csv"]}"#.to_owned()), None]);
}

fn job_that_lives_again_is_noted<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let job = world.add_of(item(1, 0), |job| {
        job.rules.retry.max_attempts = 1;
        job.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    });
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).expect("it is held");
    world.replay(job).expect("it is a dead letter");
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).expect("it is held");
    let seen: Vec<ItemHappened> = world.ends(1).into_iter().map(|end| end.what).collect();
    let ended = ItemHappened::Ended;
    assert_eq!(
        seen,
        [ended(ItemOutcome::Failed), ItemHappened::Replayed, ended(ItemOutcome::Completed)]
    );
}

fn ends_that_were_taken_do_not_come_again<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let job = world.job_of(item(1, 0));
    let written = world.write_workflow(WriteWorkflow { jobs: vec![job.clone()], ..write(1, None) });
    let revision = written.expect("there was none").revision;
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).expect("it is held");
    let look = world.look(1);
    let [end] = look.ends.as_slice() else { panic!("one end: {look:?}") };
    assert_eq!(end.item, Some((ItemState::Running, Some(Runs::Job(job.id)))));
    let take =
        |expected| WriteWorkflow { taken: vec![end.number, 77_777], ..write(1, Some(expected)) };
    assert_eq!(world.write_workflow(take(revision + 9)), Err(WorkflowRefusal::Changed));
    assert_eq!(world.ends(1).len(), 1);
    // The end of another workflow is not its to take.
    let other = WriteWorkflow { taken: vec![end.number], ..write(2, None) };
    assert!(world.write_workflow(other).is_ok());
    assert_eq!(world.ends(1).len(), 1);
    assert!(world.write_workflow(take(revision)).is_ok());
    assert_eq!(world.ends(1), []);
    // Of a workflow that is not there, ends are taken too.
    let lost = world.add_of(item(3, 0), |_| ());
    world.cancel(lost).expect("it waits");
    let numbers = world.look(3).ends.iter().map(|end| end.number).collect();
    let take = WriteWorkflow { to: None, new: None, taken: numbers, ..write(3, None) };
    assert!(world.write_workflow(take).is_ok());
    assert_eq!((world.record(3), world.ends(3)), (None, vec![]));
}

fn job_that_is_refused_is_an_end_of_its_item<H: Harness>(world: &mut World<'_, H>) {
    let change = QueueChange { max_depth: Change::Set(2), ..QueueChange::default() };
    assert!(world.set_queue("default", change).is_ok());
    let jobs: Vec<NewJob> = (0..3).map(|n| world.job_of(item(1, n))).collect();
    let applied =
        world.apply(vec![command(WriteWorkflow { jobs: jobs.clone(), ..write(1, None) })]);
    assert_eq!(applied.workflows, [workflow_id(1)]);
    let Some(Reply::WorkflowWritten(Ok(written))) = applied.replies.first() else {
        panic!("it is written: {applied:?}")
    };
    let stored: Vec<JobId> = written.jobs.iter().map(|it| it.id).collect();
    assert_eq!(stored, [jobs[0].id, jobs[1].id]);
    let [end] = world.ends(1).try_into().expect("one end");
    let full = ItemHappened::Ended(ItemOutcome::QueueFull);
    assert_eq!((end.of, end.what, end.runs), (item(1, 2), full, Runs::Job(jobs[2].id)));
    assert!(end.error.is_some_and(|error| error.contains("full")));
    assert!(world.find(jobs[2].id).is_none());
    assert_eq!(world.items(1, WhichItems::Running).len(), 3);

    let unbounded = QueueChange { max_depth: Change::Unset, ..QueueChange::default() };
    assert!(world.set_queue("default", unbounded).is_ok());
    let mut unique = |n, on_conflict| {
        let mut job = world.job_of(item(2, n));
        job.unique =
            Some(Unique { fingerprint: [7; 32], states: States::LIVE, period: None, on_conflict });
        job
    };
    let jobs = vec![
        unique(0, OnConflict::Reject),
        unique(1, OnConflict::Reject),
        unique(2, OnConflict::Ignore),
    ];
    let written = world.write_workflow(WriteWorkflow { jobs, ..write(2, None) });
    assert_eq!(written.expect("it is written").jobs.len(), 1);
    let seen: Vec<_> = world.ends(2).into_iter().map(|end| (end.of.item, end.what)).collect();
    let duplicate = ItemHappened::Ended(ItemOutcome::Duplicate);
    assert_eq!(seen, [(1, duplicate), (2, duplicate)]);
}

fn workflow_is_started_once_and_its_end_is_one_of_an_item<H: Harness>(world: &mut World<'_, H>) {
    let parent = Some(item(1, 0));
    let child = |n: u64| StartedWorkflow {
        id: workflow_id(2),
        new: NewWorkflow { parent, ..new("child") },
        state: WorkflowState { due: Some(START), ..state(n) },
    };
    let start = |expected, n| WriteWorkflow { started: vec![child(n)], ..write(1, expected) };
    let revision = world.write_workflow(start(None, 5)).expect("there was none").revision;
    let begun = world.record(2).expect("it is started");
    assert_eq!((begun.new.clone(), begun.state.clone()), (child(5).new, child(5).state));
    assert!(world.write_workflow(start(Some(revision), 6)).is_ok());
    assert_eq!(world.record(2), Some(begun.clone()));
    let end = ItemEnd {
        of: item(1, 0),
        runs: Runs::Workflow(workflow_id(2)),
        what: ItemHappened::Ended(ItemOutcome::TimedOut),
        error: Some("took longer than 2 h".into()),
        result: Some("[1]".into()),
    };
    let last = WriteWorkflow { ends: vec![end.clone()], ..write(2, Some(begun.revision)) };
    let applied = world.apply(vec![command(last)]);
    assert_eq!((applied.workflows, world.ends(1)), (vec![workflow_id(1)], vec![end]));
}

fn plain_jobs_leave_nothing<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).expect("it is held");
    let job = world.add_plain();
    world.cancel(job).expect("it waits");
    let (ends_from, until) = (Timestamp(0), Timestamp(i64::MAX));
    let all = world.store().due_workflows(DueWorkflows { until, ends_from, max: 10 });
    assert_eq!(world.ask(all), []);
    assert_eq!(world.ask(world.store().workflow_counts()), WorkflowCounts::default());
}
