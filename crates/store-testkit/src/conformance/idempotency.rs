//! Enqueueing once for a key.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::Span;
use outlast_store::command::{Command, NewJob, ReportedOutcome};
use outlast_store::idempotency::{EnqueueOnce, EnqueueOnceRefusal, EnqueuedOnce};
use outlast_store::reply::{EnqueueRefusal, Reply};

use crate::conformance::Harness;
use crate::conformance::world::World;

const KEPT: Span = Span(1000);

cases![
    request_with_a_key_is_stored_once,
    key_with_another_request_is_refused,
    refused_request_leaves_no_key,
    same_key_twice_in_one_batch_stores_one_job,
    key_is_free_again_when_it_expires,
    key_survives_a_crash,
    jobs_of_a_key_are_kept_as_long_as_the_key,
    reset_drops_keys,
];

fn once(key: u8, request: u8, jobs: Vec<NewJob>) -> Command {
    let (key, request) = ([key; 32], [request; 32]);
    Command::EnqueueOnce(Box::new(EnqueueOnce { key, request, keep: KEPT, jobs }))
}

fn request<H: Harness>(
    world: &mut World<'_, H>,
    command: Command,
) -> Result<EnqueuedOnce, EnqueueOnceRefusal> {
    match world.one(command) {
        Reply::EnqueuedOnce(outcome) => outcome,
        other => panic!("not a keyed enqueue's reply: {other:?}"),
    }
}

/// Asks with a new job and returns the jobs that the key stands for, and whether they are new.
fn send<H: Harness>(world: &mut World<'_, H>, key: u8) -> (Vec<JobId>, bool) {
    let job = world.job();
    match request(world, once(key, 1, vec![job])).expect("the key is free or was used for this") {
        EnqueuedOnce::Stored(stored) => (stored.iter().map(|stored| stored.id).collect(), true),
        EnqueuedOnce::Before(jobs) => (jobs, false),
    }
}

fn request_with_a_key_is_stored_once<H: Harness>(world: &mut World<'_, H>) {
    let jobs = vec![world.job(), world.job(), world.job()];
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let Ok(EnqueuedOnce::Stored(stored)) = request(world, once(1, 1, jobs)) else {
        panic!("a new key stores its jobs");
    };
    assert_eq!(stored.iter().map(|stored| stored.id).collect::<Vec<_>>(), ids);
    world.add_plain();
    let again = world.job();
    let unused = again.id;
    assert_eq!(request(world, once(1, 1, vec![again])), Ok(EnqueuedOnce::Before(ids)));
    assert_eq!(world.find(unused), None);
    assert!(send(world, 2).1, "another key is another request");
}

fn key_with_another_request_is_refused<H: Harness>(world: &mut World<'_, H>) {
    send(world, 1);
    let job = world.job();
    let id = job.id;
    assert_eq!(request(world, once(1, 2, vec![job])), Err(EnqueueOnceRefusal::OtherRequest));
    assert_eq!(world.find(id), None);
}

fn refused_request_leaves_no_key<H: Harness>(world: &mut World<'_, H>) {
    let known = world.add_plain();
    let (before, mut job) = (world.job(), world.job());
    let id = before.id;
    job.id = known;
    let refused = request(world, once(1, 2, vec![before, job]));
    assert_eq!(refused, Err(EnqueueOnceRefusal::Job(1, EnqueueRefusal::DuplicateId(known))));
    assert_eq!(world.find(id), None);
    assert!(send(world, 1).1);
}

fn same_key_twice_in_one_batch_stores_one_job<H: Harness>(world: &mut World<'_, H>) {
    let (one, two) = (world.job(), world.job());
    let (first, second) = (one.id, two.id);
    let replies = world.apply(vec![once(1, 1, vec![one]), once(1, 1, vec![two])]).replies;
    assert!(matches!(&replies[0], Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(_)))), "{replies:?}");
    assert_eq!(replies[1], Reply::EnqueuedOnce(Ok(EnqueuedOnce::Before(vec![first]))));
    assert_eq!((world.read(first).state, world.find(second)), (State::Available, None));
}

fn key_is_free_again_when_it_expires<H: Harness>(world: &mut World<'_, H>) {
    let (first, _) = send(world, 1);
    world.wait(Span(KEPT.0 - 1));
    assert_eq!(send(world, 1), (first.clone(), false));
    world.wait(Span(1));
    let (second, new) = send(world, 1);
    assert!(new && second != first);
    assert_eq!(send(world, 1), (second, false));
}

fn key_survives_a_crash<H: Harness>(world: &mut World<'_, H>) {
    let (first, _) = send(world, 1);
    world.crash();
    assert_eq!(send(world, 1), (first, false));
}

fn jobs_of_a_key_are_kept_as_long_as_the_key<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let (keyed, _) = send(world, 1);
    let free = world.add_plain();
    for claimed in world.claim(hand, 2) {
        world.finish(&claimed, hand, ReportedOutcome::Completed).expect("the holder may finish");
    }
    world.wait(Span(KEPT.0 / 2));
    prune(world);
    assert_eq!(world.find(free), None, "what no key stands for goes");
    assert_eq!(send(world, 1), (keyed.clone(), false));
    assert_eq!(world.read(keyed[0]).state, State::Completed);
    world.wait(KEPT);
    prune(world);
    assert_eq!(world.find(keyed[0]), None);
    assert!(send(world, 1).1);
}

fn prune<H: Harness>(world: &mut World<'_, H>) {
    let now = world.now();
    world.prune(now);
}

fn reset_drops_keys<H: Harness>(world: &mut World<'_, H>) {
    send(world, 1);
    world.one(Command::Reset);
    assert!(send(world, 1).1);
}
