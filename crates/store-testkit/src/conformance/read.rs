//! Reads: lists, pages, counts, the event log.

use outlast_core::id::JobId;
use outlast_core::job::{Overlap, State};
use outlast_core::keys::Keys;
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    ClassId, Command, EndDetail, Finish, First, LapseScope, NewJob, QueueOrder, ReportedOutcome,
};
use outlast_store::error::StoreError;
use outlast_store::event::{Event, EventName, EventQuery};
use outlast_store::query::{JobQuery, OldestClaimable, Page, StatusFilter, WorkerQuery};
use outlast_store::store::{GONE_SHOWN, Store as _};
use outlast_store::tally::Second;

use crate::conformance::Harness;
use crate::conformance::world::{World, failed, rules};

cases![
    jobs_are_listed_newest_first_page_by_page,
    every_filter_of_a_list_narrows_it,
    jobs_are_found_by_their_keys_and_by_what_went_wrong,
    job_that_a_worker_tried_twice_is_in_its_list_once,
    bounds_of_two_filters_do_not_add_up,
    queues_count_their_jobs_by_state,
    oldest_job_of_a_queue_is_told_to_the_second_however_it_became_claimable,
    backlog_says_which_classes_are_claimable,
    the_oldest_claimable_job_of_each_class_is_found_whatever_its_priority,
    workers_are_listed_latest_first,
    workers_come_in_pages_and_by_what_they_are,
    every_transition_is_told_with_who_and_why,
    event_cursor_continues_where_it_stopped,
    events_are_filtered_by_name_queue_and_job,
    completed_event_carries_how_long_the_attempt_ran,
    fleet_lists_who_lives_or_holds_and_the_few_that_went_last,
];

fn any() -> JobQuery {
    JobQuery::all(Page { limit: 10, cursor: None })
}

fn jobs_are_listed_newest_first_page_by_page<H: Harness>(world: &mut World<'_, H>) {
    let mut ids: Vec<_> = (0..7).map(|_| world.add_plain()).collect();
    ids.reverse();
    let mut listed = Vec::new();
    let mut query = any();
    query.page.limit = 3;
    loop {
        let page = world.ask(world.store().jobs(query.clone()));
        assert_eq!(page.total, Some(7));
        assert!(page.jobs.len() <= 3);
        listed.extend(page.jobs.iter().map(|job| job.job.id));
        // A job that comes between two pages does not disturb them.
        if listed.len() == 3 {
            let newer = world.add_plain();
            world.cancel(newer).unwrap();
            query.states = vec![State::Available];
        }
        let Some(next) = page.next else { break };
        query.page.cursor = Some(next);
    }
    assert_eq!(listed, ids);
}

fn every_filter_of_a_list_narrows_it<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut timed_out = world.job();
    timed_out.class.job_type = "slow".into();
    let timed_out = world.add(timed_out);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::TimedOut).unwrap();
    let mut once = world.job();
    once.rules = rules(1);
    let abandoned = world.add(once);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Lost).unwrap();
    let handed_over = world.add_plain();
    world.take(hand);
    let mut other = world.job();
    other.class.queue = "other".into();
    other.class.tenant = Some("acme".into());
    let other = world.add(other);
    let all = [other, handed_over, abandoned, timed_out];
    let made = world.read(timed_out).job.created;
    let narrowed = [
        (JobQuery { states: vec![State::Active], ..any() }, vec![handed_over]),
        (
            JobQuery { states: vec![State::Discarded, State::Available], ..any() },
            vec![other, abandoned],
        ),
        (JobQuery { queue: Some("other".into()), ..any() }, vec![other]),
        (JobQuery { job_type: Some("slow".into()), ..any() }, vec![timed_out]),
        (JobQuery { worker: Some(hand.worker), ..any() }, all[1..].to_vec()),
        (JobQuery { abandoned: Some(true), ..any() }, vec![abandoned]),
        (JobQuery { timed_out: Some(true), ..any() }, vec![timed_out]),
        (JobQuery { started: Some(true), ..any() }, vec![]),
        (
            JobQuery { started: Some(false), states: vec![State::Active], ..any() },
            vec![handed_over],
        ),
        (JobQuery { tenant: Some("acme".into()), ..any() }, vec![other]),
        (JobQuery { abandoned: Some(false), timed_out: Some(false), ..any() }, all[..2].to_vec()),
        (JobQuery { ids: Some((other, other)), ..any() }, vec![other]),
        (JobQuery { created_from: Some(made), ..any() }, all.to_vec()),
        (JobQuery { created_before: Some(made), ..any() }, vec![]),
        (any(), all.to_vec()),
        (
            JobQuery {
                states: vec![State::Active, State::Discarded],
                statuses: vec![
                    StatusFilter {
                        states: vec![State::Active],
                        started: Some(false),
                        ..StatusFilter::default()
                    },
                    StatusFilter {
                        states: vec![State::Discarded],
                        abandoned: Some(true),
                        ..StatusFilter::default()
                    },
                ],
                ..any()
            },
            vec![handed_over, abandoned],
        ),
        (JobQuery { id_suffix: Some(ending(other)), ..any() }, vec![other]),
        (JobQuery { id_suffix: Some("0bad".into()), ..any() }, vec![]),
    ];
    for (query, expected) in narrowed {
        let page = world.ask(world.store().jobs(query.clone()));
        let found: Vec<_> = page.jobs.iter().map(|job| job.job.id).collect();
        assert_eq!(found, expected, "{query:?}");
        assert_eq!(page.total, Some(u64::try_from(expected.len()).unwrap()), "{query:?}");
    }
}

fn ending(job: JobId) -> String {
    job.0.simple().to_string().split_off(12)
}

fn jobs_are_found_by_their_keys_and_by_what_went_wrong<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let keyed = |world: &mut World<'_, H>, pairs: &[(&str, &str)]| {
        let mut job = world.job();
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        job.keys = Keys::new(pairs.collect()).expect("keys");
        world.add(job)
    };
    let mine = keyed(world, &[("tenant", "4\"2"), ("zone", "a")]);
    let claimed = world.run(hand);
    let error = r#"{"type":"exit_code","message":"Größe of \"x\": No space left on device"}"#;
    let detail = EndDetail { error: Some(error.into()), ..EndDetail::default() };
    let fence = hand.fence(claimed.epoch);
    let report = Finish { job: mine, fence, reported: failed(), detail, by: "w".into() };
    world.moved(Command::Finish(Box::new(report))).expect("it may end");
    let other = keyed(world, &[("tenant", "42"), ("note", "\"tenant\":\"4\\\"2\"")]);
    let done = world.add_plain();
    let found = |query: &JobQuery| -> Vec<JobId> {
        let page = world.ask(world.store().jobs(query.clone()));
        page.jobs.iter().map(|job| job.job.id).collect()
    };
    let keys = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        found(&JobQuery { keys: pairs.collect(), ..any() })
    };
    assert_eq!(keys(&[("tenant", "4\"2")]), [mine]);
    assert_eq!(keys(&[("tenant", "42")]), [other]);
    assert_eq!(keys(&[("tenant", "4\"2"), ("zone", "a")]), [mine]);
    assert_eq!(keys(&[("tenant", "4\"2"), ("zone", "b")]), []);
    assert_eq!(keys(&[("zone", "")]), []);
    let failed = |text: &str| found(&JobQuery { error: Some(text.into()), ..any() });
    for text in ["no space LEFT", "größe", "of \"x\": no", "exit_code", "ö"] {
        assert_eq!(failed(text), [mine], "{text}");
    }
    // What is around the texts of an error is none of it.
    for text in ["message", "exit_code\",\"m", "disk"] {
        assert_eq!(failed(text), [], "{text}");
    }
    let both = |zone: &str| {
        let keys = [("zone".to_owned(), zone.to_owned())].into();
        found(&JobQuery { error: Some("space".into()), keys, ..any() })
    };
    assert_eq!((both("a"), both("b")), (vec![mine], vec![]));
    assert_eq!(found(&any()), [done, other, mine]);
}

/// Once, its attempts filled the page, and older jobs were never listed.
fn job_that_a_worker_tried_twice_is_in_its_list_once<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let older = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    let newer = world.add_plain();
    for _ in 0..2 {
        let claimed = world.run(hand);
        world.finish(&claimed, hand, ReportedOutcome::Interrupted).unwrap();
    }
    let mut query = JobQuery { worker: Some(hand.worker), ..any() };
    query.page.limit = 1;
    let first = world.ask(world.store().jobs(query.clone()));
    assert_eq!((first.jobs[0].job.id, first.total), (newer, Some(2)));
    query.page.cursor = first.next;
    let second = world.ask(world.store().jobs(query));
    assert_eq!((second.jobs[0].job.id, second.next), (older, None));
}

/// Once, jobs that run were taken off the dead letters.
fn bounds_of_two_filters_do_not_add_up<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules = rules(1);
    let id = world.add(job);
    world.run(hand);
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    assert_eq!(world.read(id).state, State::Discarded);
    world.add_plain();
    let hand = world.worker();
    world.run(hand);
    let query = JobQuery { abandoned: Some(true), started: Some(false), ..any() };
    let listed = world.ask(world.store().jobs(query)).jobs;
    assert_eq!(listed.iter().map(|job| job.job.id).collect::<Vec<_>>(), [id]);
}

fn queues_count_their_jobs_by_state<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for reported in [ReportedOutcome::Completed, failed()] {
        world.add_plain();
        let claimed = world.run(hand);
        world.finish(&claimed, hand, reported).unwrap();
    }
    world.add_plain();
    world.take(hand);
    let cancelled = world.add_plain();
    world.take(hand);
    world.cancel(cancelled).unwrap();
    let (mut later, mut pending) = (world.job(), world.job());
    later.first = First::At(world.now().after(Span(9)));
    pending.first = First::OnActivation;
    world.add(later);
    world.add(pending);
    world.wait(Span(5));
    let oldest = world.now();
    world.add_plain();
    let order = QueueOrder { queue: "idle".into(), paused: true, by: "test".into() };
    world.one(Command::Queue(order));
    let queues = world.ask(world.store().queues());
    assert_eq!(queues.len(), 2);
    let queue = &queues[0];
    assert_eq!((&*queue.name, queue.paused), ("default", false));
    let waiting = [queue.scheduled, queue.available, queue.pending, queue.retryable];
    assert_eq!(waiting, [1, 1, 1, 1]);
    assert_eq!([queue.active, queue.completed, queue.cancelled, queue.discarded], [1, 1, 1, 0]);
    assert_eq!(queue.oldest_available, Some(Second::of(oldest).start()));
    assert_eq!((&*queues[1].name, queues[1].paused), ("idle", true));
}

fn oldest_job_of_a_queue_is_told_to_the_second_however_it_became_claimable<H: Harness>(
    world: &mut World<'_, H>,
) {
    let oldest = |world: &World<'_, H>| {
        let one = world.ask(world.store().queue("default".into())).unwrap();
        let all = world.ask(world.store().queues());
        let oldest = one.oldest_available;
        assert_eq!(all, [one]);
        oldest
    };
    let second = |at| Some(Second::of(at).start());
    let (hand, first_at) = (world.worker(), world.now());
    let first = world.add_plain();
    world.wait(Span(300));
    let mut other = world.job();
    other.class.job_type = "other".into();
    other.priority = 9;
    world.add(other);
    world.wait(Span(1_700));
    let later = world.now();
    let third = world.add_plain();
    assert_eq!(oldest(world), second(first_at));

    // Both that came first leave, in the ways in which a job may.
    world.cancel(first).unwrap();
    let claimed = world.claim(hand, 1).remove(0);
    world.start(&claimed, hand).unwrap();
    assert_ne!(claimed.job.id, third, "the other one has the higher priority");
    assert_eq!(oldest(world), second(later));
    world.run(hand);
    assert_eq!(oldest(world), None);

    // One comes back: it waits from then on.
    world.wait(Span(5_000));
    world.finish(&claimed, hand, ReportedOutcome::Interrupted).unwrap();
    assert_eq!(oldest(world), second(world.now()));
}

fn the_oldest_claimable_job_of_each_class_is_found_whatever_its_priority<H: Harness>(
    world: &mut World<'_, H>,
) {
    let first = world.add_plain();
    let since = world.now();
    let class = world.read(first).job.class;
    for priority in [5, 0, -5] {
        world.wait(Span(7));
        let job = NewJob { priority, ..world.job() };
        world.add(job);
    }
    let ask = |world: &mut World<'_, H>, classes: &[ClassId]| {
        world.ask(world.store().oldest_claimable(classes.to_vec()))
    };
    let oldest = OldestClaimable { class, job: first, since };
    assert_eq!(ask(world, &[class, ClassId(i64::MAX)]), [oldest]);
    assert_eq!(ask(world, &[]), []);
    let hand = world.worker();
    world.claim(hand, 4);
    assert_eq!(ask(world, &[class]), []);
}

fn backlog_says_which_classes_are_claimable<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.add_plain();
    let mut other = world.job();
    other.class.job_type = "other".into();
    other.first = First::OnActivation;
    world.add(other);
    let ready = |world: &World<'_, H>| {
        let classes = world.ask(world.store().backlog());
        classes.iter().map(|class| class.ready).collect::<Vec<_>>()
    };
    assert_eq!(ready(world), [true, false]);
    let twin = {
        let mut job = world.job();
        job.class.job_type = "third".into();
        job
    };
    world.add(twin);
    world.add_plain();
    world.add_plain();
    let counted = |world: &World<'_, H>, max| {
        let classes = world.ask(world.store().claimable(max));
        classes.into_iter().map(|class| (class.key.job_type, class.count)).collect::<Vec<_>>()
    };
    let first = world.job().class.job_type;
    assert_eq!(counted(world, 10), [(first.clone(), 3), ("third".into(), 1)]);
    assert_eq!(counted(world, 2), [(first, 2), ("third".into(), 1)]);
    assert_eq!(world.claim(hand, 10).len(), 4);
    assert_eq!(ready(world), [false, false, false]);
    assert_eq!(counted(world, 10), []);
}

fn workers_are_listed_latest_first<H: Harness>(world: &mut World<'_, H>) {
    let first = world.worker();
    world.wait(Span(10));
    let second = world.worker();
    let listed: Vec<_> = world.ask(world.store().workers()).iter().map(|row| row.id).collect();
    assert_eq!(listed, [second.worker, first.worker]);
}

fn workers_come_in_pages_and_by_what_they_are<H: Harness>(world: &mut World<'_, H>) {
    let hands = [world.worker(), world.worker(), world.worker()];
    let page = |world: &World<'_, H>, query| world.ask(world.store().workers_page(query));
    let mut query = WorkerQuery::all(2);
    let first = page(world, query.clone());
    assert_eq!((first.workers.len(), first.total), (2, 3));
    query.page.cursor = first.next;
    let second = page(world, query);
    assert_eq!((second.workers.len(), second.total, second.next), (1, 3, None));
    let all = world.ask(world.store().workers());
    assert_eq!([first.workers, second.workers].concat(), all);
    world.bury(hands[0].worker);
    let of = |status: &str| WorkerQuery { status: Some(status.into()), ..WorkerQuery::all(9) };
    let gone = page(world, of("inactive"));
    assert_eq!((gone.total, gone.workers[0].id), (1, hands[0].worker));
    assert_eq!(page(world, of("active")).total, 2);
    let named = |name: &str| WorkerQuery { name: Some(name.into()), ..WorkerQuery::all(9) };
    let name = gone.workers[0].name.clone();
    let state = Some(gone.workers[0].standing.state().to_owned());
    let role = Some(gone.workers[0].role.as_str().to_owned());
    assert!(page(world, named(&name)).workers.contains(&gone.workers[0]));
    assert_eq!(page(world, named("none")).total, 0);
    assert_eq!(page(world, WorkerQuery { state, role, ..named(&name) }).total, 1);
    let mut registration = world.registration();
    registration.plain_id = Some("me".into());
    let plain = registration.id;
    world.one(Command::Register(Box::new(registration)));
    let called = page(world, WorkerQuery { called: Some("me".into()), ..WorkerQuery::all(9) });
    assert_eq!(called.workers.iter().map(|it| it.id).collect::<Vec<_>>(), [plain]);
    let by_id = WorkerQuery { ids: Some((plain, plain)), ..WorkerQuery::all(9) };
    let by_id = page(world, by_id);
    assert_eq!((by_id.total, by_id.workers[0].id), (1, plain));
    let mut query = WorkerQuery::all(2);
    query.page.cursor = Some("nothing".into());
    let refused = world.refusal(|store| async move { store.workers_page(query).await.map(drop) });
    assert!(matches!(refused, Some(StoreError::Rejected(_))));
}

fn all_events() -> EventQuery {
    EventQuery::all(1000)
}

fn events<H: Harness>(world: &World<'_, H>, query: EventQuery) -> Vec<Event> {
    let page = world.ask(world.store().events(query));
    page.events.into_iter().map(|(_, event)| event).collect()
}

fn every_transition_is_told_with_who_and_why<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    world.wait(Span(1000));
    world.sweep();
    world.run(hand);
    world.bury(hand.worker);
    world.cancel(id).unwrap();
    let logged = events(world, EventQuery { job: Some(id), ..all_events() });
    let names: Vec<_> = logged.iter().map(|event| event.kind).collect();
    assert_eq!(
        names,
        [
            EventName::JobEnqueued,
            EventName::JobClaimed,
            EventName::JobStarted,
            EventName::JobFailed,
            EventName::JobRetrying,
            EventName::JobAvailable,
            EventName::JobClaimed,
            EventName::JobStarted,
            EventName::JobLost,
            EventName::JobCancelled,
        ]
    );
    let lost = &logged[8];
    assert_eq!((&*lost.by, &*lost.evidence), ("test", "silent"));
    assert_eq!(lost.evidence.word(), Some("frozen"));
    assert_eq!((lost.worker, lost.epoch.unwrap().0), (Some(hand.worker), 2));
    let about_worker = events(world, EventQuery { names: vec!["worker.*".into()], ..all_events() });
    let names: Vec<_> = about_worker.iter().map(|event| event.kind).collect();
    assert_eq!(
        names,
        [EventName::WorkerRegistered, EventName::WorkerAttached, EventName::WorkerLapsed]
    );
}

fn event_cursor_continues_where_it_stopped<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for _ in 0..3 {
        world.add_plain();
    }
    world.claim(hand, 3);
    let all = events(world, all_events());
    let mut paged = Vec::new();
    let mut query = EventQuery { limit: 2, ..all_events() };
    loop {
        let page = world.ask(world.store().events(query.clone()));
        if page.events.is_empty() {
            assert_eq!(Some(page.next), query.after);
            break;
        }
        let last = page.events.last().map(|(cursor, _)| cursor.clone());
        assert_eq!(last.as_ref(), Some(&page.next));
        paged.extend(page.events.into_iter().map(|(_, event)| event));
        query.after = last;
    }
    assert_eq!(paged, all);
    let id = world.add_plain();
    let new = events(world, EventQuery { after: query.after, ..all_events() });
    assert_eq!(new.iter().map(|event| event.job).collect::<Vec<_>>(), [Some(id)]);
    let end = world.ask(world.store().events_end());
    let after_end = || EventQuery { after: Some(end.clone()), ..all_events() };
    assert_eq!(events(world, after_end()), []);
    world.add_plain();
    assert_eq!(events(world, after_end()).len(), 1);
}

fn events_are_filtered_by_name_queue_and_job<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let mut other = world.job();
    other.class.queue = "other".into();
    world.add(other);
    world.claim(hand, 2);
    let count = |world: &World<'_, H>, query| events(world, query).len();
    let named = |name: &str| EventQuery { names: vec![name.into()], ..all_events() };
    assert_eq!(count(world, named("job.claimed")), 2);
    assert_eq!(count(world, named("job.*")), 4);
    assert_eq!(count(world, EventQuery { job: Some(id), ..all_events() }), 2);
    assert_eq!(count(world, EventQuery { queues: vec!["other".into()], ..all_events() }), 2);
    // What was looked at and did not match is not looked at again.
    let by = EventQuery { worker: Some(hand.worker), ..all_events() };
    assert_eq!(count(world, by), 4, "registered, attached, and two claims");
    let none = world.ask(world.store().events(named("queue.paused")));
    assert_eq!(none.events.len(), 0);
    assert_eq!(count(world, EventQuery { after: Some(none.next), ..all_events() }), 0);
}

fn completed_event_carries_how_long_the_attempt_ran<H: Harness>(world: &mut World<'_, H>) {
    use outlast_store::command::{EndDetail, Finish};
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.take(hand);
    world.wait(Span(30));
    let started = Some(world.now());
    world.wait(Span(12));
    let detail = EndDetail { started, ..EndDetail::default() };
    let fence = hand.fence(claimed.epoch);
    let report =
        Finish { job: id, fence, reported: ReportedOutcome::Completed, detail, by: "w".into() };
    world.moved(Command::Finish(Box::new(report))).unwrap();
    let query = EventQuery { names: vec!["job.completed".into()], ..all_events() };
    assert_eq!(events(world, query)[0].duration, Some(Span(12)));
}

/// Dead workers of a week were once read each second.
fn fleet_lists_who_lives_or_holds_and_the_few_that_went_last<H: Harness>(world: &mut World<'_, H>) {
    let holding = world.worker();
    let mut job = world.job();
    job.rules.overlap = Overlap::Forbidden;
    world.add(job);
    world.run(holding);
    let suspect = world.worker();
    for hand in [holding, suspect] {
        world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
    }
    world.lapse(holding.worker, LapseScope::OverlapAllowed).unwrap();
    let gone: Vec<_> = (0..GONE_SHOWN + 3)
        .map(|_| {
            let hand = world.worker();
            world.wait(Span(1));
            world.move_worker(hand.worker, WorkerEvent::Goodbye).unwrap();
            hand.worker
        })
        .collect();
    let live = world.worker();
    let mut listed: Vec<_> = world.ask(world.store().fleet());
    listed.sort_by_key(|one| one.id);
    let mut expected = vec![holding.worker, suspect.worker, live.worker];
    expected.extend(gone.iter().skip(3));
    expected.sort();
    assert_eq!(listed.iter().map(|one| one.id).collect::<Vec<_>>(), expected);
    for one in &listed {
        let row = world.row(one.id);
        assert_eq!((one.standing, one.renewal, one.lease), (row.standing, row.renewal, row.lease));
        assert_eq!((one.last_heartbeat, one.updated), (row.last_heartbeat, row.updated));
        assert_eq!(one.lapsed_holding, one.id == holding.worker, "{one:?}");
    }
    let named = world.ask(world.store().workers_named(vec![gone[0], holding.worker]));
    assert_eq!(named.len(), 2);
    assert!(named.iter().all(|row| *row == world.row(row.id)), "{named:?}");
}
