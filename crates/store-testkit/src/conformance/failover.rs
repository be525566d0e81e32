//! What a store lost when a standby took the place of its primary.

use outlast_core::gate::Rate;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{Refusal, State};
use outlast_core::limit::Limit;
use outlast_core::time::Span;
use outlast_store::command::{Adopt, Command, Lost, LostFact, NoteLoss, ReportedOutcome};
use outlast_store::event::{Event, EventName, EventQuery};
use outlast_store::reply::{MoveRefusal, Moved, Reply};
use outlast_store::store::Store as _;
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::limit::per_tenant;
use crate::conformance::world::{Hand, World, failed, finish};

cases![
    job_that_a_worker_holds_is_given_to_no_other,
    adopted_attempt_ends_like_any_other,
    attempt_whose_start_was_lost_counts_as_started,
    job_that_waits_for_a_time_is_adopted,
    only_a_higher_epoch_of_a_worker_with_a_lease_is_adopted,
    limits_count_what_is_adopted,
    each_loss_is_an_event,
];

fn adopt<H: Harness>(
    world: &mut World<'_, H>,
    job: JobId,
    hand: Hand,
    epoch: u64,
) -> Result<Moved, MoveRefusal> {
    let by = "server".to_owned();
    world.moved(Command::Adopt(Adopt { job, epoch: Epoch(epoch), worker: hand.worker, by }))
}

fn events<H: Harness>(world: &World<'_, H>, names: &[&str]) -> Vec<Event> {
    let query = EventQuery {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        ..EventQuery::all(100)
    };
    world.ask(world.store().events(query)).events.into_iter().map(|(_, event)| event).collect()
}

fn job_that_a_worker_holds_is_given_to_no_other<H: Harness>(world: &mut World<'_, H>) {
    let (hand, other) = (world.worker(), world.worker());
    let id = world.add_plain();
    let moved = adopt(world, id, hand, 7).unwrap();
    assert_eq!((moved.from, moved.state), (State::Available, State::Active));
    assert_eq!((moved.epoch, moved.holder), (Epoch(7), Some(hand.worker)));
    assert_eq!(world.claim(other, 10).len(), 0);
    let job = world.read(id);
    assert_eq!((job.state, job.epoch), (State::Active, Epoch(7)));
    let held = world.ask(world.store().in_flight_of(hand.worker));
    assert_eq!((held.len(), held[0].epoch, held[0].started), (1, Epoch(7), true));
    let claimed = events(world, &["job.claimed"]);
    assert_eq!((claimed.len(), claimed[0].worker), (1, Some(hand.worker)));
    assert!(claimed[0].evidence.text.contains("the store lost that it began"), "{claimed:?}");
}

fn adopted_attempt_ends_like_any_other<H: Harness>(world: &mut World<'_, H>) {
    let (hand, other) = (world.worker(), world.worker());
    let id = world.add_plain();
    adopt(world, id, hand, 3).unwrap();
    world.bury(hand.worker);
    let again = world.claim(other, 10).remove(0);
    assert_eq!((again.job.id, again.epoch), (id, Epoch(4)));
    world.start(&again, other).unwrap();
    world.finish(&again, other, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.read(id).state, State::Completed);
}

fn attempt_whose_start_was_lost_counts_as_started<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    world.take(hand);
    let started = |world: &World<'_, H>| -> Vec<bool> {
        world.ask(world.store().in_flight_of(hand.worker)).iter().map(|it| it.started).collect()
    };
    assert_eq!(started(world), [false]);
    adopt(world, id, hand, 1).unwrap();
    assert_eq!(started(world), [true]);
    // Once more changes nothing.
    adopt(world, id, hand, 1).unwrap();
    assert_eq!(events(world, &["job.started"]).len(), 1);
}

/// The store lost that it came due as well.
fn job_that_waits_for_a_time_is_adopted<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    assert_eq!(world.read(id).state, State::Retryable);
    let moved = adopt(world, id, hand, 2).unwrap();
    assert_eq!((moved.from, moved.state), (State::Retryable, State::Active));
    world.wait(Span::from_secs(3600));
    world.sweep();
    let job = world.read(id);
    assert_eq!((job.state, job.epoch), (State::Active, Epoch(2)));
}

fn only_a_higher_epoch_of_a_worker_with_a_lease_is_adopted<H: Harness>(world: &mut World<'_, H>) {
    let (hand, other) = (world.worker(), world.worker());
    let id = world.add_plain();
    let claimed = world.run(hand);
    let superseded = |reported, current| {
        let (reported, current) = (Epoch(reported), Epoch(current));
        Err(MoveRefusal::Refused(Refusal::Superseded { reported, current }))
    };
    assert_eq!(adopt(world, id, other, 1), superseded(1, 1));
    let active = Err(MoveRefusal::Refused(Refusal::WrongState(State::Active)));
    assert_eq!(adopt(world, id, hand, 2), active);
    world.finish(&claimed, hand, ReportedOutcome::Requeued).unwrap();
    assert_eq!(adopt(world, id, hand, 1), superseded(1, 1));
    let stranger = Hand { worker: WorkerId(Uuid::nil()), ..hand };
    let no_holder = Err(MoveRefusal::Refused(Refusal::NotHolder { current: Epoch(1) }));
    assert_eq!(adopt(world, id, stranger, 2), no_holder);
    world.bury(hand.worker);
    assert_eq!(adopt(world, id, hand, 2), no_holder);
    assert_eq!(adopt(world, JobId(Uuid::nil()), hand, 2), Err(MoveRefusal::NotFound));
    assert_eq!(world.read(id).state, State::Available);
}

/// It runs, though the limit be full: no other job of the tenant starts until both have ended.
fn limits_count_what_is_adopted<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let rate = Rate::new(2, Span::from_secs(3600));
    world.limit(Limit { rate: Some(rate.unwrap()), ..per_tenant(1) });
    let jobs = [(); 3].map(|()| world.of_tenant("a"));
    let first = world.grab(hand, 1).jobs.remove(0);
    assert_eq!(first.job.id, jobs[0]);
    adopt(world, jobs[1], hand, 5).unwrap();
    world.check_gates();
    assert_eq!(world.in_flight("tenant"), 2);
    world.finish(&first, hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.grab_ids(hand, 1), []);
    let fence = hand.fence(Epoch(5));
    world.moved(finish(jobs[1], fence, ReportedOutcome::Completed)).unwrap();
    assert_eq!(world.in_flight("tenant"), 0);
    // Its start has used the rate.
    assert_eq!(world.grab_ids(hand, 1), []);
    world.wait(Span::from_secs(3600));
    assert_eq!(world.grab_ids(hand, 1), [jobs[2]]);
    // One whose gate no job has passed before.
    let other = world.of_tenant("b");
    adopt(world, other, hand, 2).unwrap();
    world.check_gates();
    assert_eq!(world.in_flight("tenant"), 2);
}

fn each_loss_is_an_event<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let gone = JobId(Uuid::nil());
    let epoch = Epoch(2);
    let lost = [
        LostFact::Job,
        LostFact::Claim { epoch, worker: Some(hand.worker) },
        LostFact::Result { epoch, worker: Some(hand.worker) },
    ];
    let lost = lost.map(|what| Lost { job: gone, what }).to_vec();
    let note = NoteLoss { summary: "three facts".into(), lost, by: "server".into() };
    assert_eq!(world.one(Command::NoteLoss(note.clone())), Reply::Done);
    let told = events(world, &["store.*"]);
    let kinds: Vec<EventName> = told.iter().map(|event| event.kind).collect();
    let expected = [
        EventName::StoreFailedOver,
        EventName::StoreJobLost,
        EventName::StoreClaimLost,
        EventName::StoreResultLost,
    ];
    assert_eq!(kinds, expected);
    assert_eq!(told[0].evidence.text, "three facts");
    assert_eq!((told[0].job, told[1].job), (None, Some(gone)));
    assert_eq!((told[2].epoch, told[2].worker), (Some(epoch), Some(hand.worker)));
    world.one(Command::NoteLoss(NoteLoss { summary: String::new(), ..note }));
    assert_eq!(events(world, &["store.failed_over"]).len(), 1);
}
