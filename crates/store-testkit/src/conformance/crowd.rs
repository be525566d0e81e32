//! Limits with far more lanes than one claim looks at: which of them is open.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use outlast_core::gate::Rate;
use outlast_core::limit::Limit;
use outlast_core::time::Span;
use outlast_store::command::{AskedByQueues, Claim, ClaimFrom, Command, NewJob, ReportedOutcome};
use outlast_store::reply::{Claimed, Claims, Reply};

use crate::conformance::Harness;
use crate::conformance::limit::{keys, per_tenant};
use crate::conformance::world::{Hand, World, finish};

cases![
    lane_of_very_many_gets_the_slot_that_its_own_job_has_left,
    lane_of_very_many_gets_the_slot_that_a_job_with_other_keys_has_left,
    lane_of_very_many_that_opens_by_itself_is_found_in_a_few_claims,
];

/// How many tenants there are.
const CROWD: usize = 600;

/// Tenants, most of which run as many jobs as they may.
struct Crowd {
    hand: Hand,
    from: ClaimFrom,
    running: BTreeMap<String, Claimed>,
}

impl Crowd {
    fn new<H: Harness>(world: &mut World<'_, H>) -> Self {
        let (hand, from) = (world.worker(), world.all_classes());
        Self { hand, from, running: BTreeMap::new() }
    }

    /// Claims, and remembers what runs. It does not look at each of so many gates.
    fn claim<H: Harness>(&mut self, world: &mut World<'_, H>, max: u32) -> Vec<String> {
        let claims = world.claims_by(self.hand.claimant(), self.from.clone(), max).unwrap();
        self.started(claims)
    }

    fn started(&mut self, claims: Claims) -> Vec<String> {
        let tenant = |claimed: &Claimed| claimed.job.keys.get("tenant").unwrap().to_owned();
        let tenants = claims.jobs.iter().map(tenant).collect();
        self.running.extend(claims.jobs.into_iter().map(|claimed| (tenant(&claimed), claimed)));
        tenants
    }

    /// All tenants start what they may.
    fn start<H: Harness>(&mut self, world: &mut World<'_, H>) {
        while self.running.len() < CROWD {
            assert!(!self.claim(world, 100).is_empty());
        }
    }

    /// Returns the end of what a tenant runs.
    fn end(&mut self, tenant: &str) -> Command {
        let ended = self.running.remove(tenant).unwrap();
        finish(ended.job.id, self.hand.fence(ended.epoch), ReportedOutcome::Completed)
    }
}

/// Adds a job of each tenant that has another key, too.
fn add<H: Harness>(world: &mut World<'_, H>, job_type: &str, with: &[(&str, &str)]) {
    let jobs = (0..CROWD).map(|n| {
        let mut job = world.job();
        job.class.job_type = job_type.into();
        job.keys = keys(&[&[("tenant", format!("t{n}").as_str())], with].concat());
        job
    });
    let jobs: Vec<NewJob> = jobs.collect();
    let reply = world.one(Command::EnqueueAll(jobs));
    assert!(matches!(reply, Reply::EnqueuedAll(Ok(_))), "{reply:?}");
}

/// A claim walks through some hundred lanes. The one that was open was found by chance.
fn lane_of_very_many_gets_the_slot_that_its_own_job_has_left<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    (0..3).for_each(|_| add(world, "work", &[]));
    let mut crowd = Crowd::new(world);
    crowd.start(world);
    for n in [0, 77, 314, 599] {
        let tenant = format!("t{n}");
        let end = crowd.end(&tenant);
        world.one(end);
        assert_eq!(crowd.claim(world, 10), [tenant]);
        assert_eq!(crowd.claim(world, 10), [""; 0]);
    }
    // Also in the batch in which the job ends, and by a server that has just been started.
    world.crash();
    for n in [5, 500] {
        let tenant = format!("t{n}");
        let claim = Command::Claim(Claim {
            claimant: crowd.hand.claimant(),
            from: crowd.from.clone(),
            max: NonZeroU32::new(10).unwrap(),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        });
        let end = crowd.end(&tenant);
        let mut replies = world.apply(vec![end, claim]).replies;
        let Some(Reply::Claimed(Ok(claims))) = replies.pop() else { panic!("not refused") };
        assert_eq!(crowd.started(claims), [tenant]);
    }
}

/// The slot of a tenant may go to jobs of other types, and to such with other keys.
fn lane_of_very_many_gets_the_slot_that_a_job_with_other_keys_has_left<H: Harness>(
    world: &mut World<'_, H>,
) {
    world.limit(per_tenant(1));
    add(world, "first", &[]);
    let mut crowd = Crowd::new(world);
    crowd.start(world);
    add(world, "second", &[]);
    add(world, "second", &[("order", "1")]);
    crowd.from = world.all_classes();
    // Claims that find nothing come by all lanes.
    (0..10).for_each(|_| assert_eq!(crowd.claim(world, 10), [""; 0]));
    for n in [3, 300, 590] {
        let tenant = format!("t{n}");
        for _ in 0..2 {
            let end = crowd.end(&tenant);
            world.one(end);
            assert_eq!(crowd.claim(world, 10), [tenant.as_str()]);
        }
    }
}

/// Nothing says which lane is open: so it is where another server has ended its job, too.
fn lane_of_very_many_that_opens_by_itself_is_found_in_a_few_claims<H: Harness>(
    world: &mut World<'_, H>,
) {
    let (hour, step) = (Span::from_secs(3600), Span::from_secs(2));
    world.limit(Limit { rate: Rate::new(1, hour), concurrency: None, ..per_tenant(1) });
    (0..2).for_each(|_| add(world, "work", &[]));
    let mut crowd = Crowd::new(world);
    let early: Vec<String> = (0..20)
        .flat_map(|_| {
            world.wait(step);
            crowd.claim(world, 1)
        })
        .collect();
    assert_eq!(early.len(), 20);
    world.wait(Span(hour.0 / 2));
    crowd.start(world);
    world.wait(Span(hour.0 / 2 - 20 * step.0));
    for tenant in early {
        world.wait(step);
        // Each comes by more than a third of the lanes.
        let found: Vec<String> = (0..3).flat_map(|_| crowd.claim(world, 10)).collect();
        assert_eq!(found, [tenant]);
    }
}
