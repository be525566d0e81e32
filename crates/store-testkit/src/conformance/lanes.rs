//! Claims by limits: among which lanes they look, and in what order.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use outlast_core::gate::Rate;
use outlast_core::id::JobId;
use outlast_core::limit::{Limit, Scope};
use outlast_core::time::Span;
use outlast_store::command::{AskedByQueues, Claim, ClaimFrom, ClassId, Command, ReportedOutcome};
use outlast_store::reply::{Claimed, Claims, Reply};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::limit::{ids, keys, limit, per_queue, per_tenant};
use crate::conformance::queue::fair_by;
use crate::conformance::world::{Hand, World};

cases![
    claim_finds_open_lanes_behind_many_shut_ones,
    many_short_lanes_are_all_taken_at_once,
    priority_and_age_decide_among_many_lanes,
    one_claim_finds_the_open_one_of_many_lanes,
    limited_jobs_go_in_the_order_of_the_others,
    expired_jobs_at_the_front_of_a_lane_hold_up_no_others,
    all_that_one_claim_takes_counts,
    slot_that_is_free_again_goes_to_the_next_job_of_its_lane,
    prefetch_takes_what_limits_let_start_and_nothing_of_a_rate,
    open_lane_behind_shut_jobs_has_its_turn_beside_another_queue,
    open_lane_behind_shut_jobs_has_its_turn_beside_a_fair_queue,
    claims_of_a_batch_take_in_their_order_whether_limits_concern_them_or_not,
];

impl<H: Harness> World<'_, H> {
    fn prefetch(&mut self, hand: Hand, max: u32) -> Claims {
        let (from, max) = (self.all_classes(), NonZeroU32::new(max).unwrap());
        let claim = Claim {
            claimant: hand.claimant(),
            from,
            max,
            is_prefetch: true,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        };
        match self.one(Command::Claim(claim)) {
            Reply::Claimed(Ok(claims)) => claims,
            other => panic!("not refused: {other:?}"),
        }
    }
}

fn claim_finds_open_lanes_behind_many_shut_ones<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    for _ in 0..2 {
        for n in 0..100 {
            world.of_tenant(&format!("t{n}"));
        }
    }
    let mut running: HashMap<JobId, Claimed> = HashMap::new();
    for _ in 0..200 {
        for claimed in world.grab(hand, 20).jobs {
            running.insert(claimed.job.id, claimed);
        }
    }
    assert_eq!(running.len(), 100);
    let by_tenant: BTreeMap<&str, usize> =
        running.values().fold(BTreeMap::new(), |mut counts, claimed| {
            *counts.entry(claimed.job.keys.get("tenant").unwrap()).or_default() += 1;
            counts
        });
    assert!(by_tenant.values().all(|count| *count == 1), "{by_tenant:?}");
}

fn many_short_lanes_are_all_taken_at_once<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    for n in 0..100 {
        world.of_tenant(&format!("t{n}"));
    }
    assert_eq!(world.grab(hand, 64).jobs.len(), 64);
    let claims = world.grab(hand, 64);
    assert_eq!((claims.jobs.len(), claims.passed_over, claims.blocked), (36, vec![], vec![]));
}

fn priority_and_age_decide_among_many_lanes<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    let mut jobs: Vec<JobId> = (0..100).map(|n| world.of_tenant(&format!("t{n}"))).collect();
    for n in 0..10 {
        let mut job = world.job();
        job.priority = 100;
        job.keys = keys(&[("tenant", &format!("urgent-{n}"))]);
        let urgent = world.add(job);
        assert_eq!(world.grab_ids(hand, 1), [urgent]);
        assert_eq!(world.grab_ids(hand, 1), [jobs.remove(0)]);
    }
}

fn one_claim_finds_the_open_one_of_many_lanes<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    for _ in 0..2 {
        for n in 0..200 {
            world.of_tenant(&format!("t{n}"));
        }
    }
    let mut running = Vec::new();
    while running.len() < 200 {
        let claims = world.grab(hand, 100);
        assert!(!claims.jobs.is_empty());
        running.extend(claims.jobs);
    }
    for _ in 0..5 {
        let claims = world.grab(hand, 10);
        assert_eq!((claims.jobs, claims.passed_over.len(), claims.blocked.len()), (vec![], 0, 1));
        let ended = running.swap_remove(77);
        world.finish(&ended, hand, ReportedOutcome::Completed).unwrap();
        let next = world.grab(hand, 10).jobs.remove(0);
        assert_eq!(next.job.keys, ended.job.keys);
    }
}

fn limited_jobs_go_in_the_order_of_the_others<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(10));
    let hand = world.worker();
    let mut expected: Vec<(i8, JobId)> = Vec::new();
    for (n, priority) in [0, 5, -5, 5, 0, 0, 9, 0].into_iter().enumerate() {
        let mut job = world.job();
        job.priority = priority;
        if n % 3 > 0 {
            job.keys = keys(&[("tenant", if n % 3 == 1 { "a" } else { "b" })]);
        }
        expected.push((priority, world.add(job)));
    }
    expected.sort_by_key(|(priority, _)| -priority);
    let expected: Vec<JobId> = expected.into_iter().map(|(_, id)| id).collect();
    let mut taken = world.grab_ids(hand, 3);
    taken.extend(world.grab_ids(hand, 10));
    assert_eq!(taken, expected);
}

fn expired_jobs_at_the_front_of_a_lane_hold_up_no_others<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    for _ in 0..3 {
        let mut job = world.job();
        job.rules.expires_at = Some(world.now().after(Span(10)));
        job.keys = keys(&[("tenant", "a")]);
        world.add(job);
    }
    let [job, of_another] = ["a", "b"].map(|tenant| world.of_tenant(tenant));
    world.wait(Span(11));
    assert_eq!(world.grab_ids(hand, 1), [job], "it is older than that of the other tenant");
    assert_eq!(world.grab_ids(hand, 1), [of_another]);
}

/// A claim that looks several times once forgot what it had taken before.
fn all_that_one_claim_takes_counts<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_queue(12));
    world.limit(per_tenant(1));
    let hand = world.worker();
    // Some tenants are full, and are seen to be.
    for n in (0..10).chain(0..10) {
        world.of_tenant(&format!("t{n}"));
    }
    assert_eq!(world.grab(hand, 11).jobs.len(), 10);
    for n in (0..10).chain(0..10).chain(20..60) {
        world.of_tenant(&format!("t{n}"));
    }
    assert_eq!(world.grab(hand, 30).jobs.len(), 2);
    assert_eq!(world.in_flight("queue"), 12);
    assert_eq!(world.grab(hand, 30).jobs.len(), 0);
    world.check_gates();
}

/// A gate that was full is not taken to be so once an attempt has ended.
fn slot_that_is_free_again_goes_to_the_next_job_of_its_lane<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    let [first, second] = [(); 2].map(|()| world.of_tenant("a"));
    for n in 0..40 {
        world.of_tenant(&format!("t{n}"));
    }
    let taken = world.grab(hand, 3).jobs;
    assert_eq!(taken[0].job.id, first);
    assert_eq!(world.grab(hand, 2).jobs.len(), 2, "tenant a is seen to be full");
    world.finish(&taken[0], hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.grab_ids(hand, 1), [second]);
    let applied = world.grab(hand, 100).jobs;
    assert_eq!(applied.len(), 36);
    world.check_gates();
}

/// A job that waits at a worker holds slots of its limits. A rate counts starts.
fn prefetch_takes_what_limits_let_start_and_nothing_of_a_rate<H: Harness>(
    world: &mut World<'_, H>,
) {
    world.limit(per_tenant(5));
    let hand = world.worker();
    for _ in 0..10 {
        world.of_tenant("a");
    }
    assert_eq!(world.prefetch(hand, 3).jobs.len(), 3);
    let claims = world.prefetch(hand, 8);
    assert_eq!((claims.jobs.len(), claims.kept.len(), claims.blocked.len()), (2, 0, 1));
    world.limit(Limit { rate: Rate::new(100, Span::from_secs(1)), ..per_tenant(6) });
    let claims = world.prefetch(hand, 8);
    assert_eq!((claims.jobs.len(), claims.kept.len()), (0, 1));
    assert_eq!((claims.passed_over, claims.blocked), (vec![], vec![]));
    assert_eq!(world.grab(hand, 8).jobs.len(), 1);
    world.check_gates();
}

fn open_lane_behind_shut_jobs_has_its_turn_beside_another_queue<H: Harness>(
    world: &mut World<'_, H>,
) {
    open_lane_has_its_turn(world);
}

fn open_lane_behind_shut_jobs_has_its_turn_beside_a_fair_queue<H: Harness>(
    world: &mut World<'_, H>,
) {
    world.set_queue("mail", fair_by("account", &[])).unwrap();
    open_lane_has_its_turn(world);
}

/// A queue that always has jobs hides no older one of another queue, however many jobs are shut
/// before it.
fn open_lane_has_its_turn<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    for _ in 0..100 {
        world.of_tenant("busy");
    }
    assert_eq!(world.grab(hand, 10).jobs.len(), 1);
    let open = world.of_tenant("open");
    for _ in 0..80 {
        let mut job = world.job();
        job.class.queue = "mail".into();
        world.add(job);
    }
    let claims = (1..=80).find(|_| world.grab_ids(hand, 1) == [open]);
    assert!(claims.is_some_and(|claims| claims <= 60), "{claims:?}");
}

/// The first one may take from a limited class, too.
fn claims_of_a_batch_take_in_their_order_whether_limits_concern_them_or_not<H: Harness>(
    world: &mut World<'_, H>,
) {
    let (first, second) = (world.worker(), world.worker());
    let of = |world: &World<'_, H>, queue: &str| -> Vec<ClassId> {
        let classes = world.ask(world.store().tally()).into_iter();
        classes.filter(|class| class.key.queue == queue).map(|class| class.id).collect()
    };
    let mut limited = world.job();
    limited.class.queue = "limited".into();
    world.add(limited);
    world.limit(limit("limited", Scope::Queue("limited".into()), 1));
    world.take(first);
    let job = world.add_plain();
    let free = of(world, "default");
    let both = [of(world, "limited"), free.clone()].concat();
    let claim = |hand: Hand, classes: &[ClassId]| {
        Command::Claim(Claim {
            claimant: hand.claimant(),
            from: ClaimFrom::Classes(classes.into()),
            max: NonZeroU32::MIN,
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        })
    };
    let replies = world.apply(vec![claim(first, &both), claim(second, &free)]).replies;
    let [Reply::Claimed(Ok(one)), Reply::Claimed(Ok(other))] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((ids(&one.jobs), ids(&other.jobs)), (vec![job], vec![]));
}
