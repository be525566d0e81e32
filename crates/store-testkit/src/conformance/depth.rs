//! Bounded queues: which requests are refused, and what never is.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::queue::{Change, Depth, QueueChange};
use outlast_core::retry::OnExhaustion;
use outlast_core::time::Span;
use outlast_store::command::{Command, First, JobAction, NewJob, ReportedOutcome, SetQueue};
use outlast_store::idempotency::{EnqueueOnce, EnqueueOnceRefusal, EnqueuedOnce};
use outlast_store::reply::{EnqueueRefusal, Enqueued, Reply};
use outlast_store::store::Store as _;
use outlast_store::tally::Counts;
use outlast_store::unique::{OnConflict, States, Unique};

use crate::conformance::Harness;
use crate::conformance::queue::fair_by;
use crate::conformance::world::{World, failed, order, rules};

cases![
    queue_takes_jobs_up_to_its_bound,
    other_queues_take_any_number,
    jobs_that_wait_count_and_others_do_not,
    jobs_that_come_back_are_never_refused,
    request_is_stored_whole_or_not_at_all,
    requests_of_one_batch_are_refused_one_by_one,
    what_the_batch_itself_does_counts,
    queue_that_is_over_its_bound_loses_nothing,
    bound_counts_jobs_that_were_there_before,
    bound_that_is_removed_refuses_nothing,
    bound_of_the_same_batch_counts,
    job_that_replaces_a_waiting_one_needs_no_room,
    job_that_replaces_one_of_another_queue_needs_room,
    job_that_is_ignored_needs_no_room,
    repeated_request_is_answered_though_the_queue_is_full,
    known_id_is_told_before_a_full_queue,
    isolated_jobs_count_too,
    bounds_survive_a_crash_and_not_a_reset,
];

const QUEUE: &str = "default";

/// Bounds a queue.
fn to(max: u32) -> QueueChange {
    QueueChange { max_depth: Change::Set(max), ..QueueChange::default() }
}

fn bound<H: Harness>(world: &mut World<'_, H>, max: u32) {
    world.set_queue(QUEUE, to(max)).unwrap();
}

fn full(jobs: u64, max: u32, more: u64) -> EnqueueRefusal {
    EnqueueRefusal::QueueFull { queue: QUEUE.into(), depth: Depth { jobs, max }, more }
}

fn store<H: Harness>(world: &mut World<'_, H>, job: &NewJob) -> Result<Enqueued, EnqueueRefusal> {
    match world.one(Command::Enqueue(Box::new(job.clone()))) {
        Reply::Enqueued(stored) => stored,
        other => panic!("not an enqueue's reply: {other:?}"),
    }
}

/// Tries to store one more job of the queue, which is not stored.
fn is_refused<H: Harness>(world: &mut World<'_, H>) -> EnqueueRefusal {
    let job = world.job();
    let refused = store(world, &job).expect_err("the queue is full");
    assert_eq!(world.find(job.id), None);
    refused
}

fn in_queue<H: Harness>(world: &mut World<'_, H>, queue: &str) -> NewJob {
    let mut job = world.job();
    job.class.queue = queue.into();
    job
}

/// How many jobs there are, by the counts.
fn count<H: Harness>(world: &World<'_, H>) -> u64 {
    let mut all = Counts::default();
    for class in world.ask(world.store().tally()) {
        all.add(&class.counts);
    }
    all.states(&State::ALL)
}

fn queue_takes_jobs_up_to_its_bound<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 2);
    world.add_plain();
    let last = world.add_plain();
    assert_eq!(is_refused(world), full(2, 2, 1));
    assert_eq!(
        is_refused(world).to_string(),
        "queue default is full: 2 jobs wait in it, at most 2 may"
    );
    assert_eq!(count(world), 2, "nothing of a refused request is counted");
    world.cancel(last).unwrap();
    world.add_plain();
    assert_eq!(is_refused(world), full(2, 2, 1));
}

fn other_queues_take_any_number<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    world.set_queue("b", fair_by("tenant", &[])).unwrap();
    world.add_plain();
    for queue in ["a", "b", "a", "b"] {
        let job = in_queue(world, queue);
        world.add(job);
    }
    assert_eq!(is_refused(world), full(1, 1, 1));
}

fn jobs_that_wait_count_and_others_do_not<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for reported in [ReportedOutcome::Completed, failed()] {
        world.add_plain();
        let claimed = world.run(hand);
        world.finish(&claimed, hand, reported).unwrap();
    }
    let cancelled = world.add_plain();
    world.cancel(cancelled).unwrap();
    world.add_plain();
    world.run(hand);
    let mut later = world.job();
    later.first = First::At(world.now().after(Span(60_000)));
    world.add(later);
    let pending = NewJob { first: First::OnActivation, ..world.job() };
    world.add(pending);
    world.add_plain();
    // One each that is retryable, scheduled, pending and available.
    bound(world, 4);
    assert_eq!(is_refused(world), full(4, 4, 1));
    bound(world, 5);
    world.add_plain();
    assert_eq!(is_refused(world), full(5, 5, 1));
}

fn jobs_that_come_back_are_never_refused<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    let hand = world.worker();
    let first = world.add_plain();
    let claimed = world.run(hand);
    world.add_plain();
    world.finish(&claimed, hand, failed()).unwrap();
    assert_eq!(is_refused(world), full(2, 1, 1));
    world.wait(Span::from_secs(600));
    world.sweep();
    assert_eq!(world.read(first).state, State::Available);
    assert_eq!(world.claim(hand, 10).len(), 2);
    world.add_plain();
    // The worker dies, and its jobs wait again.
    world.bury(hand.worker);
    assert_eq!(is_refused(world), full(3, 1, 1));
    let hand = world.worker();
    let letter = world.claim(hand, 10).remove(0);
    let letter_rules = {
        let mut rules = rules(1);
        rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
        rules
    };
    world.finish(&letter, hand, ReportedOutcome::Completed).unwrap();
    let mut buried = in_queue(world, QUEUE);
    buried.rules = letter_rules;
    let buried = world.add(buried);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    world.add_plain();
    world.replay(buried).unwrap();
    assert_eq!(is_refused(world), full(2, 1, 1));
}

fn all<H: Harness>(
    world: &mut World<'_, H>,
    queues: &[&str],
) -> Result<Vec<JobId>, (usize, EnqueueRefusal)> {
    let jobs: Vec<NewJob> = queues.iter().map(|queue| in_queue(world, queue)).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    match world.one(Command::EnqueueAll(jobs)) {
        Reply::EnqueuedAll(Ok(_)) => Ok(ids),
        Reply::EnqueuedAll(Err(refused)) => {
            assert!(ids.iter().all(|id| world.find(*id).is_none()), "none is stored");
            Err(refused)
        }
        other => panic!("not an enqueue's reply: {other:?}"),
    }
}

fn request_is_stored_whole_or_not_at_all<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 3);
    world.add_plain();
    let refused = all(world, &["a", QUEUE, "b", QUEUE, QUEUE]).unwrap_err();
    assert_eq!(refused, (1, full(1, 3, 3)));
    let said = "queue default has no room for 3 more jobs: 1 waits in it, at most 3 may";
    assert_eq!(refused.1.to_string(), said);
    assert_eq!(count(world), 1);
    all(world, &["a", QUEUE, "b", QUEUE]).unwrap();
    assert_eq!(all(world, &["a", QUEUE]).unwrap_err(), (1, full(3, 3, 1)));
    all(world, &["a", "b"]).unwrap();
    // Another queue of the request is full.
    world.set_queue("b", to(2)).unwrap();
    let refused = all(world, &["a", "b"]).unwrap_err();
    let depth = Depth { jobs: 2, max: 2 };
    assert_eq!(refused, (1, EnqueueRefusal::QueueFull { queue: "b".into(), depth, more: 1 }));
}

fn requests_of_one_batch_are_refused_one_by_one<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 3);
    let jobs: Vec<NewJob> = (0..6).map(|_| world.job()).collect();
    let [a, b, c, d, e, f] = <[NewJob; 6]>::try_from(jobs).unwrap();
    let other = in_queue(world, "other");
    let replies = world
        .apply(vec![
            Command::Enqueue(Box::new(a)),
            Command::EnqueueAll(vec![b, c.clone(), d]),
            Command::Enqueue(Box::new(other)),
            Command::Enqueue(Box::new(c)),
            Command::Enqueue(Box::new(e)),
            Command::Enqueue(Box::new(f)),
        ])
        .replies;
    assert!(matches!(replies[0], Reply::Enqueued(Ok(_))));
    assert_eq!(replies[1], Reply::EnqueuedAll(Err((0, full(1, 3, 3)))));
    for reply in &replies[2..5] {
        assert!(matches!(reply, Reply::Enqueued(Ok(_))), "{reply:?}");
    }
    assert_eq!(replies[5], Reply::Enqueued(Err(full(3, 3, 1))));
    assert_eq!(count(world), 4);
}

fn what_the_batch_itself_does_counts<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    let waiting = world.add_plain();
    let (first, second) = (world.job(), world.job());
    let replies = world
        .apply(vec![
            Command::Order(order(JobAction::Cancel, waiting)),
            Command::Enqueue(Box::new(first)),
            Command::Enqueue(Box::new(second)),
        ])
        .replies;
    assert!(matches!(replies[1], Reply::Enqueued(Ok(_))), "{replies:?}");
    assert_eq!(replies[2], Reply::Enqueued(Err(full(1, 1, 1))));
}

fn queue_that_is_over_its_bound_loses_nothing<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let ids: Vec<JobId> = (0..4).map(|_| world.add_plain()).collect();
    bound(world, 2);
    assert_eq!(is_refused(world), full(4, 2, 1));
    for left in [3, 2] {
        world.claim(hand, 1);
        assert_eq!(is_refused(world), full(left, 2, 1));
    }
    world.claim(hand, 1);
    world.add_plain();
    assert_eq!(is_refused(world), full(2, 2, 1));
    assert!(ids.iter().all(|id| world.find(*id).is_some()));
}

fn bound_counts_jobs_that_were_there_before<H: Harness>(world: &mut World<'_, H>) {
    world.add_plain();
    let mut keyed = in_queue(world, QUEUE);
    keyed.class.tenant = Some("acme".into());
    keyed.class.job_type = "other".into();
    world.add(keyed);
    bound(world, 3);
    world.add_plain();
    assert_eq!(is_refused(world), full(3, 3, 1));
}

fn bound_that_is_removed_refuses_nothing<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    world.add_plain();
    is_refused(world);
    let unset = QueueChange { max_depth: Change::Unset, ..QueueChange::default() };
    world.set_queue(QUEUE, unset).unwrap();
    world.add_plain();
    world.add_plain();
    bound(world, 4);
    world.add_plain();
    assert_eq!(is_refused(world), full(4, 4, 1));
}

fn bound_of_the_same_batch_counts<H: Harness>(world: &mut World<'_, H>) {
    let set = |max| {
        let (queue, by) = (QUEUE.to_owned(), "operator".to_owned());
        Command::SetQueue(Box::new(SetQueue { queue, change: to(max), by }))
    };
    let jobs: Vec<NewJob> = (0..4).map(|_| world.job()).collect();
    let [a, b, c, d] = <[NewJob; 4]>::try_from(jobs).unwrap();
    let replies = world
        .apply(vec![
            Command::Enqueue(Box::new(a)),
            set(1),
            Command::Enqueue(Box::new(b)),
            set(2),
            Command::Enqueue(Box::new(c)),
            Command::Enqueue(Box::new(d)),
        ])
        .replies;
    assert_eq!(replies[2], Reply::Enqueued(Err(full(1, 1, 1))));
    assert!(matches!(replies[4], Reply::Enqueued(Ok(_))), "{replies:?}");
    assert_eq!(replies[5], Reply::Enqueued(Err(full(2, 2, 1))));
    assert_eq!(is_refused(world), full(2, 2, 1));
}

fn unique<H: Harness>(world: &mut World<'_, H>, on_conflict: OnConflict) -> NewJob {
    let unique = Unique { fingerprint: [7; 32], states: States::LIVE, period: None, on_conflict };
    NewJob { unique: Some(unique), ..world.job() }
}

fn job_that_replaces_a_waiting_one_needs_no_room<H: Harness>(world: &mut World<'_, H>) {
    let old = unique(world, OnConflict::Reject);
    let old = world.add(old);
    world.add_plain();
    bound(world, 1);
    // Even over the bound: as many wait as before.
    let new = unique(world, OnConflict::Replace);
    store(world, &new).unwrap();
    assert_eq!(world.read(old).state, State::Cancelled);
    assert_eq!(is_refused(world), full(2, 1, 1));
    let (other, more) = (unique(world, OnConflict::Replace), world.job());
    let reply = world.one(Command::EnqueueAll(vec![other.clone(), more]));
    assert_eq!(reply, Reply::EnqueuedAll(Err((0, full(2, 1, 1)))));
    assert_eq!(world.read(new.id).state, State::Available, "it is not replaced");
    // A running one did not wait.
    let hand = world.worker();
    world.claim(hand, 10);
    world.add_plain();
    assert_eq!(store(world, &other), Err(full(1, 1, 1)));
    assert_eq!(world.read(new.id).state, State::Active);
}

fn job_that_replaces_one_of_another_queue_needs_room<H: Harness>(world: &mut World<'_, H>) {
    let mut old = unique(world, OnConflict::Reject);
    old.class.queue = "other".into();
    let old = world.add(old);
    world.add_plain();
    bound(world, 1);
    let new = unique(world, OnConflict::Replace);
    assert_eq!(store(world, &new), Err(full(1, 1, 1)));
    assert_eq!(world.read(old).state, State::Available);
    bound(world, 2);
    store(world, &new).unwrap();
    assert_eq!(world.read(old).state, State::Cancelled);
}

fn job_that_is_ignored_needs_no_room<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    let old = unique(world, OnConflict::Reject);
    let old = world.add(old);
    let again = unique(world, OnConflict::Ignore);
    assert_eq!(store(world, &again).map(|stored| stored.id), Ok(old));
    let again = unique(world, OnConflict::Reject);
    let refused = EnqueueRefusal::NotUnique { holder: old, state: State::Available };
    assert_eq!(store(world, &again), Err(refused));
    world.cancel(old).unwrap();
    world.add_plain();
    assert_eq!(store(world, &again), Err(full(1, 1, 1)));
}

fn repeated_request_is_answered_though_the_queue_is_full<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    let first = world.job();
    let once = |key: u8, job: &NewJob| {
        let (key, request, jobs) = ([key; 32], [1; 32], vec![job.clone()]);
        Command::EnqueueOnce(Box::new(EnqueueOnce { key, request, keep: Span(1000), jobs }))
    };
    world.one(once(1, &first));
    let before = Reply::EnqueuedOnce(Ok(EnqueuedOnce::Before(vec![first.id])));
    let again = world.job();
    assert_eq!(world.one(once(1, &again)), before);
    let refused = EnqueueOnceRefusal::Job(0, full(1, 1, 1));
    assert_eq!(world.one(once(2, &again)), Reply::EnqueuedOnce(Err(refused)));
    // A refused request leaves no key.
    world.cancel(first.id).unwrap();
    let stored = world.one(once(2, &again));
    assert!(matches!(stored, Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(_)))), "{stored:?}");
}

fn known_id_is_told_before_a_full_queue<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    let job = world.job();
    world.add(job.clone());
    assert_eq!(store(world, &job), Err(EnqueueRefusal::DuplicateId(job.id)));
    let jobs = vec![world.job(), job.clone()];
    let all = world.one(Command::EnqueueAll(jobs));
    assert_eq!(all, Reply::EnqueuedAll(Err((1, EnqueueRefusal::DuplicateId(job.id)))));
    // Of a job that has ended, too.
    world.cancel(job.id).unwrap();
    world.add_plain();
    assert_eq!(store(world, &job), Err(EnqueueRefusal::DuplicateId(job.id)));
    // And if the queue is bounded by the same batch.
    let other = in_queue(world, "other");
    world.add(other.clone());
    let mut again = in_queue(world, "other");
    again.id = other.id;
    let (more, by) = (in_queue(world, "other"), "operator".to_owned());
    let order = SetQueue { queue: "other".into(), change: to(1), by };
    let commands = vec![Command::SetQueue(Box::new(order)), Command::EnqueueAll(vec![more, again])];
    let refused = Reply::EnqueuedAll(Err((1, EnqueueRefusal::DuplicateId(other.id))));
    assert_eq!(world.apply(commands).replies[1], refused);
}

fn isolated_jobs_count_too<H: Harness>(world: &mut World<'_, H>) {
    let id = world.add_plain();
    for _ in 0..2 {
        let hand = world.worker();
        world.run(hand);
        world.bury(hand.worker);
    }
    assert_eq!(world.read(id).state, State::Available);
    bound(world, 1);
    assert_eq!(is_refused(world), full(1, 1, 1));
}

fn bounds_survive_a_crash_and_not_a_reset<H: Harness>(world: &mut World<'_, H>) {
    bound(world, 1);
    world.add_plain();
    world.crash();
    assert_eq!(is_refused(world), full(1, 1, 1));
    world.one(Command::Reset);
    world.add_plain();
    world.add_plain();
}
