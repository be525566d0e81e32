//! Fair queues: in which order jobs are claimed.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::id::JobId;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::queue::{Change, QueueChange};
use outlast_core::time::Span;
use outlast_store::command::ReportedOutcome;
use outlast_store::query::AheadQuery;
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::limit::per_tenant;
use crate::conformance::queue::fair_by;
use crate::conformance::world::{Hand, World};

cases![
    shares_take_turns_whatever_came_first,
    weights_say_how_often_a_share_has_its_turn,
    slot_time_counts_and_not_starts,
    jobs_without_the_key_are_one_share,
    priority_goes_first_and_shares_hold_within_it,
    limits_stop_a_share_and_the_others_go_on,
    settings_act_at_once_on_jobs_that_are_stored,
    many_shares_all_have_their_turn,
    many_shares_all_have_their_turn_after_a_walk,
    other_queues_keep_their_order,
    claims_of_fair_and_other_queues_go_by_priority_and_age,
    limited_queue_keeps_its_order_beside_a_fair_one,
    job_knows_how_many_go_before_it_in_its_lane,
    job_that_came_back_to_the_front_does_not_go_before_itself,
];

const QUEUE: &str = "default";

/// The jobs of each tenant, in order.
#[derive(Default)]
struct Jobs(BTreeMap<JobId, &'static str>);

impl Jobs {
    fn add<H: Harness>(&mut self, world: &mut World<'_, H>, tenant: &'static str, count: usize) {
        for _ in 0..count {
            let id = match tenant {
                "" => world.add_plain(),
                tenant => world.of_tenant(tenant),
            };
            self.0.insert(id, tenant);
        }
    }

    /// Claims so many jobs at once; returns whose they are.
    fn claim<H: Harness>(&self, world: &mut World<'_, H>, hand: Hand, max: u32) -> Vec<&str> {
        let ids = world.grab_ids(hand, max);
        ids.iter().map(|id| self.0.get(id).copied().unwrap_or("?")).collect()
    }
}

fn shares_take_turns_whatever_came_first<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 6);
    jobs.add(world, "b", 2);
    jobs.add(world, "c", 2);
    assert_eq!(jobs.claim(world, hand, 4), ["a", "b", "c", "a"]);
    // What was claimed before counts for the next claim.
    assert_eq!(jobs.claim(world, hand, 6), ["b", "c", "a", "a", "a", "a"]);
}

fn weights_say_how_often_a_share_has_its_turn<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[("b", 3)])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 20);
    jobs.add(world, "b", 20);
    let claimed = jobs.claim(world, hand, 16);
    assert_eq!(claimed.iter().filter(|tenant| **tenant == "b").count(), 12, "{claimed:?}");
}

fn slot_time_counts_and_not_starts<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 40);
    jobs.add(world, "b", 40);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..33 {
        let claims = world.grab(hand, 1);
        let claimed = claims.jobs.first().unwrap();
        let tenant = *jobs.0.get(&claimed.job.id).unwrap();
        world.wait(Span::from_secs(if tenant == "a" { 10 } else { 1 }));
        world.finish(claimed, hand, ReportedOutcome::Completed).unwrap();
        *counts.entry(tenant).or_default() += 1;
    }
    // One of a's takes as long as ten of b's.
    assert!(counts["a"] <= 4 && counts["b"] >= 29, "{counts:?}");
}

fn jobs_without_the_key_are_one_share<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 3);
    jobs.add(world, "", 4);
    let other = world.with_keys(&[("account", "7")]);
    jobs.0.insert(other, "");
    jobs.add(world, "b", 1);
    assert_eq!(jobs.claim(world, hand, 9), ["a", "", "b", "a", "", "a", "", "", ""]);
}

fn priority_goes_first_and_shares_hold_within_it<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 2);
    jobs.add(world, "b", 2);
    for _ in 0..3 {
        let mut job = world.job();
        job.keys = crate::conformance::limit::keys(&[("tenant", "a")]);
        job.priority = 5;
        let id = world.add(job);
        jobs.0.insert(id, "urgent");
    }
    let expected = ["urgent", "urgent", "urgent", "a", "b", "a", "b"];
    assert_eq!(jobs.claim(world, hand, 10), expected);
}

fn limits_stop_a_share_and_the_others_go_on<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (name, scope) = (LimitName::new("tenant").unwrap(), Scope::Key("tenant".into()));
    world.limit(Limit { name, scope, concurrency: Some(2), rate: None });
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 5);
    jobs.add(world, "b", 3);
    jobs.add(world, "c", 1);
    assert_eq!(jobs.claim(world, hand, 10), ["a", "b", "c", "a", "b"]);
    assert!(jobs.claim(world, hand, 10).is_empty());
}

fn settings_act_at_once_on_jobs_that_are_stored<H: Harness>(world: &mut World<'_, H>) {
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 8);
    jobs.add(world, "b", 8);
    assert_eq!(jobs.claim(world, hand, 2), ["a", "a"]);
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    assert_eq!(jobs.claim(world, hand, 4), ["a", "b", "a", "b"]);
    let unset = QueueChange { fair_by: Change::Unset, ..QueueChange::default() };
    world.set_queue(QUEUE, unset).unwrap();
    assert_eq!(jobs.claim(world, hand, 3), ["a", "a", "a"]);
}

fn many_shares_all_have_their_turn<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 200);
    let tenants: Vec<String> = (0..100).map(|n| format!("t{n}")).collect();
    for tenant in &tenants {
        let id = world.of_tenant(tenant);
        jobs.0.insert(id, "other");
    }
    let (mut left, mut claims) = (100, 0);
    while left > 0 {
        let claimed = jobs.claim(world, hand, 10);
        assert_eq!(claimed.len(), 10, "there are more");
        left -= claimed.iter().filter(|tenant| **tenant == "other").count();
        claims += 1;
    }
    // Each claim sees some of the shares.
    assert!(claims <= 25, "{claims} claims of 10 for 100 tenants");
}

/// A claim that walked once left the place where it ended, and all others began there.
fn many_shares_all_have_their_turn_after_a_walk<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 300);
    let tenants: Vec<String> = (0..100).map(|n| format!("t{n}")).collect();
    let mut of: BTreeMap<JobId, &str> = BTreeMap::new();
    for _ in 0..8 {
        of.extend(tenants.iter().map(|tenant| (world.of_tenant(tenant), &**tenant)));
    }
    world.limit(per_tenant(1));
    assert_eq!(world.grab(hand, 60).jobs.len(), 60);
    world.limit(per_tenant(1_000));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for _ in 0..25 {
        let claimed = world.grab_ids(hand, 10);
        assert_eq!(claimed.len(), 10, "there are more");
        seen.extend(claimed.iter().filter_map(|id| of.get(id)));
    }
    assert_eq!(seen.len(), 100, "of 100 tenants");
}

fn other_queues_keep_their_order<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    jobs.add(world, "a", 2);
    for _ in 0..2 {
        let mut job = world.job();
        job.class.queue = "mail".into();
        let id = world.add(job);
        jobs.0.insert(id, "mail");
    }
    jobs.add(world, "b", 1);
    // The fair queue has the places of its jobs, whichever of them they go to.
    assert_eq!(jobs.claim(world, hand, 10), ["a", "b", "mail", "mail", "a"]);
}

fn claims_of_fair_and_other_queues_go_by_priority_and_age<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    mail(world, &mut jobs, 2, 0);
    jobs.add(world, "a", 3);
    jobs.add(world, "b", 1);
    mail(world, &mut jobs, 2, 0);
    jobs.add(world, "a", 1);
    mail(world, &mut jobs, 40, 0);
    jobs.add(world, "c", 1);
    assert_eq!(jobs.claim(world, hand, 1), ["mail"], "all others are younger");
    assert_eq!(jobs.claim(world, hand, 3), ["mail", "a", "b"]);
    mail(world, &mut jobs, 1, 5);
    let mut job = world.job();
    job.keys = crate::conformance::limit::keys(&[("tenant", "a")]);
    job.priority = 5;
    let id = world.add(job);
    jobs.0.insert(id, "urgent");
    // The youngest share has the places of the fair queue that come first.
    assert_eq!(jobs.claim(world, hand, 4), ["mail", "urgent", "c", "a"]);
    assert_eq!(jobs.claim(world, hand, 3), ["a", "mail", "mail"]);
    assert_eq!(jobs.claim(world, hand, 39), [&["a"], ["mail"; 38].as_slice()].concat());
    assert_eq!(jobs.claim(world, hand, 9), ["mail"; 2]);
}

fn mail<H: Harness>(world: &mut World<'_, H>, jobs: &mut Jobs, count: usize, priority: i8) {
    for _ in 0..count {
        let mut job = world.job();
        job.class.queue = "mail".into();
        job.priority = priority;
        let id = world.add(job);
        jobs.0.insert(id, "mail");
    }
}

fn limited_queue_keeps_its_order_beside_a_fair_one<H: Harness>(world: &mut World<'_, H>) {
    world.set_queue(QUEUE, fair_by("tenant", &[])).unwrap();
    let (name, scope) = (LimitName::new("mail").unwrap(), Scope::Queue("mail".into()));
    world.limit(Limit { name, scope, concurrency: Some(30), rate: None });
    let (hand, mut jobs) = (world.worker(), Jobs::default());
    mail(world, &mut jobs, 20, 0);
    jobs.add(world, "a", 2);
    jobs.add(world, "b", 2);
    mail(world, &mut jobs, 20, 0);
    jobs.add(world, "a", 1);
    assert_eq!(jobs.claim(world, hand, 19), ["mail"; 19]);
    assert_eq!(jobs.claim(world, hand, 6), ["mail", "a", "b", "a", "b", "mail"]);
    assert_eq!(jobs.claim(world, hand, 20), [["mail"; 9].as_slice(), &["a"]].concat());
    assert!(jobs.claim(world, hand, 20).is_empty());
}

/// How many jobs the store says go before one, of those with the same keys.
fn ahead<H: Harness>(world: &World<'_, H>, job: JobId, max: u32) -> u64 {
    let stored = world.ask(world.store().job(job)).unwrap().job;
    let (class, lane, priority) = (stored.class, stored.keys.lane(), stored.priority);
    let query = AheadQuery { job, class, lane, priority, max };
    world.ask(world.store().ahead(query))
}

fn job_knows_how_many_go_before_it_in_its_lane<H: Harness>(world: &mut World<'_, H>) {
    let mut ids: BTreeMap<&str, Vec<JobId>> = BTreeMap::new();
    for tenant in ["a", "b", "a", "", "a", "", "b"] {
        let id = if tenant.is_empty() { world.add_plain() } else { world.of_tenant(tenant) };
        ids.entry(tenant).or_default().push(id);
    }
    for jobs in ids.values() {
        let counts: Vec<u64> = jobs.iter().map(|job| ahead(world, *job, 100)).collect();
        let expected: Vec<u64> = (0..).take(jobs.len()).collect();
        assert_eq!(counts, expected);
    }
    assert_eq!(ahead(world, ids["a"][2], 1), 1, "counting stops");
}

/// The next one of its share was said to have one more before it: itself.
fn job_that_came_back_to_the_front_does_not_go_before_itself<H: Harness>(world: &mut World<'_, H>) {
    for of in ["a", ""] {
        let add = |world: &mut World<'_, H>, count: usize| -> Vec<JobId> {
            let one = |_| if of.is_empty() { world.add_plain() } else { world.of_tenant(of) };
            (0..count).map(one).collect()
        };
        let hand = world.worker();
        let mut jobs = add(world, 2);
        let held = world.grab_ids(hand, 9);
        jobs.extend(add(world, 1));
        world.bury(hand.worker);
        let counts = jobs.iter().map(|job| ahead(world, *job, 9));
        assert_eq!((held, counts.collect::<Vec<_>>()), (jobs[..2].to_vec(), vec![0, 1, 2]), "{of}");
        let hand = world.worker();
        assert_eq!(world.grab_ids(hand, 9), jobs);
    }
}
