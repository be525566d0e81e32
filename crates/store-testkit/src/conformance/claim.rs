//! Taking jobs.

use outlast_core::id::WorkerId;
use outlast_core::job::State;
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Standing, WorkerEvent};
use outlast_store::command::{
    ClaimFrom, Claimant, ClassId, Command, QueueOrder, ReportedOutcome, Route,
};
use outlast_store::reply::ClaimRefusal;
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::{Hand, VISIBILITY, World};

cases![
    best_priority_goes_first_then_oldest,
    classes_are_claimed_together_in_one_order,
    interrupted_job_goes_before_its_equals_but_not_before_better_ones,
    two_claimants_never_get_the_same_job,
    epoch_rises_with_every_claim,
    only_a_live_running_worker_with_its_present_session_claims,
    paused_queue_gives_nothing_until_it_is_resumed,
    expired_job_is_passed_over,
    plain_fetch_takes_queues_in_the_order_given,
    plain_fetch_never_takes_an_action,
    plain_fetch_is_limited_to_its_tenant,
    plain_fetch_by_a_quiet_worker_is_refused,
    plain_fetch_is_judged_by_the_incarnation_that_lives,
    checkpoint_is_given_to_the_next_attempt,
    claim_of_a_class_that_is_not_known_takes_nothing,
];

fn best_priority_goes_first_then_oldest<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let ids = [0, 100, -100, 0, 100].map(|priority| {
        let mut job = world.job();
        job.priority = priority;
        world.add(job)
    });
    let taken: Vec<_> = world.claim(hand, 10).iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(taken, [ids[1], ids[4], ids[0], ids[3], ids[2]]);
}

fn classes_are_claimed_together_in_one_order<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let ids: Vec<_> = (0..6)
        .map(|n| {
            let mut job = world.job();
            job.class.job_type = format!("type-{}", n % 3);
            world.add(job)
        })
        .collect();
    let taken: Vec<_> = world.claim(hand, 4).iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(taken, ids[..4]);
    assert_eq!(world.claim(hand, 4).len(), 2);
}

fn interrupted_job_goes_before_its_equals_but_not_before_better_ones<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let first = world.add_plain();
    let claimed = world.run(hand);
    let equal = world.add_plain();
    let mut better = world.job();
    better.priority = 1;
    let better = world.add(better);
    world.finish(&claimed, hand, ReportedOutcome::Interrupted).unwrap();
    let taken: Vec<_> = world.claim(hand, 10).iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(taken, [better, first, equal]);
}

fn two_claimants_never_get_the_same_job<H: Harness>(world: &mut World<'_, H>) {
    let (one, other) = (world.worker(), world.worker());
    for _ in 0..7 {
        world.add_plain();
    }
    let mut taken = world.claim(one, 4);
    taken.extend(world.fetch(Some("plain"), 2));
    taken.extend(world.claim(other, 4));
    let mut ids: Vec<_> = taken.iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(ids.len(), 7);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 7);
}

fn epoch_rises_with_every_claim<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    for epoch in 1..5 {
        let claimed = world.take(hand);
        assert_eq!(claimed.epoch.0, epoch);
        world.finish(&claimed, hand, ReportedOutcome::NotStarted).unwrap();
    }
    assert_eq!(world.read(id).attempt, 0);
    assert_eq!(world.attempts(id).len(), 4);
}

fn only_a_live_running_worker_with_its_present_session_claims<H: Harness>(
    world: &mut World<'_, H>,
) {
    world.add_plain();
    let unknown = Hand { worker: WorkerId(Uuid::from_u128(1)), session: 1 };
    assert_eq!(world.try_claim(unknown, 1), Err(ClaimRefusal::UnknownWorker));
    let old = world.worker();
    let hand = Hand { session: world.attach(old.worker), ..old };
    let stale = ClaimRefusal::StaleSession { current: hand.session };
    assert_eq!(world.try_claim(old, 1), Err(stale));
    for event in [WorkerEvent::Quiet, WorkerEvent::Drop, WorkerEvent::Drain] {
        world.move_worker(hand.worker, event).unwrap();
        let refused = world.try_claim(hand, 1);
        assert!(matches!(refused, Err(ClaimRefusal::NotActive(_))), "{event:?}: {refused:?}");
    }
    let fresh = world.worker();
    assert_eq!(world.row(fresh.worker).standing, Standing::NEW);
    assert_eq!(world.claim(fresh, 1).len(), 1);
}

fn paused_queue_gives_nothing_until_it_is_resumed<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.add_plain();
    let queue =
        |paused| Command::Queue(QueueOrder { queue: "default".into(), paused, by: "test".into() });
    world.one(queue(true));
    assert_eq!(world.claim(hand, 1).len(), 0);
    assert_eq!(world.fetch(None, 1).len(), 0);
    world.one(queue(false));
    assert_eq!(world.claim(hand, 1).len(), 1);
}

fn expired_job_is_passed_over<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules.expires_at = Some(world.now().after(Span(10)));
    job.priority = 9;
    let expired = world.add(job);
    let good = world.add_plain();
    world.wait(Span(10));
    let taken: Vec<_> = world.claim(hand, 1).iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(taken, [good]);
    assert_eq!(world.read(expired).state, State::Available);
    world.sweep();
    assert_eq!(world.read(expired).state, State::Discarded);
}

fn plain_fetch_takes_queues_in_the_order_given<H: Harness>(world: &mut World<'_, H>) {
    let low = world.add_plain();
    let mut job = world.job();
    job.class.queue = "urgent".into();
    job.priority = -50;
    let urgent = world.add(job);
    let queues = vec!["urgent".into(), "unknown".into(), "default".into()];
    let claimant = Claimant::Plain { worker: None, visibility: VISIBILITY };
    let from = ClaimFrom::Queues { queues, tenant: None };
    let taken = world.claim_by(claimant, from, 5).unwrap();
    let taken: Vec<_> = taken.iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(taken, [urgent, low]);
}

fn plain_fetch_never_takes_an_action<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    let labels = [("zone".to_owned(), "a".to_owned())].into();
    job.class.route = Route::Action { runtime: "shell".into(), labels, proof: true };
    let id = world.add(job.clone());
    assert_eq!(world.fetch(Some("plain"), 5).len(), 0);
    assert_eq!(*world.read(id).job.key, job.class);
    let hand = world.worker();
    assert_eq!(world.take(hand).job.id, id);
}

fn plain_fetch_is_limited_to_its_tenant<H: Harness>(world: &mut World<'_, H>) {
    let ids = [Some("acme"), Some("other"), None].map(|tenant| {
        let mut job = world.job();
        job.class.tenant = tenant.map(str::to_owned);
        world.add(job)
    });
    let fetch = |tenant: Option<&str>| {
        let from =
            ClaimFrom::Queues { queues: vec!["default".into()], tenant: tenant.map(str::to_owned) };
        (Claimant::Plain { worker: None, visibility: VISIBILITY }, from)
    };
    let (claimant, from) = fetch(Some("acme"));
    let taken = world.claim_by(claimant, from, 5).unwrap();
    assert_eq!(taken.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), ids[..1]);
    let (claimant, from) = fetch(None);
    assert_eq!(world.claim_by(claimant, from, 5).unwrap().len(), 2);
}

fn refused<H: Harness>(world: &mut World<'_, H>, worker: &str) -> bool {
    let from = ClaimFrom::Queues { queues: vec!["default".into()], tenant: None };
    let claimant = Claimant::Plain { worker: Some(worker.into()), visibility: VISIBILITY };
    matches!(world.claim_by(claimant, from, 1), Err(ClaimRefusal::NotActive(_)))
}

/// Refused, not empty: a server would wake it for jobs that others could take.
fn plain_fetch_by_a_quiet_worker_is_refused<H: Harness>(world: &mut World<'_, H>) {
    world.add_plain();
    let mut registration = world.registration();
    registration.plain_id = Some("plain".into());
    let worker = registration.id;
    world.one(Command::Register(Box::new(registration)));
    world.move_worker(worker, WorkerEvent::Quiet).unwrap();
    assert!(refused(world, "plain"));
    world.move_worker(worker, WorkerEvent::Resume).unwrap();
    assert_eq!(world.fetch(Some("plain"), 1).len(), 1);
}

/// Another server, which had not heard of a worker, once registered it a second time.
fn plain_fetch_is_judged_by_the_incarnation_that_lives<H: Harness>(world: &mut World<'_, H>) {
    let jobs = [world.add_plain(), world.add_plain()];
    let mut register = || {
        let mut registration = world.registration();
        registration.plain_id = Some("plain".into());
        let worker = registration.id;
        world.one(Command::Register(Box::new(registration)));
        worker
    };
    let older = register();
    let newer = register();
    world.move_worker(newer, WorkerEvent::Goodbye).unwrap();
    assert_eq!(world.fetch(Some("plain"), 1).len(), 1);
    world.move_worker(older, WorkerEvent::Quiet).unwrap();
    assert!(refused(world, "plain"));
    world.move_worker(older, WorkerEvent::Goodbye).unwrap();
    assert!(refused(world, "plain"), "{jobs:?}");
}

fn checkpoint_is_given_to_the_next_attempt<H: Harness>(world: &mut World<'_, H>) {
    use outlast_store::command::Progress;
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    assert_eq!(claimed.checkpoint, None);
    let (fence, checkpoint) = (hand.fence(claimed.epoch), Some(vec![1, 2, 3]));
    let progress = Progress { job: id, fence, checkpoint };
    world.moved(Command::Progress(Box::new(progress))).unwrap();
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    let next = world.worker();
    assert_eq!(world.take(next).checkpoint, Some(vec![1, 2, 3]));
}

fn claim_of_a_class_that_is_not_known_takes_nothing<H: Harness>(world: &mut World<'_, H>) {
    world.add_plain();
    let hand = world.worker();
    let claimant = Claimant::Native { worker: hand.worker, session: hand.session };
    let from = ClaimFrom::Classes([ClassId(99)].into());
    assert_eq!(world.claim_by(claimant, from, 1), Ok(Vec::new()));
}
