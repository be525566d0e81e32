//! Keys: what a job is limited, shared and found by.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::keys::Keys;
use outlast_core::retry::OnExhaustion;
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{Command, First, JobAction, NewJob, ReportedOutcome};
use outlast_store::query::{JobQuery, Page};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::{World, failed, order, rules};

cases![
    keys_are_read_back_wherever_the_job_is,
    keys_are_read_back_of_jobs_for_later_and_of_a_bulk,
    keys_stay_through_a_replay_and_a_restart,
    keyed_and_other_jobs_of_a_type_are_claimed_in_one_order,
    keyed_jobs_are_a_class_of_their_own_and_so_is_its_twin,
    class_of_keyed_jobs_is_forgotten_with_its_last_job,
];

fn keys(of: &[(&str, &str)]) -> Keys {
    let keys = of.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    Keys::new(keys.collect()).unwrap()
}

/// A job with keys that are hard to write down.
fn keyed<H: Harness>(world: &mut World<'_, H>) -> NewJob {
    let keys = keys(&[("tenant", "4\"2\n\u{1}é"), ("account", ""), ("a.b-c_d", "\\")]);
    NewJob { keys, ..world.job() }
}

fn check<H: Harness>(world: &World<'_, H>, id: JobId, keys: &Keys, state: State) {
    let job = world.read(id);
    assert_eq!((&job.job.keys, job.state), (keys, state));
    assert!(job.job.key.keyed);
}

fn keys_are_read_back_wherever_the_job_is<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = keyed(world);
    job.rules = rules(2);
    let wanted = job.keys.clone();
    let id = world.add(job);
    check(world, id, &wanted, State::Available);
    let claimed = world.run(hand);
    assert_eq!(claimed.job.keys, wanted);
    check(world, id, &wanted, State::Active);
    world.finish(&claimed, hand, failed()).unwrap();
    check(world, id, &wanted, State::Retryable);
    world.wait(Span::from_secs(60));
    world.sweep();
    check(world, id, &wanted, State::Available);
    let claimed = world.run(hand);
    assert_eq!(claimed.job.keys, wanted);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    check(world, id, &wanted, State::Completed);
}

fn keys_are_read_back_of_jobs_for_later_and_of_a_bulk<H: Harness>(world: &mut World<'_, H>) {
    let later = world.now().after(Span(100));
    let firsts = [First::Now, First::At(later), First::OnActivation];
    let mut jobs: Vec<NewJob> =
        firsts.into_iter().map(|first| NewJob { first, ..keyed(world) }).collect();
    jobs.push(world.job());
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let wanted = jobs.first().unwrap().keys.clone();
    world.one(Command::EnqueueAll(jobs));
    check(world, ids[1], &wanted, State::Scheduled);
    check(world, ids[2], &wanted, State::Pending);
    world.moved(Command::Order(order(JobAction::Activate, ids[2]))).unwrap();
    world.moved(Command::Order(order(JobAction::RunNow, ids[1]))).unwrap();
    for id in &ids[..3] {
        check(world, *id, &wanted, State::Available);
    }
    let plain = world.read(ids[3]);
    assert!(plain.job.keys.is_empty() && !plain.job.key.keyed);
    let query = JobQuery {
        states: vec![State::Available],
        queue: Some("default".into()),
        ..JobQuery::all(Page { limit: 10, cursor: None })
    };
    let page = world.ask(world.store().jobs(query));
    let listed: Vec<_> = page.jobs.iter().map(|job| (job.job.id, &job.job.keys)).collect();
    let none = Keys::default();
    assert_eq!(listed, [(ids[3], &none), (ids[2], &wanted), (ids[1], &wanted), (ids[0], &wanted)]);
}

fn keys_stay_through_a_replay_and_a_restart<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = keyed(world);
    job.rules = rules(1);
    job.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    let wanted = job.keys.clone();
    let id = world.add(job);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    check(world, id, &wanted, State::Discarded);
    world.crash();
    world.replay(id).unwrap();
    check(world, id, &wanted, State::Available);
    world.crash();
    let hand = world.worker();
    assert_eq!(world.take(hand).job.keys, wanted);
}

fn keyed_and_other_jobs_of_a_type_are_claimed_in_one_order<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let ids: Vec<JobId> = (0..6)
        .map(|n| {
            let keys = if n % 2 == 0 { keys(&[("tenant", "1")]) } else { Keys::default() };
            let job = NewJob { keys, ..world.job() };
            world.add(job)
        })
        .collect();
    let claimed = world.claim(hand, 3);
    let fetched = world.fetch(None, 10);
    let taken = claimed.iter().chain(&fetched);
    assert_eq!(taken.map(|claimed| claimed.job.id).collect::<Vec<_>>(), ids);
}

fn keyed_jobs_are_a_class_of_their_own_and_so_is_its_twin<H: Harness>(world: &mut World<'_, H>) {
    let plain = world.add_plain();
    let job = keyed(world);
    // What the producer says of its class does not matter.
    let mut other = world.job();
    other.class.keyed = true;
    let (wanted, id, other) = (job.keys.clone(), world.add(job), world.add(other));
    let class = |id| world.read(id).job.class;
    assert_eq!(class(plain), class(other));
    assert_ne!(class(plain), class(id));
    for job in [plain, other] {
        world.cancel(job).unwrap();
    }
    for _ in 0..2 {
        let hand = world.worker();
        world.run(hand);
        world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    }
    assert!(world.read(id).isolated);
    check(world, id, &wanted, State::Available);
    let ready = world.ask(world.store().backlog());
    let twin = ready.iter().find(|class| class.ready).unwrap();
    assert!(twin.key.isolated && twin.key.keyed);
    let hand = world.worker();
    let claimed = world.take(hand);
    assert!(claimed.isolated);
    assert_eq!((claimed.job.id, &claimed.job.keys), (id, &wanted));
}

fn class_of_keyed_jobs_is_forgotten_with_its_last_job<H: Harness>(world: &mut World<'_, H>) {
    world.add_plain();
    let job = keyed(world);
    let id = world.add(job);
    // The class with the highest number stays.
    let mut last = world.job();
    last.class.queue = "other".into();
    world.add(last);
    world.cancel(id).unwrap();
    world.wait(Span::from_secs(60));
    // The first deletes the job, the second its class.
    for _ in 0..2 {
        let now = world.now();
        world.prune(now);
    }
    let classes = world.ask(world.store().tally());
    assert!(classes.iter().all(|class| !class.key.keyed) && classes.len() == 2);
}
