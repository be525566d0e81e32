//! Orders to all workers that are chosen, and to those that start later.

use outlast_core::id::WorkerId;
use outlast_core::selector::{SELECTOR_BYTES_MAX, Selector};
use outlast_core::worker::liveness::{Phase, Standing, WorkerEvent};
use outlast_core::worker::order::{OrderChange, WorkerOrder};
use outlast_store::command::{Command, OrderWorkers, Registration};
use outlast_store::reply::{Reply, WorkersOrdered};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::World;

cases![
    order_by_label_reaches_those_who_live_and_those_who_start_later,
    resume_lifts_the_order_to_the_same_workers_and_no_other,
    order_to_every_worker_does_not_stand,
    order_in_one_batch_with_a_registration_comes_before_or_after_it,
    worker_that_lapsed_registers_again_as_it_was_ordered,
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

/// An order to a worker that was suspect was lost once, when it lapsed and came back.
fn worker_that_lapsed_registers_again_as_it_was_ordered<H: Harness>(world: &mut World<'_, H>) {
    for (event, phase) in [
        (WorkerEvent::Quiet, Phase::Quiet),
        (WorkerEvent::Drain, Phase::Draining),
        (WorkerEvent::Resume, Phase::Running),
    ] {
        let hand = world.worker();
        world.move_worker(hand.worker, WorkerEvent::Drop).unwrap();
        world.move_worker(hand.worker, event).unwrap();
        world.bury(hand.worker);
        let previous = Some(hand.worker);
        let again = Registration { previous, ..world.registration() };
        let reply = world.one(Command::Register(Box::new(again)));
        let Reply::Registered(Ok(standing)) = reply else { panic!("{reply:?}") };
        assert_eq!(standing, Standing { phase, ..Standing::NEW });
    }
    // Of a process that has ended, nothing is kept.
    let hand = world.worker();
    world.move_worker(hand.worker, WorkerEvent::Drain).unwrap();
    world.move_worker(hand.worker, WorkerEvent::Goodbye).unwrap();
    let again = Registration { previous: Some(hand.worker), ..world.registration() };
    let reply = world.one(Command::Register(Box::new(again)));
    assert_eq!(reply, Reply::Registered(Ok(Standing::NEW)));
}
