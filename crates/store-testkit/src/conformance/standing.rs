//! Orders to all workers that are chosen, and to those that start later.

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::WorkerId;
use outlast_core::selector::{SELECTOR_BYTES_MAX, Selector};
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Phase, Standing, WorkerEvent, WorkerRefusal};
use outlast_core::worker::order::{HEIR_COMES_WITHIN, HEIR_TAKES_ORDERS, OrderChange, WorkerOrder};
use outlast_store::command::{Command, OrderWorkers, Registration, WorkerMove};
use outlast_store::reply::{Reply, WorkerMoveRefusal, WorkersOrdered};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::World;

cases![
    order_by_label_reaches_those_who_live_and_those_who_start_later,
    resume_lifts_the_order_to_the_same_workers_and_no_other,
    order_to_every_worker_does_not_stand,
    order_in_one_batch_with_a_registration_comes_before_or_after_it,
    worker_that_lapsed_registers_again_as_it_was_ordered,
    order_outlives_the_engine_that_it_was_given_to,
    order_to_a_dead_engine_holds_for_the_next,
    order_by_label_reaches_an_engine_that_died_just_now,
    resume_of_all_reaches_an_engine_that_died,
    later_one_of_two_orders_counts,
    only_orders_outlive_a_worker,
    order_to_a_worker_that_was_followed_names_the_one_that_takes_it,
    worker_does_not_lift_by_itself_what_was_ordered,
    worker_that_is_cut_off_for_long_is_resumed_with_the_others,
    order_with_a_long_selector_can_be_read_and_lifted,
];

fn to(selector: &str, order: WorkerOrder) -> Command {
    let selector = selector.parse().unwrap();
    Command::OrderWorkers(Box::new(OrderWorkers { selector, order, by: "tom".into() }))
}

fn ordered(reply: Reply) -> WorkersOrdered {
    match reply {
        Reply::WorkersOrdered(Ok(ordered)) => ordered,
        other => panic!("not ordered: {other:?}"),
    }
}

/// Registers a worker of a pool; returns it with its phase.
fn of_pool<H: Harness>(world: &mut World<'_, H>, pool: &str) -> (WorkerId, Phase) {
    let mut registration = world.registration();
    registration.labels.insert("pool".into(), pool.into());
    let id = registration.id;
    match world.one(Command::Register(Box::new(registration))) {
        Reply::Registered(Ok(standing)) => (id, standing.phase),
        other => panic!("not registered: {other:?}"),
    }
}

fn order_by_label_reaches_those_who_live_and_those_who_start_later<H: Harness>(
    world: &mut World<'_, H>,
) {
    let (gpu, _) = of_pool(world, "gpu");
    let (web, _) = of_pool(world, "web");
    let given = ordered(world.one(to("pool=gpu", WorkerOrder::Drain)));
    assert_eq!((given.change, &*given.reached), (OrderChange::Stand, &[gpu][..]));
    assert_eq!(world.row(gpu).standing.phase, Phase::Draining);
    assert_eq!(world.row(web).standing.phase, Phase::Running);
    let stands = world.ask(world.store().standing_orders());
    let [stands] = stands.as_slice() else { panic!("{stands:?}") };
    assert_eq!(
        (stands.selector.to_string(), stands.order),
        ("pool=gpu".into(), WorkerOrder::Drain)
    );
    assert_eq!((&*stands.set_by, stands.set_at), ("tom", world.now()));
    // It takes no work, and stays up.
    let (later, phase) = of_pool(world, "gpu");
    assert_eq!(phase, Phase::Quiet);
    assert_eq!(world.row(later).standing.state(), "quiet");
    assert_eq!(of_pool(world, "web").1, Phase::Running);
    // Given again, it names all that it is for, and not those that drain already.
    let again = ordered(world.one(to("pool=gpu", WorkerOrder::Quiet)));
    assert_eq!((again.change, &*again.reached), (OrderChange::Stand, &[later][..]));
    let stands = world.ask(world.store().standing_orders());
    assert_eq!(stands.iter().map(|one| one.order).collect::<Vec<_>>(), [WorkerOrder::Quiet]);
}

fn resume_lifts_the_order_to_the_same_workers_and_no_other<H: Harness>(world: &mut World<'_, H>) {
    world.one(to("pool=gpu", WorkerOrder::Quiet));
    world.one(to("pool in (gpu, web)", WorkerOrder::Quiet));
    let ((gpu, _), (web, _)) = (of_pool(world, "gpu"), of_pool(world, "web"));
    let resumed = ordered(world.one(to("pool=gpu", WorkerOrder::Resume)));
    let both = "pool in (gpu, web)".parse::<Selector>().unwrap();
    assert_eq!((resumed.change, resumed.kept), (OrderChange::LiftOne, vec![(gpu, both)]));
    assert_eq!(world.row(gpu).standing.phase, Phase::Quiet);
    let resumed = ordered(world.one(to("", WorkerOrder::Resume)));
    let mut moved = vec![gpu, web];
    moved.sort_unstable();
    assert_eq!((resumed.change, resumed.reached), (OrderChange::LiftAll, moved));
    assert_eq!(world.ask(world.store().standing_orders()), []);
    assert_eq!(of_pool(world, "gpu").1, Phase::Running);
    let nothing = ordered(world.one(to("pool=web", WorkerOrder::Resume)));
    assert_eq!((nothing.change, &*nothing.reached), (OrderChange::Nothing, &[web][..]));
}

/// Its canonical text was read as one that is too long once: no worker could register any more.
fn order_with_a_long_selector_can_be_read_and_lifted<H: Harness>(world: &mut World<'_, H>) {
    let mut parts: Vec<String> = Vec::new();
    while parts.join(",").len() < SELECTOR_BYTES_MAX - 20 {
        parts.push(format!("a{} in(x,y)", parts.len()));
    }
    let text = parts.join(",");
    assert!(text.parse::<Selector>().unwrap().to_string().len() > SELECTOR_BYTES_MAX);
    world.one(to(&text, WorkerOrder::Quiet));
    assert_eq!(world.ask(world.store().standing_orders()).len(), 1);
    assert_eq!(of_pool(world, "gpu").1, Phase::Running);
    let lifted = ordered(world.one(to(&text, WorkerOrder::Resume)));
    assert_eq!(lifted.change, OrderChange::LiftOne);
}

fn order_to_every_worker_does_not_stand<H: Harness>(world: &mut World<'_, H>) {
    let (gpu, _) = of_pool(world, "gpu");
    let given = ordered(world.one(to("", WorkerOrder::Drain)));
    assert_eq!((given.change, &*given.reached), (OrderChange::Nothing, &[gpu][..]));
    // Those that replace them start.
    assert_eq!(of_pool(world, "gpu").1, Phase::Running);
}

fn order_in_one_batch_with_a_registration_comes_before_or_after_it<H: Harness>(
    world: &mut World<'_, H>,
) {
    let registers = |world: &mut World<'_, H>| {
        let mut registration = world.registration();
        registration.labels.insert("pool".into(), "gpu".into());
        (registration.id, Command::Register(Box::new(registration)))
    };
    let ((early, first), (late, last)) = (registers(world), registers(world));
    let batch = vec![first, to("pool=gpu", WorkerOrder::Quiet), last];
    let replies = world.apply(batch).replies;
    let [_, given, Reply::Registered(Ok(standing))] = replies.as_slice() else {
        panic!("{replies:?}");
    };
    assert_eq!(ordered(given.clone()).reached, [early]);
    assert_eq!(standing.phase, Phase::Quiet);
    assert_eq!(world.row(late).standing.phase, Phase::Quiet);
}

/// Orders one worker something; returns how it stands.
fn order_one<H: Harness>(
    world: &mut World<'_, H>,
    worker: WorkerId,
    order: WorkerOrder,
) -> Result<Standing, WorkerMoveRefusal> {
    match world.one(Command::Worker(WorkerMove::ordered(worker, order, "tom"))) {
        Reply::WorkerMoved(moved) => moved.map(|moved| moved.standing),
        other => panic!("not about a worker: {other:?}"),
    }
}

/// Lets the engine of a worker die, as its guardian reports it.
fn engine_dies<H: Harness>(world: &mut World<'_, H>, worker: WorkerId) {
    let evidence = Evidence::of(EvidenceCode::EngineKilled, "killed by signal 9");
    let (event, by) = (WorkerEvent::Died, "its guardian".to_owned());
    let step = WorkerMove { worker, event, ordered: None, session: None, by, evidence };
    world.one(Command::Worker(step));
}

/// Registers a worker that follows others, with this pool as a label; returns it with its phase.
fn heir<H: Harness>(
    world: &mut World<'_, H>,
    previous: &[WorkerId],
    pool: &str,
) -> (WorkerId, Phase) {
    let mut again = Registration { previous: previous.to_vec(), ..world.registration() };
    again.labels.insert("pool".into(), pool.into());
    let id = again.id;
    match world.one(Command::Register(Box::new(again))) {
        Reply::Registered(Ok(Standing { phase, .. })) => (id, phase),
        other => panic!("not registered: {other:?}"),
    }
}

/// An order to a worker that was suspect was lost once, when it lapsed and came back.
fn worker_that_lapsed_registers_again_as_it_was_ordered<H: Harness>(world: &mut World<'_, H>) {
    for (order, phase) in [
        (WorkerOrder::Quiet, Phase::Quiet),
        (WorkerOrder::Drain, Phase::Draining),
        (WorkerOrder::Resume, Phase::Running),
    ] {
        let hand = world.worker();
        world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
        order_one(world, hand.worker, order).unwrap();
        world.bury(hand.worker);
        assert_eq!(heir(world, &[hand.worker], "a").1, phase);
    }
}

/// An order that the store had, and the engine not yet, was lost with the engine once.
fn order_outlives_the_engine_that_it_was_given_to<H: Harness>(world: &mut World<'_, H>) {
    for (order, phase) in
        [(WorkerOrder::Quiet, Phase::Quiet), (WorkerOrder::Drain, Phase::Draining)]
    {
        let first = world.worker().worker;
        order_one(world, first, order).unwrap();
        engine_dies(world, first);
        let (second, found) = heir(world, &[first], "a");
        assert_eq!(found, phase);
        assert_eq!(world.row(second).previous, Some(first));
        // Its own end does not end the order, and an engine that never registered is no gap.
        engine_dies(world, second);
        let never = world.registration().id;
        assert_eq!(heir(world, &[first, second, never], "a").1, phase);
    }
}

/// A resume that was given while there was no engine was undone by the next one once.
fn order_to_a_dead_engine_holds_for_the_next<H: Harness>(world: &mut World<'_, H>) {
    for (before, order, phase) in [
        (None, WorkerOrder::Quiet, Phase::Quiet),
        (None, WorkerOrder::Drain, Phase::Draining),
        (Some(WorkerOrder::Quiet), WorkerOrder::Resume, Phase::Running),
    ] {
        let first = world.worker().worker;
        before.map(|before| order_one(world, first, before).unwrap());
        engine_dies(world, first);
        assert_eq!(order_one(world, first, order).unwrap().state(), "stopped");
        assert_eq!(world.row(first).given.map(|given| given.order), Some(order));
        assert_eq!(heir(world, &[first], "a").1, phase);
    }
    // A drain goes forward only, and an order that comes too late is refused.
    let first = world.worker().worker;
    order_one(world, first, WorkerOrder::Drain).unwrap();
    engine_dies(world, first);
    let refused = order_one(world, first, WorkerOrder::Resume).unwrap_err();
    assert_eq!(refused, WorkerMoveRefusal::Refused(WorkerRefusal::Draining));
    let first = world.worker().worker;
    engine_dies(world, first);
    world.wait(Span(HEIR_TAKES_ORDERS.0 + 1));
    let refused = order_one(world, first, WorkerOrder::Quiet).unwrap_err();
    assert_eq!(refused, WorkerMoveRefusal::Refused(WorkerRefusal::Gone));
}

fn order_by_label_reaches_an_engine_that_died_just_now<H: Harness>(world: &mut World<'_, H>) {
    let (first, _) = of_pool(world, "gpu");
    engine_dies(world, first);
    let given = ordered(world.one(to("pool=gpu", WorkerOrder::Quiet)));
    assert_eq!(given.reached, [first]);
    assert_eq!(heir(world, &[first], "gpu").1, Phase::Quiet);
    // The one that follows is reached instead.
    let (second, _) = of_pool(world, "web");
    engine_dies(world, second);
    let (third, _) = heir(world, &[second], "web");
    assert_eq!(ordered(world.one(to("pool=web", WorkerOrder::Drain))).reached, [third]);
    // After some time none may follow, but one that does was still ordered.
    let (late, _) = of_pool(world, "late");
    engine_dies(world, late);
    world.wait(Span(HEIR_COMES_WITHIN.0 + 1));
    assert_eq!(ordered(world.one(to("pool=late", WorkerOrder::Drain))).reached, []);
    assert_eq!(heir(world, &[late], "late").1, Phase::Draining);
}

fn resume_of_all_reaches_an_engine_that_died<H: Harness>(world: &mut World<'_, H>) {
    let (first, _) = of_pool(world, "gpu");
    world.one(to("pool=gpu", WorkerOrder::Quiet));
    engine_dies(world, first);
    world.one(to("", WorkerOrder::Resume));
    assert_eq!(heir(world, &[first], "gpu").1, Phase::Running);
}

fn later_one_of_two_orders_counts<H: Harness>(world: &mut World<'_, H>) {
    let (first, _) = of_pool(world, "gpu");
    world.one(to("pool=gpu", WorkerOrder::Quiet));
    world.wait(Span(1));
    order_one(world, first, WorkerOrder::Resume).unwrap();
    engine_dies(world, first);
    let (second, phase) = heir(world, &[first], "gpu");
    assert_eq!(phase, Phase::Running, "it was resumed after the order to its pool");
    world.wait(Span(1));
    world.one(to("pool=gpu", WorkerOrder::Quiet));
    engine_dies(world, second);
    assert_eq!(heir(world, &[second], "gpu").1, Phase::Quiet);
}

/// What a worker says of itself, for a signal or its health, ends with the process that says it.
fn only_orders_outlive_a_worker<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    world.move_worker(hand.worker, WorkerEvent::Quiet).unwrap();
    engine_dies(world, hand.worker);
    assert_eq!(heir(world, &[hand.worker], "a").1, Phase::Running);
    // One that left by itself takes none.
    let hand = world.worker();
    world.move_worker(hand.worker, WorkerEvent::Goodbye).unwrap();
    let refused = order_one(world, hand.worker, WorkerOrder::Quiet).unwrap_err();
    assert_eq!(refused, WorkerMoveRefusal::Refused(WorkerRefusal::Gone));
}

fn order_to_a_worker_that_was_followed_names_the_one_that_takes_it<H: Harness>(
    world: &mut World<'_, H>,
) {
    let (first, _) = of_pool(world, "gpu");
    // Its death is not reported yet.
    let (second, _) = heir(world, &[first], "gpu");
    assert_eq!(world.row(first).followed_by, Some(second));
    let refused = order_one(world, first, WorkerOrder::Quiet).unwrap_err();
    assert_eq!(refused, WorkerMoveRefusal::Followed(second));
    assert_eq!(ordered(world.one(to("pool=gpu", WorkerOrder::Quiet))).reached, [second]);
    assert_eq!(world.row(first).given, None);
    engine_dies(world, first);
    assert_eq!(order_one(world, first, WorkerOrder::Resume), Err(refused));
}

/// A worker that was about to take jobs again, for its health, ran although it had been ordered quiet.
fn worker_does_not_lift_by_itself_what_was_ordered<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    order_one(world, hand.worker, WorkerOrder::Quiet).unwrap();
    let moved = world.move_worker(hand.worker, WorkerEvent::Resume).unwrap();
    assert_eq!(moved.standing.phase, Phase::Quiet);
    order_one(world, hand.worker, WorkerOrder::Resume).unwrap();
    world.move_worker(hand.worker, WorkerEvent::Quiet).unwrap();
    let moved = world.move_worker(hand.worker, WorkerEvent::Resume).unwrap();
    assert_eq!(moved.standing.phase, Phase::Running);
}

/// A pool was quiet and was resumed while one of its workers was cut off: that one stayed quiet.
fn worker_that_is_cut_off_for_long_is_resumed_with_the_others<H: Harness>(
    world: &mut World<'_, H>,
) {
    let (worker, _) = of_pool(world, "gpu");
    world.one(to("pool=gpu", WorkerOrder::Quiet));
    world.bury(worker);
    world.wait(Span(HEIR_TAKES_ORDERS.0 + 1));
    let resumed = ordered(world.one(to("pool=gpu", WorkerOrder::Resume)));
    assert_eq!((resumed.change, &*resumed.reached), (OrderChange::LiftOne, &[][..]));
    assert_eq!(heir(world, &[worker], "gpu").1, Phase::Running);
}
