//! Plain OJS attempts: a visibility of their own instead of a worker's lease.

use outlast_core::evidence::EvidenceCode;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::{Outcome, Refusal, State};
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    Command, Fence, LapseScope, ReportedOutcome, Reporter, Sweep, WorkerMove, WorkerRole,
};
use outlast_store::event::EventQuery;
use outlast_store::extend::{Extend, Holds, JobCount};
use outlast_store::reply::{Extended, MoveRefusal, Moved, Reply};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::{LEASE, VISIBILITY, World, finish, lapse, rules};

cases![
    fetched_job_is_started_and_visible_to_its_holder_only,
    silent_client_spends_an_attempt_and_the_job_comes_back,
    job_s_own_visibility_goes_before_the_fetch_s,
    heartbeat_prolongs_what_its_sender_holds,
    heartbeat_with_a_list_prolongs_what_nobody_in_particular_holds,
    count_below_what_is_held_prolongs_only_what_an_earlier_beat_agreed_with,
    count_is_compared_with_what_its_sender_may_know,
    cancelled_attempt_counts_since_its_holder_may_not_know,
    unconfirmed_attempt_is_logged_on_request,
    silence_counts_only_as_long_as_it_was_watched,
    attempt_over_its_time_limit_is_timed_out,
    report_by_a_client_of_another_id_is_refused,
    late_ack_after_visibility_passed_is_refused,
    cancelled_plain_attempt_is_vacated_when_its_visibility_passes,
    worker_that_beat_and_fell_silent_loses_what_it_holds_however_long_its_visibility,
    incarnations_that_are_given_up_in_one_batch_lose_what_they_hold_with_the_last,
    worker_that_says_that_it_ends_is_interrupted_and_its_jobs_come_back_at_once,
];

fn fetched_job_is_started_and_visible_to_its_holder_only<H: Harness>(world: &mut World<'_, H>) {
    let id = world.add_plain();
    let claimed = world.fetch(Some("plain"), 1).remove(0);
    assert_eq!(claimed.visible_until, Some(world.now().after(VISIBILITY)));
    let job = world.read(id);
    assert_eq!((job.started, job.claimed), (Some(world.now()), Some(world.now())));
    let holder = job.holder.unwrap();
    assert_eq!((holder.worker, holder.name.as_deref()), (None, Some("plain")));
    assert_eq!(world.fetch(Some("other"), 1).len(), 0);
    assert_eq!(world.attempts(id)[0].worker_name.as_deref(), Some("plain"));
}

fn silent_client_spends_an_attempt_and_the_job_comes_back<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    job.rules = rules(2);
    let id = world.add(job);
    world.fetch(None, 1);
    world.wait(Span(VISIBILITY.0 - 1));
    assert_eq!(world.sweep().moved, []);
    world.wait(Span(1));
    let swept = world.sweep();
    assert_eq!((swept.moved.len(), swept.moved[0].state), (1, State::Available));
    let job = world.read(id);
    assert_eq!((job.spent.failures, job.spent.losses), (1, 1));
    let first = world.attempts(id).remove(0);
    assert_eq!(first.outcome, Some(Outcome::Lost));
    assert_eq!(first.evidence.code, Some(EvidenceCode::Lease));
    let again = world.fetch(None, 1).remove(0);
    assert_eq!((again.epoch.0, again.attempt), (2, 2));
    world.wait(VISIBILITY);
    world.sweep();
    assert_eq!(world.read(id).state, State::Discarded);
}

fn job_s_own_visibility_goes_before_the_fetch_s<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    job.visibility = Some(Span(100));
    world.add(job);
    let claimed = world.fetch(None, 1).remove(0);
    assert_eq!(claimed.visible_until, Some(world.now().after(Span(100))));
}

fn extend(worker: &str, jobs: Vec<JobId>) -> Command {
    Command::Extend(Extend { worker: worker.into(), holds: Holds::Jobs(jobs) })
}

/// A heartbeat that arrives now.
fn count<H: Harness>(world: &World<'_, H>, worker: &str, jobs: u32) -> Command {
    let (arrived, report) = (world.now(), Vec::new());
    let holds = Holds::Count(JobCount { jobs, arrived, report });
    Command::Extend(Extend { worker: worker.into(), holds })
}

fn extended(jobs: Vec<JobId>) -> Reply {
    Reply::Extended(Extended::all(jobs))
}

fn heartbeat_prolongs_what_its_sender_holds<H: Harness>(world: &mut World<'_, H>) {
    let (mine, theirs) = (world.add_plain(), world.add_plain());
    world.fetch(Some("me"), 1);
    world.fetch(Some("them"), 1);
    world.wait(Span(VISIBILITY.0 - 1));
    let beat = count(world, "me", 1);
    assert_eq!(world.one(beat), extended(vec![mine]));
    let until = world.now().after(VISIBILITY);
    assert_eq!(world.read(mine).holder.unwrap().visible_until, Some(until));
    assert_eq!(world.one(extend("me", vec![theirs])), extended(vec![]));
    world.wait(Span(1));
    world.sweep();
    let states = [mine, theirs].map(|id| world.read(id).state);
    assert_eq!(states, [State::Active, State::Available]);
}

fn heartbeat_with_a_list_prolongs_what_nobody_in_particular_holds<H: Harness>(
    world: &mut World<'_, H>,
) {
    let id = world.add_plain();
    world.fetch(None, 1);
    let beat = count(world, "me", 1);
    assert_eq!(world.one(beat), extended(vec![]));
    assert_eq!(world.one(extend("me", vec![id])), extended(vec![id]));
}

fn unconfirmed(jobs: Vec<JobId>, left: Vec<JobId>) -> Reply {
    Reply::Extended(Extended { unconfirmed: left, ..Extended::all(jobs) })
}

fn count_below_what_is_held_prolongs_only_what_an_earlier_beat_agreed_with<H: Harness>(
    world: &mut World<'_, H>,
) {
    let [first, lost] = [(); 2].map(|()| world.add_plain());
    world.fetch(Some("me"), 1);
    world.wait(Span(1));
    let beat = count(world, "me", 1);
    assert_eq!(world.one(beat), extended(vec![first]));
    // The response does not arrive.
    world.fetch(Some("me"), 1);
    world.wait(Span(VISIBILITY.0 - 1));
    let beat = count(world, "me", 1);
    assert_eq!(world.one(beat), unconfirmed(vec![first], vec![lost]));
    world.wait(Span(1));
    world.sweep();
    let states = [first, lost].map(|id| world.read(id).state);
    assert_eq!(states, [State::Active, State::Available]);
    // A count above what is held, as while a report is on its way, agrees with all.
    world.fetch(Some("me"), 1);
    world.wait(Span(1));
    for said in [3, 1] {
        let beat = count(world, "me", said);
        assert_eq!(world.one(beat), extended(vec![first, lost]));
    }
}

/// A heartbeat was sent before the response to a fetch arrived.
fn count_is_compared_with_what_its_sender_may_know<H: Harness>(world: &mut World<'_, H>) {
    let [first, second] = [(); 2].map(|()| world.add_plain());
    world.fetch(Some("me"), 1);
    world.wait(Span(1));
    let beat = count(world, "me", 1);
    world.wait(Span(1));
    world.fetch(Some("me"), 1);
    assert_eq!(world.one(beat), extended(vec![first]));
    world.wait(Span(1));
    let beat = count(world, "me", 2);
    assert_eq!(world.one(beat), extended(vec![first, second]));
}

fn cancelled_attempt_counts_since_its_holder_may_not_know<H: Harness>(world: &mut World<'_, H>) {
    let [cancelled, lost] = [(); 2].map(|()| world.add_plain());
    world.fetch(Some("me"), 2);
    world.cancel(cancelled).unwrap();
    world.wait(Span(1));
    let beat = count(world, "me", 1);
    assert_eq!(world.one(beat), unconfirmed(vec![], vec![lost]));
}

fn unconfirmed_attempt_is_logged_on_request<H: Harness>(world: &mut World<'_, H>) {
    let [first, second] = [(); 2].map(|()| world.add_plain());
    world.fetch(Some("me"), 2);
    world.wait(Span(1));
    let (arrived, report) = (world.now(), vec![second]);
    let holds = Holds::Count(JobCount { jobs: 1, arrived, report });
    let beat = Command::Extend(Extend { worker: "me".into(), holds });
    assert_eq!(world.one(beat), unconfirmed(vec![], vec![first, second]));
    let query = EventQuery {
        names: vec!["job.unconfirmed".into()],
        queues: vec!["default".into()],
        ..EventQuery::all(10)
    };
    let events = world.ask(world.store().events(query)).events;
    let found = events.iter().map(|(_, event)| (event.job, event.epoch.map(|epoch| epoch.0)));
    assert_eq!(found.collect::<Vec<_>>(), [(Some(second), Some(1))]);
    let words = &events[0].1.evidence.text;
    assert!(words.contains("me counts 1, and 2 jobs are held"), "{words}");
}

fn silence_counts_only_as_long_as_it_was_watched<H: Harness>(world: &mut World<'_, H>) {
    let id = world.add_plain();
    world.fetch(None, 1);
    world.wait(Span(VISIBILITY.0 * 2));
    world.one(Command::Sweep(Sweep { limit: 10, watched: Span(VISIBILITY.0 - 1) }));
    assert_eq!(world.read(id).state, State::Active);
    world.one(Command::Sweep(Sweep { limit: 10, watched: VISIBILITY }));
    assert_eq!(world.read(id).state, State::Available);
}

fn attempt_over_its_time_limit_is_timed_out<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    job.timeout = Some(Span(2000));
    let id = world.add(job);
    world.fetch(None, 1);
    world.wait(Span(2000));
    assert_eq!(world.sweep().moved.len(), 1);
    let read = world.read(id);
    assert_eq!((read.state, read.spent.failures), (State::Retryable, 1));
    assert!(read.error.is_some_and(|error| error.contains("timeout")));
    assert_eq!(world.attempts(id)[0].outcome, Some(Outcome::Timeout));
}

fn report_by_a_client_of_another_id_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let id = world.add_plain();
    let claimed = world.fetch(Some("me"), 1).remove(0);
    let fence =
        |name: &str| Fence { worker: Some(Reporter::Plain(name.into())), ..Fence::default() };
    let refused = Err(MoveRefusal::Refused(Refusal::NotHolder { current: claimed.epoch }));
    assert_eq!(world.moved(finish(id, fence("them"), ReportedOutcome::Completed)), refused);
    assert!(world.moved(finish(id, fence("me"), ReportedOutcome::Completed)).is_ok());
}

fn late_ack_after_visibility_passed_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let id = world.add_plain();
    let first = world.fetch(Some("me"), 1).remove(0);
    world.wait(VISIBILITY);
    world.sweep();
    world.fetch(Some("them"), 1);
    let fence = Fence { epoch: Some(first.epoch), ..Fence::default() };
    let late = world.moved(finish(id, fence, ReportedOutcome::Completed));
    assert!(matches!(late, Err(MoveRefusal::Refused(Refusal::Superseded { .. }))), "{late:?}");
    assert_eq!(world.read(id).state, State::Active);
}

fn cancelled_plain_attempt_is_vacated_when_its_visibility_passes<H: Harness>(
    world: &mut World<'_, H>,
) {
    let id = world.add_plain();
    world.fetch(Some("me"), 1);
    world.cancel(id).unwrap();
    assert!(world.read(id).holder.is_some());
    world.wait(VISIBILITY);
    world.sweep();
    assert_eq!(world.read(id).holder, None);
    assert_eq!(world.attempts(id)[0].outcome, Some(Outcome::Cancelled));
}

fn register<H: Harness>(world: &mut World<'_, H>, name: &str) -> WorkerId {
    let mut registration = world.registration();
    registration.plain_id = Some(name.into());
    registration.role = WorkerRole::Ojs;
    let worker = registration.id;
    world.one(Command::Register(Box::new(registration)));
    worker
}

fn give_up<H: Harness>(world: &mut World<'_, H>, worker: WorkerId) -> Vec<Moved> {
    let renewal = world.row(worker).renewal;
    match world.one(lapse(worker, renewal, LapseScope::Everything)) {
        Reply::WorkerMoved(Ok(moved)) => moved.moved,
        other => panic!("not given up: {other:?}"),
    }
}

fn worker_that_beat_and_fell_silent_loses_what_it_holds_however_long_its_visibility<H: Harness>(
    world: &mut World<'_, H>,
) {
    let long = Span(LEASE.0 * 100);
    let add = |world: &mut World<'_, H>| {
        let mut job = world.job();
        job.visibility = Some(long);
        world.add(job)
    };
    let (mine, theirs) = (add(world), add(world));
    let first = register(world, "me");
    assert_eq!((world.fetch(Some("me"), 1).len(), world.fetch(Some("them"), 1).len()), (1, 1));
    world.wait(LEASE);
    // It beats again, as another incarnation: then nothing of it is taken.
    let second = register(world, "me");
    give_up(world, first);
    assert_eq!(world.read(mine).state, State::Active);
    world.wait(LEASE);
    let moved = give_up(world, second);
    assert_eq!(moved.iter().map(|moved| moved.job).collect::<Vec<_>>(), [mine]);
    let job = world.read(mine);
    assert_eq!((job.state, job.spent.failures, job.spent.losses), (State::Available, 1, 1));
    let ended = world.attempts(mine).remove(0);
    assert_eq!(ended.outcome, Some(Outcome::Lost));
    assert!(ended.error.is_some_and(|error| error.contains("worker_death")));
    // Who never beat is judged by its visibility alone.
    assert_eq!(world.read(theirs).state, State::Active);
    world.wait(long);
    world.one(Command::Sweep(Sweep { limit: 10, watched: long }));
    let ended = world.attempts(theirs).remove(0);
    assert!(ended.error.is_some_and(|error| error.contains("visibility_timeout")));
}

fn incarnations_that_are_given_up_in_one_batch_lose_what_they_hold_with_the_last<H: Harness>(
    world: &mut World<'_, H>,
) {
    let jobs = [(); 3].map(|()| world.add_plain());
    let [first, second] = [(); 2].map(|()| register(world, "me"));
    let alive = [(); 2].map(|()| register(world, "you"));
    let other = register(world, "it");
    for name in ["me", "you", "it"] {
        assert_eq!(world.fetch(Some(name), 1).len(), 1);
    }
    world.wait(LEASE);
    let lapses = [first, alive[0], other, second].map(|worker| {
        let renewal = world.row(worker).renewal;
        lapse(worker, renewal, LapseScope::Everything)
    });
    let lost = |reply: Reply| match reply {
        Reply::WorkerMoved(Ok(moved)) => moved.moved.iter().map(|it| it.job).collect(),
        other => panic!("not given up: {other:?}"),
    };
    let lost: Vec<Vec<_>> = world.apply(lapses.into()).replies.into_iter().map(lost).collect();
    assert_eq!(lost, [vec![], vec![], vec![jobs[2]], vec![jobs[0]]]);
    assert_eq!(world.read(jobs[1]).state, State::Active);
}

fn worker_that_says_that_it_ends_is_interrupted_and_its_jobs_come_back_at_once<H: Harness>(
    world: &mut World<'_, H>,
) {
    let jobs = [(); 4].map(|()| world.add_plain());
    let [mine, cancelled, theirs, unnamed] = jobs;
    let first = register(world, "me");
    assert_eq!(world.fetch(Some("me"), 2).len(), 2);
    assert_eq!((world.fetch(Some("them"), 1).len(), world.fetch(None, 1).len()), (1, 1));
    world.cancel(cancelled).unwrap();
    let goodbye = |world: &mut World<'_, H>, worker: WorkerId| {
        let (by, evidence) = ("worker".into(), "said so in its heartbeat".into());
        let event = WorkerEvent::Goodbye;
        let step = WorkerMove { worker, event, ordered: None, session: None, by, evidence };
        match world.one(Command::Worker(step)) {
            Reply::WorkerMoved(Ok(moved)) => moved.moved,
            other => panic!("not gone: {other:?}"),
        }
    };
    // It has come back already, as another incarnation: then nothing of it is taken.
    let second = register(world, "me");
    assert_eq!(goodbye(world, first), []);
    let moved = goodbye(world, second);
    assert_eq!(moved.iter().map(|moved| moved.job).collect::<Vec<_>>(), [mine, cancelled]);
    let job = world.read(mine);
    assert_eq!((job.state, job.spent.failures, job.spent.losses), (State::Available, 0, 0));
    assert_eq!(job.spent.interruptions, 1);
    let ended = world.attempts(mine).remove(0);
    assert_eq!(ended.outcome, Some(Outcome::Interrupted));
    assert_eq!(world.read(cancelled).holder, None);
    assert_eq!([theirs, unnamed].map(|id| world.read(id).state), [State::Active; 2]);
}
