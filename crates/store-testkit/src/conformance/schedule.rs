//! Schedules: each is written as it was read, and its jobs with it.

use outlast_core::id::JobId;
use outlast_core::queue::{Change, QueueChange};
use outlast_core::schedule::ScheduleName;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{Command, NewJob, WriteSchedule};
use outlast_store::event::{EventName, EventQuery};
use outlast_store::query::{JobQuery, Page};
use outlast_store::reply::{EnqueueRefusal, Reply};
use outlast_store::schedule::{
    ScheduleEvent, ScheduleQuery, ScheduleRecord, ScheduleRefusal, ScheduleState, ScheduleWritten,
    mark,
};
use outlast_store::store::Store as _;

use outlast_store::workflow::StartedWorkflow;

use crate::conformance::Harness;
use crate::conformance::workflow::{self, workflow_id};
use crate::conformance::world::{START, World};

cases![
    schedule_is_kept_as_it_was_written,
    schedule_that_was_changed_since_is_not_written,
    jobs_are_stored_with_the_schedule_or_neither_is,
    workflows_are_stored_with_the_schedule_or_neither_is,
    two_fires_of_one_batch_see_each_other,
    fire_of_a_time_that_has_fired_is_refused,
    what_was_read_of_a_schedule_that_is_gone_is_not_written_over_another,
    removed_schedule_leaves_its_jobs_and_can_be_made_again,
    due_schedules_come_in_the_order_of_their_times,
    schedules_are_listed_by_name_page_by_page,
    fire_says_who_did_it_in_the_event_log,
    jobs_are_found_by_the_schedule_that_stored_them,
    schedules_survive_a_crash_and_not_a_reset,
];

pub(crate) fn schedule_name(n: u8) -> ScheduleName {
    ScheduleName::new(&format!("schedule-{n}")).expect("a name")
}

pub(crate) fn state(n: u64) -> ScheduleState {
    ScheduleState {
        configured: false,
        due: Some(START.after(Span(n))),
        definition: format!(r#"{{"cron":"@every {n}s"}}"#),
        progress: format!(r#"{{"fired":{n}}}"#),
        set_by: "operator".into(),
    }
}

fn write(name: u8, expected: Option<u64>, to: Option<ScheduleState>) -> WriteSchedule {
    let name = schedule_name(name);
    WriteSchedule {
        name,
        expected,
        to,
        jobs: vec![],
        workflows: vec![],
        events: vec![],
        by: "operator".into(),
    }
}

impl<H: Harness> World<'_, H> {
    fn write_schedule(&mut self, write: WriteSchedule) -> Result<ScheduleWritten, ScheduleRefusal> {
        match self.one(Command::WriteSchedule(Box::new(write))) {
            Reply::ScheduleWritten(written) => written,
            other => panic!("not a reply about schedules: {other:?}"),
        }
    }

    /// Makes a schedule; returns its revision.
    fn make_schedule(&mut self, n: u8) -> u64 {
        let written = self.write_schedule(write(n, None, Some(state(u64::from(n)))));
        let ScheduleWritten { revision, jobs } = written.expect("there was none");
        assert_eq!(jobs, []);
        revision
    }

    fn schedule(&self, n: u8) -> Option<ScheduleRecord> {
        self.ask(self.store().schedule(schedule_name(n)))
    }

    fn names(&self, after: Option<u8>, limit: u32) -> Vec<ScheduleName> {
        let after = after.map(schedule_name);
        let found = self.ask(self.store().schedules(ScheduleQuery { after, limit }));
        found.into_iter().map(|it| it.name).collect()
    }
}

fn fire(n: u8, expected: u64, jobs: Vec<NewJob>) -> WriteSchedule {
    WriteSchedule { jobs, ..write(n, Some(expected), Some(state(expected + 1))) }
}

fn schedule_is_kept_as_it_was_written<H: Harness>(world: &mut World<'_, H>) {
    assert_eq!(world.schedule(1), None);
    let revision = world.make_schedule(1);
    let (name, made) = (schedule_name(1), world.now());
    let first = ScheduleRecord { name, revision, state: state(1), created: made, updated: made };
    assert_eq!(world.schedule(1), Some(first.clone()));
    world.wait(Span(700));
    let other = ScheduleState {
        configured: true,
        due: None,
        definition: "{}".into(),
        progress: r#"{"note":"täglich"}"#.into(),
        set_by: "configuration".into(),
    };
    let written = world.write_schedule(write(1, Some(revision), Some(other.clone())));
    assert_eq!(written, Ok(ScheduleWritten { revision: revision + 1, jobs: vec![] }));
    let second =
        ScheduleRecord { revision: revision + 1, state: other, updated: world.now(), ..first };
    assert_eq!(world.schedule(1), Some(second));
}

fn schedule_that_was_changed_since_is_not_written<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_schedule(1);
    let before = world.schedule(1);
    for (expected, to) in [
        (None, Some(state(9))),
        (Some(revision - 1), Some(state(9))),
        (Some(revision + 1), Some(state(9))),
        (None, None),
        (Some(revision + 1), None),
    ] {
        let refused = world.write_schedule(write(1, expected, to));
        assert_eq!(refused, Err(ScheduleRefusal::Changed), "{expected:?}");
    }
    // One that does not exist.
    let refused = world.write_schedule(write(2, Some(revision), Some(state(9))));
    assert_eq!(refused, Err(ScheduleRefusal::Changed));
    assert_eq!((world.schedule(1), world.schedule(2)), (before, None));
}

fn jobs_are_stored_with_the_schedule_or_neither_is<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_schedule(1);
    let change = QueueChange { max_depth: Change::Set(2), ..QueueChange::default() };
    assert!(world.set_queue("default", change).is_ok());
    let jobs: Vec<NewJob> = (0..3).map(|_| world.job()).collect();
    let refused = world.write_schedule(fire(1, revision, jobs.clone()));
    let is_full = |refused: &Result<ScheduleWritten, ScheduleRefusal>| {
        matches!(refused, Err(ScheduleRefusal::Job(0, EnqueueRefusal::QueueFull { .. })))
    };
    assert!(is_full(&refused), "{refused:?}");
    assert!(jobs.iter().all(|job| world.find(job.id).is_none()));
    assert_eq!(world.schedule(1).map(|it| it.revision), Some(revision));
    // A stale one stores nothing either.
    let refused = world.write_schedule(fire(1, revision + 7, jobs[..2].to_vec()));
    assert_eq!(refused, Err(ScheduleRefusal::Changed));
    assert!(jobs.iter().all(|job| world.find(job.id).is_none()));
    let written =
        world.write_schedule(fire(1, revision, jobs[..2].to_vec())).expect("there is room");
    let stored: Vec<JobId> = written.jobs.iter().map(|it| it.id).collect();
    assert_eq!((written.revision, stored), (revision + 1, vec![jobs[0].id, jobs[1].id]));
    assert!(jobs[..2].iter().all(|job| world.find(job.id).is_some()));
}

fn workflows_are_stored_with_the_schedule_or_neither_is<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_schedule(1);
    let begun = |n: u64| StartedWorkflow {
        id: workflow_id(1),
        new: workflow::new("nightly"),
        state: workflow::state(n),
    };
    let fire_of =
        |expected, n| WriteSchedule { workflows: vec![begun(n)], ..fire(1, expected, vec![]) };
    let refused = world.write_schedule(fire_of(revision + 7, 1));
    assert_eq!((refused, world.record(1)), (Err(ScheduleRefusal::Changed), None));
    assert!(world.write_schedule(fire_of(revision, 2)).is_ok());
    let stored = world.record(1).expect("it is stored");
    assert_eq!((stored.new.clone(), stored.state.clone()), (begun(2).new, begun(2).state));
    assert!(world.write_schedule(fire_of(revision + 1, 3)).is_ok());
    assert_eq!(world.record(1), Some(stored));
}

fn two_fires_of_one_batch_see_each_other<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_schedule(1);
    let (one, other) = (world.job(), world.job());
    let both = [fire(1, revision, vec![one.clone()]), fire(1, revision, vec![other.clone()])];
    let commands = both.map(|fire| Command::WriteSchedule(Box::new(fire)));
    let replies = world.apply(commands.into()).replies;
    assert!(
        matches!(&replies[0], Reply::ScheduleWritten(Ok(written)) if written.revision == revision + 1)
    );
    assert_eq!(replies[1], Reply::ScheduleWritten(Err(ScheduleRefusal::Changed)));
    assert!(world.find(one.id).is_some() && world.find(other.id).is_none());
    // Both that are made at once: the first is there.
    let both = [1, 2].map(|n| Command::WriteSchedule(Box::new(write(5, None, Some(state(n))))));
    let replies = world.apply(both.into()).replies;
    assert_eq!(replies[1], Reply::ScheduleWritten(Err(ScheduleRefusal::Changed)));
    assert_eq!(world.schedule(5).map(|it| it.state), Some(state(1)));
}

fn fire_of_a_time_that_has_fired_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_schedule(1);
    let job = world.job();
    assert!(world.write_schedule(fire(1, revision, vec![job.clone()])).is_ok());
    // A schedule that is removed and made again fires the same time under the same id.
    assert!(world.write_schedule(write(1, Some(revision + 1), None)).is_ok());
    let other = world.make_schedule(1);
    let refused = world.write_schedule(fire(1, other, vec![job.clone()]));
    let known = ScheduleRefusal::Job(0, EnqueueRefusal::DuplicateId(job.id));
    assert_eq!(refused, Err(known));
    assert_eq!(world.schedule(1).map(|it| it.revision), Some(other));
}

fn what_was_read_of_a_schedule_that_is_gone_is_not_written_over_another<H: Harness>(
    world: &mut World<'_, H>,
) {
    let revision = world.make_schedule(1);
    assert!(world.write_schedule(write(1, Some(revision), None)).is_ok());
    // In the same millisecond.
    let other = world.make_schedule(1);
    assert_ne!(revision, other);
    let refused = world.write_schedule(fire(1, revision, vec![]));
    assert_eq!(refused, Err(ScheduleRefusal::Changed));
}

fn removed_schedule_leaves_its_jobs_and_can_be_made_again<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_schedule(1);
    let job = world.job();
    assert!(world.write_schedule(fire(1, revision, vec![job.clone()])).is_ok());
    let written = world.write_schedule(write(1, Some(revision + 1), None));
    assert_eq!(written, Ok(ScheduleWritten { revision: revision + 2, jobs: vec![] }));
    assert_eq!(world.schedule(1), None);
    assert!(world.find(job.id).is_some());
    world.wait(Span(5));
    world.make_schedule(1);
    assert_eq!(world.schedule(1).map(|it| it.created), Some(world.now()));
}

fn due_schedules_come_in_the_order_of_their_times<H: Harness>(world: &mut World<'_, H>) {
    for (n, due) in [(1, Some(30)), (2, Some(10)), (3, None), (4, Some(20)), (5, Some(10))] {
        let state = ScheduleState { due: due.map(|ms| START.after(Span(ms))), ..state(0) };
        assert!(world.write_schedule(write(n, None, Some(state))).is_ok());
    }
    let due = |world: &World<'_, H>, ms: u64, max: u32| -> Vec<ScheduleName> {
        let found = world.ask(world.store().due_schedules(START.after(Span(ms)), max));
        found.into_iter().map(|it| it.name).collect()
    };
    let named =
        |names: &[u8]| -> Vec<ScheduleName> { names.iter().map(|n| schedule_name(*n)).collect() };
    assert_eq!(due(world, 9, 10), named(&[]));
    assert_eq!(due(world, 10, 10), named(&[2, 5]));
    assert_eq!(due(world, 29, 10), named(&[2, 5, 4]));
    assert_eq!(due(world, 1_000_000, 10), named(&[2, 5, 4, 1]));
    assert_eq!(due(world, 1_000_000, 3), named(&[2, 5, 4]));
}

fn schedules_are_listed_by_name_page_by_page<H: Harness>(world: &mut World<'_, H>) {
    for n in [3, 1, 2] {
        world.make_schedule(n);
    }
    assert_eq!(world.names(None, 2), [schedule_name(1), schedule_name(2)]);
    assert_eq!(world.names(Some(2), 2), [schedule_name(3)]);
    assert_eq!(world.names(Some(3), 2), []);
}

fn fire_says_who_did_it_in_the_event_log<H: Harness>(world: &mut World<'_, H>) {
    let revision = world.make_schedule(1);
    let job = world.job();
    let event = |kind, job, words: &str| ScheduleEvent { kind, job, words: words.into() };
    let fire = WriteSchedule {
        events: vec![
            event(EventName::CronTriggered, Some(job.id), ""),
            event(EventName::CronSkipped, None, "the job before it has not ended"),
        ],
        by: "scheduler".into(),
        ..fire(1, revision, vec![job.clone()])
    };
    assert!(world.write_schedule(fire).is_ok());
    let of = EventQuery { names: vec!["cron.*".into()], ..EventQuery::all(10) };
    let events = world.ask(world.store().events(of)).events;
    let seen: Vec<_> = events
        .iter()
        .map(|(_, it)| (it.kind, it.job, it.by.as_str(), it.evidence.text.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (EventName::CronTriggered, Some(job.id), "scheduler", "schedule-1"),
            (
                EventName::CronSkipped,
                None,
                "scheduler",
                "schedule-1: the job before it has not ended"
            ),
        ]
    );
}

fn jobs_are_found_by_the_schedule_that_stored_them<H: Harness>(world: &mut World<'_, H>) {
    let of = |world: &mut World<'_, H>, extra: String| {
        let mut job = world.job();
        job.payload.extra = extra;
        world.add(job)
    };
    let marked = |n: u8| format!("{{{},\"fire_time\":1}}}}", mark(&schedule_name(n)));
    let mine = [of(world, marked(1)), of(world, marked(1))];
    of(world, marked(11));
    of(world, String::new());
    of(world, r#"{"note":"\"schedule\":{\"name\":\"schedule-1\""}"#.into());
    let page = Page { limit: 10, cursor: None };
    let query = JobQuery { schedule: Some(schedule_name(1)), ..JobQuery::all(page) };
    let found = world.ask(world.store().jobs(query)).jobs;
    let found: Vec<JobId> = found.into_iter().map(|job| job.job.id).collect();
    assert_eq!(found, [mine[1], mine[0]]);
}

fn schedules_survive_a_crash_and_not_a_reset<H: Harness>(world: &mut World<'_, H>) {
    world.make_schedule(1);
    let before = world.schedule(1);
    world.crash();
    assert_eq!(world.schedule(1), before);
    assert_eq!(world.one(Command::Reset), Reply::Done);
    assert_eq!(world.schedule(1), None);
    let due = world.ask(world.store().due_schedules(Timestamp(i64::MAX), 10));
    assert_eq!(due, []);
}
