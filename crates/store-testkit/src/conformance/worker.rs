//! Workers: leases, sessions, and what moves when one is given up.

use std::num::NonZeroU32;

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, Outcome, Overlap, Refusal, State};
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Liveness, Standing, WorkerEvent, WorkerRefusal};
use outlast_store::command::{
    AskedByQueues, Attach, Claim, ClaimFrom, Command, ForgetWorker, LapseScope, Renew,
    ReportedOutcome, WorkerMove,
};
use outlast_store::event::EventQuery;
use outlast_store::record::CancelledAttempt;
use outlast_store::reply::{MoveRefusal, NotFound, RenewRefusal, Reply, WorkerMoveRefusal};
use outlast_store::store::Store as _;
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::{Hand, LEASE, World, failed, lapse, rules};

cases![
    registration_is_safe_to_repeat_and_refreshes,
    lapsed_worker_must_register_as_another,
    every_attachment_has_a_higher_session,
    renewal_prolongs_the_lease_and_is_numbered,
    beat_restores_a_suspect,
    drop_seen_by_an_old_session_says_nothing,
    quiet_and_drain_move_nothing,
    drain_goes_forward_only,
    goodbye_gives_back_what_is_held_at_once,
    proof_of_death_charges_a_loss_only_where_the_attempt_had_started,
    lapse_needs_the_renewal_that_was_watched,
    lapse_of_everything_needs_the_store_s_clock_past_the_lease,
    lapse_after_the_reconnect_window_keeps_what_must_not_overlap,
    proof_of_death_after_a_lapse_frees_what_must_not_overlap,
    lapse_after_the_reconnect_window_needs_a_suspect,
    second_loss_isolates_and_third_while_alone_is_a_poison_suspect,
    job_that_runs_alone_is_left_to_others_by_a_claim_that_avoids_it,
    neighbours_and_mass_losses_are_never_blamed,
    cancelled_attempts_are_vacated_with_their_worker,
    cancelled_neighbour_does_not_keep_a_job_from_being_alone,
    late_report_of_a_lapsed_worker_is_refused,
    only_a_dead_worker_that_holds_nothing_is_forgotten,
    held_attempts_are_listed_with_their_epochs,
    cancelled_attempts_of_several_workers_are_listed_at_once,
    attachment_that_its_worker_left_changes_nothing,
];

/// A hello that came late on a stream its worker had left once handed back running work.
fn attachment_that_its_worker_left_changes_nothing<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.attach(hand.worker);
    let before = world.row(hand.worker);
    world.wait(Span(500));
    let late = Attach { worker: hand.worker, attachment: 1, lease: LEASE };
    let refused = RenewRefusal::Abandoned { said: 1, current: 2 };
    assert_eq!(world.one(Command::Attach(late)), Reply::Attached(Err(refused)));
    assert_eq!(world.row(hand.worker), before);
}

fn registration_is_safe_to_repeat_and_refreshes<H: Harness>(world: &mut World<'_, H>) {
    let mut registration = world.registration();
    let worker = registration.id;
    let register = |registration| Command::Register(Box::new(registration));
    let first = world.one(register(registration.clone()));
    assert_eq!(first, Reply::Registered(Ok(Standing::NEW)));
    let created = world.now();
    assert_eq!((world.row(worker).renewal, world.row(worker).session), (1, 0));
    world.move_worker(worker, WorkerEvent::Drain).unwrap();
    world.wait(Span(500));
    registration.concurrency = 77;
    registration.labels.insert("zone".into(), "a".into());
    let again = world.one(register(registration.clone()));
    let Reply::Registered(Ok(standing)) = again else { panic!("{again:?}") };
    assert_eq!(standing.state(), "draining");
    let row = world.row(worker);
    assert_eq!((row.concurrency, &row.labels), (77, &registration.labels));
    assert_eq!((row.created, row.lease_until), (created, world.now().after(LEASE)));
}

fn lapsed_worker_must_register_as_another<H: Harness>(world: &mut World<'_, H>) {
    let registration = world.registration();
    let worker = registration.id;
    world.one(Command::Register(Box::new(registration.clone())));
    world.bury(worker);
    let refused = Reply::Registered(Err(WorkerRefusal::Lapsed));
    assert_eq!(world.one(Command::Register(Box::new(registration))), refused);
}

fn every_attachment_has_a_higher_session<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let renewal = world.row(hand.worker).renewal;
    let sessions = [(); 3].map(|()| world.attach(hand.worker));
    assert_eq!(sessions, [1, 2, 3].map(|n| hand.session + n));
    assert_eq!(world.row(hand.worker).renewal, renewal + 3);
}

fn renewal_prolongs_the_lease_and_is_numbered<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.add_plain();
    world.run(hand);
    let before = world.row(hand.worker);
    world.wait(Span(5000));
    let renew = Renew { worker: hand.worker, lease: LEASE, in_flight: 1 };
    let Reply::Renewed(Ok(renewed)) = world.one(Command::Renew(renew)) else {
        panic!("a live worker renews");
    };
    assert_eq!((renewed.renewal, renewed.in_flight), (before.renewal + 1, 1));
    let row = world.row(hand.worker);
    assert_eq!((row.renewal, row.lease_until), (renewed.renewal, world.now().after(LEASE)));
    assert_eq!((row.last_heartbeat, row.updated), (world.now(), before.updated));
    let unknown = world.registration().id;
    let renew = Renew { worker: unknown, lease: LEASE, in_flight: 0 };
    let refused = Reply::Renewed(Err(RenewRefusal::UnknownWorker));
    assert_eq!(world.one(Command::Renew(renew)), refused);
}

fn beat_restores_a_suspect<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
    assert_eq!(world.row(hand.worker).standing.liveness, Liveness::Suspect);
    let renew = Renew { worker: hand.worker, lease: LEASE, in_flight: 0 };
    world.one(Command::Renew(renew));
    assert!(world.row(hand.worker).standing.is_active());
}

fn drop_seen_by_an_old_session_says_nothing<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let current = world.attach(hand.worker);
    let drop = |session| {
        let (by, evidence) = ("test".to_owned(), "dropped".into());
        let session = Some(session);
        Command::Worker(WorkerMove {
            worker: hand.worker,
            event: WorkerEvent::Drop,
            ordered: None,
            session,
            by,
            evidence,
        })
    };
    let stale = WorkerMoveRefusal::StaleSession { current };
    assert_eq!(world.one(drop(hand.session)), Reply::WorkerMoved(Err(stale)));
    assert!(world.row(hand.worker).standing.is_active());
    assert!(matches!(world.one(drop(current)), Reply::WorkerMoved(Ok(_))));
    assert_eq!(world.row(hand.worker).standing.liveness, Liveness::Suspect);
}

fn quiet_and_drain_move_nothing<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    for event in [WorkerEvent::Quiet, WorkerEvent::Drain, WorkerEvent::Drop] {
        let moved = world.move_worker(hand.worker, event).unwrap();
        assert_eq!((moved.moved.len(), moved.kept), (0, 1), "{event:?}");
    }
    assert_eq!(world.read(id).state, State::Active);
    assert!(world.finish(&claimed, hand, ReportedOutcome::Completed).is_ok());
}

fn drain_goes_forward_only<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.move_worker(hand.worker, WorkerEvent::Drain).unwrap();
    let refused = Err(WorkerMoveRefusal::Refused(WorkerRefusal::Draining));
    assert_eq!(world.move_worker(hand.worker, WorkerEvent::Resume), refused);
}

fn goodbye_gives_back_what_is_held_at_once<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let ids = [world.add_plain(), world.add_plain()];
    assert_eq!(world.claim(hand, 2).len(), 2);
    let said = world.move_worker(hand.worker, WorkerEvent::Goodbye).unwrap();
    let moved: Vec<_> = said.moved.iter().map(|moved| moved.job).collect();
    assert_eq!((moved, said.kept), (ids.to_vec(), 0));
    for id in ids {
        assert_eq!(world.read(id).state, State::Available);
        assert_eq!(world.attempts(id)[0].outcome, Some(Outcome::Undelivered));
    }
    assert_eq!(world.row(hand.worker).standing.state(), "stopped");
}

fn proof_of_death_charges_a_loss_only_where_the_attempt_had_started<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let started = world.add_plain();
    world.run(hand);
    let waiting = world.add_plain();
    world.take(hand);
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    assert_eq!(world.read(started).spent.losses, 1);
    assert_eq!(world.read(waiting).spent.losses, 0);
    assert!(world.read(started).error.is_some_and(|error| error.contains("because")));
    assert_eq!(world.read(waiting).error, None);
}

fn lapse_needs_the_renewal_that_was_watched<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    world.run(hand);
    world.wait(LEASE);
    let watched = world.row(hand.worker).renewal;
    world.attach(hand.worker);
    world.wait(LEASE);
    let reply = world.one(lapse(hand.worker, watched, LapseScope::Everything));
    assert_eq!(reply, Reply::WorkerMoved(Err(WorkerMoveRefusal::Renewed)));
    assert_eq!(world.read(id).state, State::Active);
}

fn lapse_of_everything_needs_the_store_s_clock_past_the_lease<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    world.wait(Span(LEASE.0 - 1));
    let refused = Err(WorkerMoveRefusal::Renewed);
    assert_eq!(world.lapse(hand.worker, LapseScope::Everything), refused);
    world.wait(Span(1));
    assert!(world.lapse(hand.worker, LapseScope::Everything).is_ok());
    assert_eq!(world.row(hand.worker).standing.state(), "lapsed");
    let again = world.lapse(hand.worker, LapseScope::Everything);
    assert_eq!(again, Err(WorkerMoveRefusal::Refused(WorkerRefusal::Lapsed)));
}

fn lapse_after_the_reconnect_window_keeps_what_must_not_overlap<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let may = world.add_plain();
    let mut job = world.job();
    job.rules.overlap = Overlap::Forbidden;
    let must_not = world.add(job);
    assert_eq!(world.claim(hand, 2).len(), 2);
    world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
    world.wait(Span(5000));
    let lapsed = world.lapse(hand.worker, LapseScope::OverlapAllowed).unwrap();
    assert_eq!((lapsed.moved.len(), lapsed.kept), (1, 1));
    assert_eq!(world.read(may).state, State::Available);
    assert_eq!(world.read(must_not).state, State::Active);
    let early = world.lapse(hand.worker, LapseScope::Everything);
    assert_eq!(early, Err(WorkerMoveRefusal::Renewed));
    let rest = world.bury(hand.worker);
    assert_eq!((rest.moved.len(), rest.kept), (1, 0));
    assert_eq!(world.read(must_not).state, State::Available);
}

fn proof_of_death_after_a_lapse_frees_what_must_not_overlap<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let may = world.add_plain();
    let mut job = world.job();
    job.rules.overlap = Overlap::Forbidden;
    let must_not = world.add(job);
    for claimed in world.claim(hand, 2) {
        world.start(&claimed, hand).unwrap();
    }
    world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
    world.wait(Span(5000));
    world.lapse(hand.worker, LapseScope::OverlapAllowed).unwrap();
    assert_eq!(world.read(must_not).state, State::Active);
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    for id in [may, must_not] {
        let job = world.read(id);
        assert_eq!((job.state, job.spent.losses), (State::Available, 1), "{id}");
    }
    let state = world.row(hand.worker).standing.state();
    assert_eq!(state, "stopped");
    let refused = Err(WorkerMoveRefusal::Refused(WorkerRefusal::Gone));
    assert_eq!(world.lapse(hand.worker, LapseScope::Everything), refused);
}

fn lapse_after_the_reconnect_window_needs_a_suspect<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
    world.attach(hand.worker);
    let refused = Err(WorkerMoveRefusal::Renewed);
    assert_eq!(world.lapse(hand.worker, LapseScope::OverlapAllowed), refused);
}

/// Runs the job on a worker of its own, which dies.
fn die_alone<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.run(hand);
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
}

fn second_loss_isolates_and_third_while_alone_is_a_poison_suspect<H: Harness>(
    world: &mut World<'_, H>,
) {
    let id = world.add_plain();
    let own = world.read(id).job.class;
    die_alone(world);
    assert!(!world.read(id).isolated);
    die_alone(world);
    assert!(world.read(id).isolated);
    let ready: Vec<_> = world.ask(world.store().backlog());
    let twin = ready.iter().find(|class| class.ready).unwrap();
    assert!(twin.key.isolated && twin.id != own);
    let hand = world.worker();
    assert!(world.run(hand).isolated);
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    let job = world.read(id);
    assert_eq!((job.state, job.spent.losses), (State::Discarded, 3));
    assert_eq!(job.dead_letter, Some(DeadLetterReason::PoisonSuspect));
}

/// It waits in another class than its own, where PostgreSQL once did not look for it: it used up
/// what the claim might take.
fn job_that_runs_alone_is_left_to_others_by_a_claim_that_avoids_it<H: Harness>(
    world: &mut World<'_, H>,
) {
    let one_alone = |world: &mut World<'_, H>| {
        let id = world.add_plain();
        die_alone(world);
        die_alone(world);
        id
    };
    let first = one_alone(world);
    let holder = world.worker();
    let held = world.take(holder);
    let second = one_alone(world);
    world.finish(&held, holder, ReportedOutcome::NotStarted).unwrap();
    let twin = world.ask(world.store().backlog()).into_iter().find(|class| class.key.isolated);
    let twin = twin.unwrap().id;
    let hand = world.worker();
    let claim = |avoids: &[JobId]| {
        Command::Claim(Claim {
            claimant: hand.claimant(),
            from: ClaimFrom::Classes([twin].into()),
            max: NonZeroU32::MIN,
            is_prefetch: false,
            avoids: avoids.to_vec(),
            asked: AskedByQueues::default(),
        })
    };
    let Reply::Claimed(Ok(none)) = world.one(claim(&[first, second])) else { panic!("a claim") };
    assert_eq!((none.jobs, none.passed_over), (vec![], vec![twin]));
    let Reply::Claimed(Ok(one)) = world.one(claim(&[first])) else { panic!("a claim") };
    assert_eq!(one.jobs.iter().map(|it| it.job.id).collect::<Vec<_>>(), [second]);
}

fn neighbours_and_mass_losses_are_never_blamed<H: Harness>(world: &mut World<'_, H>) {
    let ids = [world.add_plain(), world.add_plain()];
    for _ in 0..5 {
        let hand = world.worker();
        for claimed in world.claim(hand, 2) {
            world.start(&claimed, hand).unwrap();
        }
        world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    }
    for id in ids {
        assert_eq!((world.read(id).state, world.read(id).spent.losses), (State::Available, 5));
    }
    let hand = world.worker();
    let claimed = world.claim(hand, 1).remove(0);
    world.start(&claimed, hand).unwrap();
    world.wait(LEASE);
    let renewal = world.row(hand.worker).renewal;
    let Command::Lapse(mut mass) = lapse(hand.worker, renewal, LapseScope::Everything) else {
        panic!("a lapse is a lapse");
    };
    mass.mass = true;
    world.one(Command::Lapse(mass));
    assert_eq!(world.read(claimed.job.id).state, State::Available);
}

fn cancelled_attempts_are_vacated_with_their_worker<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    world.run(hand);
    let cancelled = world.cancel(id).unwrap();
    assert_eq!(cancelled.holder, Some(hand.worker));
    assert_eq!(world.read(id).holder.unwrap().worker, Some(hand.worker));
    let lapsed = world.bury(hand.worker);
    assert_eq!((lapsed.moved.len(), lapsed.kept), (1, 0));
    let job = world.read(id);
    assert_eq!((job.state, job.holder), (State::Cancelled, None));
    assert_eq!(world.attempts(id)[0].outcome, Some(Outcome::Cancelled));
}

fn cancelled_neighbour_does_not_keep_a_job_from_being_alone<H: Harness>(world: &mut World<'_, H>) {
    world.budgets.losses = 1;
    let hand = world.worker();
    let gone = world.add_plain();
    world.run(hand);
    let id = world.add_plain();
    world.run(hand);
    world.cancel(gone).unwrap();
    world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    assert_eq!(world.read(id).dead_letter, Some(DeadLetterReason::PoisonSuspect));
}

fn late_report_of_a_lapsed_worker_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules = rules(5);
    let id = world.add(job);
    let claimed = world.run(hand);
    world.bury(hand.worker);
    let wrong = Err(MoveRefusal::Refused(Refusal::WrongState(State::Available)));
    assert_eq!(world.finish(&claimed, hand, ReportedOutcome::Completed), wrong);
    assert_eq!(world.finish(&claimed, hand, failed()), wrong);
    assert_eq!(world.read(id).state, State::Available);
}

fn only_a_dead_worker_that_holds_nothing_is_forgotten<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules.overlap = Overlap::Forbidden;
    world.add(job);
    world.take(hand);
    let forget = |hand: Hand| {
        let (name, by) = ("builder".to_owned(), "operator".to_owned());
        Command::ForgetWorker(ForgetWorker { worker: hand.worker, name, by })
    };
    assert_eq!(world.one(forget(hand)), Reply::Forgotten(Err(NotFound)));
    world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
    world.lapse(hand.worker, LapseScope::OverlapAllowed).unwrap();
    assert_eq!(world.one(forget(hand)), Reply::Forgotten(Err(NotFound)));
    world.bury(hand.worker);
    assert_eq!(world.one(forget(hand)), Reply::Forgotten(Ok(())));
    assert_eq!(world.ask(world.store().workers()), []);
    assert_eq!(world.one(forget(hand)), Reply::Forgotten(Err(NotFound)));
    let of = EventQuery {
        names: vec!["worker.forgotten".into()],
        worker: Some(hand.worker),
        ..EventQuery::all(10)
    };
    let logged = world.ask(world.store().events(of)).events;
    let logged: Vec<_> = logged.iter().map(|(_, it)| (it.by.as_str(), &*it.evidence)).collect();
    assert_eq!(logged, [("operator", "builder")]);
}

fn held_attempts_are_listed_with_their_epochs<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    assert_eq!(world.row(hand.worker).oldest_claim, None);
    let ids = [world.add_plain(), world.add_plain()];
    let first = world.now();
    let mut claimed = world.claim(hand, 1);
    world.wait(Span::from_secs(5));
    claimed.extend(world.claim(hand, 1));
    let row = world.row(hand.worker);
    assert_eq!((row.in_flight, row.oldest_claim), (2, Some(first)));
    world.start(&claimed[0], hand).unwrap();
    world.cancel(ids[1]).unwrap();
    let in_flight = world.ask(world.store().in_flight_of(hand.worker));
    let in_flight: Vec<_> = in_flight
        .iter()
        .map(|in_flight| (in_flight.job, in_flight.epoch.0, in_flight.started, in_flight.cancelled))
        .collect();
    assert_eq!(in_flight, [(ids[0], 1, true, false), (ids[1], 1, false, true)]);
    assert_eq!(world.row(hand.worker).in_flight, 2);
}

fn cancelled_attempts_of_several_workers_are_listed_at_once<H: Harness>(world: &mut World<'_, H>) {
    let hands = [world.worker(), world.worker(), world.worker()];
    let mut expected = Vec::new();
    for hand in hands {
        let ids = [world.add_plain(), world.add_plain(), world.add_plain()];
        let claimed = world.claim(hand, 3);
        for id in &ids[..2] {
            world.cancel(*id).unwrap();
            let epoch = claimed.iter().find(|claimed| claimed.job.id == *id).unwrap().epoch;
            expected.push(CancelledAttempt { worker: hand.worker, job: *id, epoch });
        }
    }
    let asked = [hands[0].worker, hands[2].worker, WorkerId(Uuid::nil())];
    let mut found = world.ask(world.store().cancelled_of(asked.to_vec()));
    expected.retain(|attempt| asked.contains(&attempt.worker));
    found.sort_unstable_by_key(|attempt| (attempt.worker, attempt.job));
    expected.sort_unstable_by_key(|attempt| (attempt.worker, attempt.job));
    assert_eq!(found, expected);
    assert_eq!(world.ask(world.store().cancelled_of(Vec::new())), []);
}
