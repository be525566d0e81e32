//! Placement: which workers jobs run on. The store keeps it as a part of their class.

use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::queue::{Change, QueueChange};
use outlast_core::selector::{Placement, SELECTOR_BYTES_MAX};
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{AskedByQueues, Claim, Command, NewJob, Route, SetQueue};
use outlast_store::reply::{ClaimRefusal, Reply};
use outlast_store::store::Store as _;
use outlast_store_rules::apply::limit::Limits;

use crate::conformance::Harness;
use crate::conformance::limit::per_queue;
use crate::conformance::world::{World, failed, rules};

cases![
    longest_placement_is_read_back,
    placement_is_read_back_wherever_the_job_is_and_after_a_restart,
    jobs_of_another_placement_are_a_class_of_their_own,
    jobs_that_must_run_alone_keep_their_placement,
    plain_fetch_takes_only_jobs_that_need_no_label,
    plain_fetch_takes_nothing_of_a_queue_that_requires_a_label,
    claim_that_was_chosen_by_other_settings_of_queues_takes_nothing,
    claim_of_the_batch_that_changes_settings_takes_nothing,
];

fn placement(requires: &str, prefers: &str) -> Placement {
    Placement { requires: requires.parse().unwrap(), prefers: prefers.parse().unwrap() }
}

fn placed<H: Harness>(world: &mut World<'_, H>, requires: &str, prefers: &str) -> NewJob {
    let mut job = world.job();
    job.class.placement = placement(requires, prefers);
    job
}

/// The canonical text of a selector may be longer than what was sent. No class was read any more.
fn longest_placement_is_read_back<H: Harness>(world: &mut World<'_, H>) {
    let items: Vec<String> = (0..85).map(|n| format!("a{n:02} in(x,y)")).collect();
    let sent = items.join(",");
    assert!(sent.len() <= SELECTOR_BYTES_MAX);
    let job = placed(world, &sent, "");
    assert!(job.class.placement.requires.to_string().len() > SELECTOR_BYTES_MAX);
    let wanted = job.class.placement.clone();
    let id = world.add(job);
    let found = world.ask(world.store().claimable(9));
    assert!(found.iter().any(|class| class.key.placement == wanted), "{found:?}");
    assert_eq!(world.ask(world.store().job(id)).unwrap().job.key.placement, wanted);
}

fn placement_is_read_back_wherever_the_job_is_and_after_a_restart<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let wanted = placement("gpu=true,zone in (a,b),!spot,tier notin (x)", "disk!=slow");
    let mut plain = placed(world, "zone in (b,a), gpu=true, tier!=x, !spot", "disk!=slow");
    plain.rules = rules(2);
    let mut action = plain.clone();
    action.id = world.job().id;
    let labels = [("zone".to_owned(), "a".to_owned())].into();
    action.class.route = Route::Action { runtime: "shell".into(), labels, proof: false };
    for job in [plain, action] {
        let route = job.class.route.clone();
        let id = world.add(job);
        let check = |world: &World<'_, H>| {
            let key = Arc::clone(&world.read(id).job.key);
            assert_eq!((&key.placement, &key.route), (&wanted, &route));
        };
        check(world);
        let claimed = world.run(hand);
        assert_eq!(claimed.job.key.placement, wanted);
        world.finish(&claimed, hand, failed()).unwrap();
        check(world);
        world.wait(Span::from_secs(60));
        world.sweep();
        let claimable = world.ask(world.store().claimable(9));
        assert_eq!(claimable.len(), 1);
        assert_eq!(claimable[0].key.placement, wanted);
        world.cancel(id).unwrap();
        check(world);
    }
    world.crash();
    let tally = world.ask(world.store().tally());
    assert!(tally.len() == 2 && tally.iter().all(|class| class.key.placement == wanted));
}

fn jobs_of_another_placement_are_a_class_of_their_own<H: Harness>(world: &mut World<'_, H>) {
    let mut jobs = vec![world.job(), world.job()];
    for (requires, prefers) in [("gpu", ""), ("", "gpu"), ("gpu", "zone=a"), ("gpu", "")] {
        let job = placed(world, requires, prefers);
        jobs.push(job);
    }
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    world.one(Command::EnqueueAll(jobs));
    let classes: Vec<_> = ids.iter().map(|id| world.read(*id).job.class).collect();
    assert_eq!((classes[0], classes[2]), (classes[1], classes[5]));
    let mut each = classes;
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), 4);
}

fn jobs_that_must_run_alone_keep_their_placement<H: Harness>(world: &mut World<'_, H>) {
    let job = placed(world, "gpu", "zone=a");
    let wanted = job.class.placement.clone();
    let id = world.add(job);
    for _ in 0..2 {
        let hand = world.worker();
        world.run(hand);
        world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    }
    assert!(world.read(id).isolated);
    world.crash();
    let ready = world.ask(world.store().backlog());
    let twin = ready.iter().find(|class| class.ready).unwrap();
    assert!(twin.key.isolated);
    assert_eq!(twin.key.placement, wanted);
    let hand = world.worker();
    assert_eq!(world.take(hand).job.id, id);
}

/// Plain clients have no labels.
fn plain_fetch_takes_only_jobs_that_need_no_label<H: Harness>(world: &mut World<'_, H>) {
    for (requires, prefers, takes) in [
        ("gpu", "", false),
        ("gpu", "zone=a", false),
        ("zone in (a, b), !spot", "", false),
        ("", "zone=a", true),
        ("!spot", "", true),
        ("zone!=a, tier notin (x, y)", "gpu", true),
    ] {
        let job = placed(world, requires, prefers);
        let id = world.add(job);
        let taken: Vec<JobId> = world.fetch(None, 9).iter().map(|it| it.job.id).collect();
        let expected = if takes { vec![id] } else { Vec::new() };
        assert_eq!(taken, expected, "requires {requires:?}, prefers {prefers:?}");
    }
    world.crash();
    assert!(world.fetch(None, 9).is_empty());
}

/// Sets what a queue asks of workers.
fn ask(requires: &str, prefers: &str) -> QueueChange {
    let Placement { requires, prefers } = placement(requires, prefers);
    let (requires, prefers) = (Change::Set(requires), Change::Set(prefers));
    QueueChange { requires, prefers, ..QueueChange::default() }
}

fn plain_fetch_takes_nothing_of_a_queue_that_requires_a_label<H: Harness>(
    world: &mut World<'_, H>,
) {
    for limited in [false, true] {
        if limited {
            world.limit(per_queue(9));
        }
        let id = world.add_plain();
        for requires in ["gpu", "zone in (a, b), !spot"] {
            world.set_queue("default", ask(requires, "")).unwrap();
            assert!(world.fetch(None, 9).is_empty(), "{requires}");
            world.crash();
            assert!(world.fetch(None, 9).is_empty(), "{requires}, after a restart");
        }
        world.set_queue("other", ask("gpu", "")).unwrap();
        world.set_queue("default", ask("!spot", "gpu")).unwrap();
        let taken: Vec<JobId> = world.fetch(None, 9).iter().map(|it| it.job.id).collect();
        assert_eq!(taken, [id]);
        world.set_queue("default", ask("", "")).unwrap();
    }
}

/// What a server chooses by now.
fn asked<H: Harness>(world: &World<'_, H>) -> AskedByQueues {
    Limits::of(Vec::new(), world.ask(world.store().queue_settings())).asked()
}

fn claim_that_was_chosen_by_other_settings_of_queues_takes_nothing<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    for limited in [false, true] {
        if limited {
            world.limit(per_queue(90));
        }
        for change in [ask("gpu", ""), ask("gpu", "zone=a"), ask("", "")] {
            world.set_queue("default", change).unwrap();
            let id = world.add_plain();
            assert_eq!(world.try_claim(hand, 9), Err(ClaimRefusal::Outdated));
            world.asked = asked(world);
            assert_eq!(world.take(hand).job.id, id);
            // Other settings make no difference.
            let max_depth = Change::Set(7);
            world
                .set_queue("default", QueueChange { max_depth, ..QueueChange::default() })
                .unwrap();
            world.limit(per_queue(80));
            let id = world.add_plain();
            assert_eq!(world.take(hand).job.id, id);
        }
    }
}

fn claim_of_the_batch_that_changes_settings_takes_nothing<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let claim = |world: &World<'_, H>, asked| {
        let (claimant, from, max) = (hand.claimant(), world.all_classes(), NonZeroU32::MIN);
        Command::Claim(Claim { claimant, from, max, is_prefetch: false, avoids: Vec::new(), asked })
    };
    let set = |requires: &str| {
        let (queue, by, change) = ("default".into(), "operator".into(), ask(requires, ""));
        Command::SetQueue(Box::new(SetQueue { queue, change, by }))
    };
    let before = asked(world);
    let replies = world.apply(vec![set("gpu"), claim(world, before)]);
    assert!(matches!(replies.replies.last(), Some(Reply::Claimed(Err(ClaimRefusal::Outdated)))));
    let now = asked(world);
    let replies = world.apply(vec![claim(world, now), set("")]);
    let Some(Reply::Claimed(Ok(taken))) = replies.replies.first() else { panic!("{replies:?}") };
    assert_eq!(taken.jobs[0].job.id, id);
}
