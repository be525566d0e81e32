//! What a crash leaves: every batch that was answered, and nothing else.

use outlast_core::job::{Overlap, State};
use outlast_core::retry::OnExhaustion;
use outlast_core::time::Span;
use outlast_store::command::{Command, First, LapseScope, QueueOrder, ReportedOutcome, Route};
use outlast_store::error::StoreError;
use outlast_store::event::EventQuery;
use outlast_store::query::{JobQuery, Page};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::{World, failed, rules};

cases![
    everything_that_was_answered_survives_a_crash,
    held_attempts_survive_and_can_be_finished,
    numbers_go_on_after_a_crash,
    time_never_runs_backwards,
    closed_store_says_so,
];

/// A bit of everything.
fn populate<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut letter = world.job();
    letter.rules = rules(1);
    letter.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    world.add(letter);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    for reported in [ReportedOutcome::Completed, failed(), ReportedOutcome::Interrupted] {
        let mut job = world.job();
        job.rules.overlap = Overlap::Forbidden;
        job.class.tenant = Some("acme".into());
        job.priority = 5;
        world.add(job);
        let claimed = world.claim(hand, 1).remove(0);
        world.start(&claimed, hand).unwrap();
        world.finish(&claimed, hand, reported).unwrap();
    }
    let mut action = world.job();
    action.class.route =
        Route::Action { runtime: "python".into(), labels: Default::default(), proof: false };
    action.rules.expires_at = Some(world.now().after(Span(99_000)));
    world.add(action);
    let mut later = world.job();
    later.first = First::At(world.now().after(Span(5000)));
    world.add(later);
    world.add_plain();
    world.fetch(Some("plain"), 1);
    let cancelled = world.add_plain();
    world.claim(hand, 5);
    world.cancel(cancelled).unwrap();
    let order = QueueOrder { queue: "idle".into(), paused: true, by: "test".into() };
    world.one(Command::Queue(order));
}

/// Everything that can be read, as text.
fn everything<H: Harness>(world: &World<'_, H>) -> Vec<String> {
    let page = Page { limit: 100, cursor: None };
    let query = JobQuery::all(page.clone());
    let events = EventQuery::all(1000);
    let store = world.store();
    // A closed lane of the log has other cursors than one that is written, so only the events are
    // compared.
    let events = world.ask(store.events(events)).events;
    let events: Vec<_> = events.into_iter().map(|(_, event)| event).collect();
    let jobs = world.ask(store.jobs(query));
    let attempts: Vec<_> = jobs.jobs.iter().map(|job| world.attempts(job.job.id)).collect();
    let workers = world.ask(store.workers());
    let in_flight: Vec<_> =
        workers.iter().map(|row| world.ask(store.in_flight_of(row.id))).collect();
    vec![
        format!("{jobs:#?}"),
        format!("{attempts:#?}"),
        format!("{workers:#?}"),
        format!("{in_flight:#?}"),
        format!("{:#?}", world.ask(store.backlog())),
        format!("{:#?}", world.ask(store.queues())),
        format!("{:#?}", world.ask(store.dead_letters(JobQuery::dead_letters(page)))),
        format!("{events:#?}"),
        format!("{:#?}", world.ask(store.next_due())),
    ]
}

fn everything_that_was_answered_survives_a_crash<H: Harness>(world: &mut World<'_, H>) {
    populate(world);
    let before = everything(world);
    world.crash();
    for (before, after) in before.iter().zip(everything(world)) {
        assert_eq!(*before, after);
    }
}

fn held_attempts_survive_and_can_be_finished<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    world.crash();
    assert_eq!(world.read(id).state, State::Active);
    assert_eq!(world.claim(hand, 1).len(), 0);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.read(id).state, State::Completed);
}

fn numbers_go_on_after_a_crash<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let class = world.read(id).job.class;
    let claimed = world.take(hand);
    world.crash();
    assert!(world.attach(hand.worker) > hand.session);
    assert_eq!(claimed.epoch.0, 1);
    let again = world.worker();
    world.move_worker(hand.worker, outlast_core::worker::liveness::WorkerEvent::Goodbye).unwrap();
    assert_eq!(world.take(again).epoch.0, 2);
    let next = world.add_plain();
    assert_eq!(world.read(next).job.class, class);
    assert!(world.lapse(again.worker, LapseScope::Everything).is_err());
}

fn time_never_runs_backwards<H: Harness>(world: &mut World<'_, H>) {
    world.wait(Span(1000));
    let before = world.ask(world.store().now());
    let id = world.add_plain();
    world.crash();
    assert!(world.ask(world.store().now()) >= before);
    assert!(world.read(id).since >= before);
}

fn closed_store_says_so<H: Harness>(world: &mut World<'_, H>) {
    world.add_plain();
    world.ask(world.store().close());
    let refused = world.refusal(|store| async move { store.now().await.map(|_| ()) });
    assert!(matches!(refused, Some(StoreError::Closed)), "{refused:?}");
    let refused = world.refusal(|store| async move { store.queues().await.map(|_| ()) });
    assert!(matches!(refused, Some(StoreError::Closed)), "{refused:?}");
}
