//! Limits: what they hold back, and what gives a slot back.

use outlast_core::gate::Rate;
use outlast_core::id::JobId;
use outlast_core::keys::Keys;
use outlast_core::limit::{GateId, Limit, LimitName, Scope, Subject};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, Command, LapseScope, Prune, RemoveLimit,
    ReportedOutcome, SetLimit,
};
use outlast_store::limit::{GateQuery, LimitChange, LimitRefusal};
use outlast_store::reply::{Claimed, Claims, Reply};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::{Hand, LEASE, VISIBILITY, World, failed};

cases![
    each_value_of_a_key_has_its_own_slots,
    queues_and_types_have_slots_together,
    job_passes_all_its_limits_or_none,
    limit_reaches_jobs_that_are_stored_and_no_attempt_that_runs,
    every_end_of_an_attempt_gives_its_slots_back,
    slot_of_a_cancelled_job_is_kept_until_its_processes_are_gone,
    slots_of_a_worker_that_is_given_up_are_free,
    attempt_that_starts_in_the_batch_that_ends_another_takes_its_slot,
    lowered_limit_lets_none_start_until_enough_have_ended,
    removed_limit_holds_nothing_back,
    rate_lets_no_more_start_in_any_window,
    rate_says_when_it_opens,
    changed_rate_does_not_wait_for_what_the_old_one_used,
    limit_of_the_configuration_is_not_changed_by_others,
    plain_fetches_obey_limits,
    what_gates_count_survives_a_crash,
    gates_that_are_not_in_use_are_forgotten_and_others_are_not,
    gate_of_a_claim_of_the_same_batch_is_in_use,
    prune_says_that_there_are_more_gates_to_forget,
    claim_leaves_the_jobs_that_it_avoids_to_others,
    plain_fetch_leaves_the_jobs_that_it_avoids_to_others,
];

/// Workers that avoid what they have failed take what others have, with limits and without, and no
/// slot is lost for it.
fn claim_leaves_the_jobs_that_it_avoids_to_others<H: Harness>(world: &mut World<'_, H>) {
    for limits in
        [vec![], vec![limit("all", Scope::Queue("default".into()), 4)], vec![per_tenant(4)]]
    {
        let is_limited = !limits.is_empty();
        for limit in limits {
            world.limit(limit);
        }
        let (one, other) = (world.worker(), world.worker());
        let jobs: Vec<JobId> = (0..4).map(|_| world.of_tenant("a")).collect();
        let claim = |world: &World<'_, H>, hand: Hand, max: u32, avoids: &[JobId]| {
            Command::Claim(Claim {
                claimant: hand.claimant(),
                from: world.all_classes(),
                max: max.try_into().unwrap(),
                is_prefetch: false,
                avoids: avoids.to_vec(),
                asked: AskedByQueues::default(),
            })
        };
        // It takes none of these, alone and beside another.
        let none = claim(world, one, 4, &jobs);
        let beside = [claim(world, one, 4, &jobs[..3]), claim(world, other, 2, &jobs[3..])];
        let replies = world.apply(vec![none]).replies;
        let [Reply::Claimed(Ok(none))] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!((none.jobs.len(), none.passed_over.len()), (0, 1), "{none:?}");
        let replies = world.apply(beside.into()).replies;
        let mut held = Vec::new();
        for (reply, (hand, avoids)) in replies.iter().zip([(one, &jobs[..3]), (other, &jobs[3..])])
        {
            let Reply::Claimed(Ok(claims)) = reply else { panic!("{replies:?}") };
            assert!(claims.jobs.iter().all(|it| !avoids.contains(&it.job.id)), "{claims:?}");
            held.extend(claims.jobs.iter().map(|it| (hand, it.clone())));
        }
        if !is_limited {
            assert_eq!(held.iter().filter(|(hand, _)| *hand == one).count(), 1);
            assert_eq!(held.len(), 3);
        }
        // What is left is there for others, and all slots are.
        let rest = world.claim(other, 4);
        held.extend(rest.into_iter().map(|it| (other, it)));
        let mut ids: Vec<JobId> = held.iter().map(|(_, it)| it.job.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, jobs);
        world.check_gates();
        for (hand, it) in held {
            world.finish(&it, hand, ReportedOutcome::Completed).unwrap();
        }
    }
}

/// It gets the jobs behind them, however few it asks for.
fn plain_fetch_leaves_the_jobs_that_it_avoids_to_others<H: Harness>(world: &mut World<'_, H>) {
    for limits in
        [vec![], vec![limit("all", Scope::Queue("default".into()), 20)], vec![per_tenant(20)]]
    {
        for limit in limits {
            world.limit(limit);
        }
        let jobs: Vec<JobId> = (0..3).map(|_| world.of_tenant("a")).collect();
        let fetch = |avoids: &[JobId]| {
            Command::Claim(Claim {
                claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(60) },
                from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
                max: std::num::NonZeroU32::MIN,
                is_prefetch: false,
                avoids: avoids.to_vec(),
                asked: AskedByQueues::default(),
            })
        };
        let mut got = Vec::new();
        for avoids in [&jobs[..2], &jobs[..2], &jobs[..1], &[]] {
            let replies = world.apply(vec![fetch(avoids)]).replies;
            let [Reply::Claimed(Ok(claims))] = &replies[..] else { panic!("{replies:?}") };
            got.push(claims.jobs.first().map(|it| it.job.id));
        }
        assert_eq!(got, [Some(jobs[2]), None, Some(jobs[1]), Some(jobs[0])]);
        world.check_gates();
    }
}

/// A prune once deleted a gate that was made a moment before in its own batch.
fn gate_of_a_claim_of_the_same_batch_is_in_use<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    world.of_tenant("a");
    let (claimant, from) = (hand.claimant(), world.all_classes());
    let claim = Claim {
        claimant,
        from,
        max: std::num::NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    let (leadership, now) = (world.retention(), world.now());
    let (finished_before, workers_before) = (now, now);
    let prune = Prune { leadership, finished_before, workers_before, limit: 10, from_start: true };
    world.apply(vec![Command::Claim(claim), Command::Prune(prune)]);
    world.check_gates();
    world.of_tenant("a");
    assert_eq!(world.grab_ids(hand, 2), []);
}

fn name(name: &str) -> LimitName {
    LimitName::new(name).unwrap()
}

pub(crate) fn limit(of: &str, scope: Scope, concurrency: u32) -> Limit {
    Limit { name: name(of), scope, concurrency: Some(concurrency), rate: None }
}

pub(super) fn per_tenant(concurrency: u32) -> Limit {
    limit("tenant", Scope::Key("tenant".into()), concurrency)
}

pub(super) fn per_queue(concurrency: u32) -> Limit {
    limit("queue", Scope::Queue("default".into()), concurrency)
}

pub(crate) fn keys(of: &[(&str, &str)]) -> Keys {
    Keys::new(of.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()).unwrap()
}

impl<H: Harness> World<'_, H> {
    fn try_limit(&mut self, limit: Limit, configured: bool) -> Result<LimitChange, LimitRefusal> {
        let order = SetLimit { limit, configured, by: "operator".into() };
        match self.one(Command::SetLimit(Box::new(order))) {
            Reply::LimitChanged(changed) => changed,
            other => panic!("not a limit's reply: {other:?}"),
        }
    }

    pub(crate) fn limit(&mut self, limit: Limit) {
        self.try_limit(limit, false).unwrap();
    }

    fn unlimit(&mut self, of: &str, configured: bool) -> Result<LimitChange, LimitRefusal> {
        let order = RemoveLimit { name: name(of), configured, by: "operator".into() };
        match self.one(Command::RemoveLimit(order)) {
            Reply::LimitChanged(changed) => changed,
            other => panic!("not a limit's reply: {other:?}"),
        }
    }

    pub(crate) fn of_tenant(&mut self, tenant: &str) -> JobId {
        self.with_keys(&[("tenant", tenant)])
    }

    pub(crate) fn with_keys(&mut self, of: &[(&str, &str)]) -> JobId {
        let mut job = self.job();
        job.keys = keys(of);
        self.add(job)
    }

    /// Claims from all classes, and compares what gates count with the attempts that hold them.
    pub(crate) fn grab(&mut self, hand: Hand, max: u32) -> Claims {
        let claims = self.claims_by(hand.claimant(), self.all_classes(), max).unwrap();
        self.check_gates();
        claims
    }

    pub(crate) fn grab_ids(&mut self, hand: Hand, max: u32) -> Vec<JobId> {
        self.grab(hand, max).jobs.iter().map(|claimed| claimed.job.id).collect()
    }

    /// What gates count is how many attempts hold them.
    pub(super) fn check_gates(&self) {
        for limit in self.ask(self.store().limits()) {
            let query = GateQuery { name: limit.limit.name, limit: 1_000 };
            for gate in self.ask(self.store().gates(query)) {
                let holders = self.ask(self.store().gate_holders(gate.id, 1_000));
                assert_eq!(u64::try_from(holders.len()).unwrap(), gate.in_flight, "{gate:?}");
            }
        }
    }

    pub(super) fn in_flight(&self, of: &str) -> u64 {
        let query = GateQuery { name: name(of), limit: 1_000 };
        self.ask(self.store().gates(query)).iter().map(|gate| gate.in_flight).sum()
    }
}

pub(crate) fn ids(claimed: &[Claimed]) -> Vec<JobId> {
    claimed.iter().map(|claimed| claimed.job.id).collect()
}

fn each_value_of_a_key_has_its_own_slots<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(2));
    let hand = world.worker();
    let [a1, a2, a3] = [(); 3].map(|()| world.of_tenant("a"));
    let b1 = world.of_tenant("b");
    let free = world.add_plain();
    let claims = world.grab(hand, 10);
    assert_eq!(ids(&claims.jobs), [a1, a2, b1, free]);
    assert_eq!(claims.blocked.len(), 1, "{claims:?}");
    assert_eq!(claims.blocked[0].until, None);
    assert_eq!(world.grab_ids(hand, 10), []);
    world.finish(&claims.jobs[2], hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.grab_ids(hand, 10), []);
    world.finish(&claims.jobs[0], hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.grab_ids(hand, 10), [a3]);
}

fn queues_and_types_have_slots_together<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_queue(3));
    world.limit(limit("slow", Scope::Type("slow".into()), 1));
    let hand = world.worker();
    let mut add = |job_type: &str| {
        let mut job = world.job();
        job.class.job_type = job_type.into();
        world.add(job)
    };
    let [s1, _, w1, w2, _] = ["slow", "slow", "work", "work", "work"].map(&mut add);
    assert_eq!(world.grab_ids(hand, 10), [s1, w1, w2]);
    assert_eq!((world.in_flight("queue"), world.in_flight("slow")), (3, 1));
}

fn job_passes_all_its_limits_or_none<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    world.limit(limit("account", Scope::Key("account".into()), 1));
    let hand = world.worker();
    let first = world.with_keys(&[("tenant", "a"), ("account", "x")]);
    // Neither of them takes a slot of the limit that it would pass.
    let other_account = world.with_keys(&[("tenant", "a"), ("account", "y")]);
    let other_tenant = world.with_keys(&[("tenant", "b"), ("account", "x")]);
    let neither = world.with_keys(&[("tenant", "b"), ("account", "y")]);
    let claims = world.grab(hand, 10);
    assert_eq!(ids(&claims.jobs), [first, neither]);
    for claimed in &claims.jobs {
        world.finish(claimed, hand, ReportedOutcome::Completed).unwrap();
    }
    assert_eq!(world.grab_ids(hand, 10), [other_account, other_tenant]);
}

fn limit_reaches_jobs_that_are_stored_and_no_attempt_that_runs<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let [_, second, third] = [(); 3].map(|()| world.of_tenant("a"));
    let running = world.grab(hand, 1);
    world.limit(per_tenant(1));
    assert_eq!(world.grab_ids(hand, 10), [second]);
    world.finish(&running.jobs[0], hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.grab_ids(hand, 10), [], "what was not counted gives nothing back");
    assert_eq!(world.in_flight("tenant"), 1);
    assert_eq!(world.read(third).state, outlast_core::job::State::Available);
}

fn every_end_of_an_attempt_gives_its_slots_back<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    let ends = [
        ReportedOutcome::Completed,
        failed(),
        ReportedOutcome::TimedOut,
        ReportedOutcome::Interrupted,
        ReportedOutcome::NotStarted,
        ReportedOutcome::Lost,
    ];
    for (n, reported) in ends.into_iter().enumerate() {
        world.of_tenant(&format!("t{n}"));
        let claims = world.grab(hand, 1);
        assert_eq!(claims.jobs.len(), 1);
        let started = !matches!(reported, ReportedOutcome::NotStarted);
        if started {
            world.start(&claims.jobs[0], hand).unwrap();
        }
        assert_eq!(world.in_flight("tenant"), 1, "{reported:?}");
        world.finish(&claims.jobs[0], hand, reported.clone()).unwrap();
        assert_eq!(world.in_flight("tenant"), 0, "{reported:?}");
        // Or the next claim takes it again.
        let left = world.read(claims.jobs[0].job.id);
        if !left.state.is_terminal() {
            world.cancel(left.job.id).unwrap();
        }
    }
}

fn slot_of_a_cancelled_job_is_kept_until_its_processes_are_gone<H: Harness>(
    world: &mut World<'_, H>,
) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    let first = world.of_tenant("a");
    let second = world.of_tenant("a");
    let claims = world.grab(hand, 10);
    world.start(&claims.jobs[0], hand).unwrap();
    world.cancel(first).unwrap();
    assert_eq!(world.grab_ids(hand, 10), []);
    // Its end is noted, and the job stays cancelled.
    assert!(world.finish(&claims.jobs[0], hand, ReportedOutcome::Interrupted).is_err());
    assert_eq!(world.grab_ids(hand, 10), [second]);
}

fn slots_of_a_worker_that_is_given_up_are_free<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let (lost, other) = (world.worker(), world.worker());
    let first = world.of_tenant("a");
    world.of_tenant("a");
    let claims = world.grab(lost, 10);
    world.start(&claims.jobs[0], lost).unwrap();
    assert_eq!(world.grab_ids(other, 10), []);
    world.wait(LEASE);
    let alive = world.worker();
    world.lapse(lost.worker, LapseScope::Everything).unwrap();
    world.wait(Span::from_secs(3600));
    world.sweep();
    let next = world.grab_ids(alive, 10);
    assert_eq!(next, [first], "the lost one goes first, and alone");
    let late = world.finish(&claims.jobs[0], lost, ReportedOutcome::Completed);
    assert!(late.is_err(), "{late:?}");
    assert_eq!(world.in_flight("tenant"), 1, "a late report gives nothing back");
}

fn attempt_that_starts_in_the_batch_that_ends_another_takes_its_slot<H: Harness>(
    world: &mut World<'_, H>,
) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    world.of_tenant("a");
    let second = world.of_tenant("a");
    let first = world.grab(hand, 1).jobs.remove(0);
    let classes = world.ask(world.store().backlog()).into_iter().map(|class| class.id).collect();
    let claim = Command::Claim(Claim {
        claimant: Claimant::Native { worker: hand.worker, session: hand.session },
        from: ClaimFrom::Classes(classes),
        max: std::num::NonZeroU32::new(5).unwrap(),
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    });
    let finish = crate::conformance::world::finish(
        first.job.id,
        hand.fence(first.epoch),
        ReportedOutcome::Completed,
    );
    let applied = world.apply(vec![finish, claim]);
    assert!(applied.freed);
    match &applied.replies[1] {
        Reply::Claimed(Ok(claims)) => assert_eq!(ids(&claims.jobs), [second]),
        other => panic!("nothing was claimed: {other:?}"),
    }
    assert_eq!(world.in_flight("tenant"), 1);
}

fn lowered_limit_lets_none_start_until_enough_have_ended<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(3));
    let hand = world.worker();
    for _ in 0..6 {
        world.of_tenant("a");
    }
    let running = world.grab(hand, 10).jobs;
    assert_eq!(running.len(), 3);
    world.limit(per_tenant(1));
    for (n, claimed) in running.iter().enumerate() {
        world.finish(claimed, hand, ReportedOutcome::Completed).unwrap();
        assert_eq!(world.grab(hand, 10).jobs.len(), usize::from(n == 2));
    }
}

fn removed_limit_holds_nothing_back<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(0));
    let hand = world.worker();
    let job = world.of_tenant("a");
    assert_eq!(world.grab_ids(hand, 10), []);
    assert_eq!(world.unlimit("tenant", false), Ok(LimitChange::Removed));
    assert_eq!(world.unlimit("tenant", false), Ok(LimitChange::NotFound));
    assert_eq!(world.grab_ids(hand, 10), [job]);
}

fn rate_lets_no_more_start_in_any_window<H: Harness>(world: &mut World<'_, H>) {
    let rate = Rate::new(20, Span::from_secs(10));
    let scope = Scope::Type("work".into());
    world.limit(Limit { name: name("rate"), scope, concurrency: None, rate });
    let hand = world.worker();
    for _ in 0..100 {
        world.add_plain();
    }
    let mut starts: Vec<Timestamp> = Vec::new();
    for _ in 0..200 {
        let now = world.now();
        let claims = world.grab(hand, 7);
        starts.extend(claims.jobs.iter().map(|_| now));
        for claimed in &claims.jobs {
            world.finish(claimed, hand, ReportedOutcome::Completed).unwrap();
        }
        world.wait(Span(137));
    }
    for (n, first) in starts.iter().enumerate() {
        let window = starts[n..].iter().filter(|at| at.0 < first.0 + 10_000).count();
        assert!(window <= 20, "{window} started within 10 s");
    }
    assert!(starts.len() > 45, "only {} started in 27 s", starts.len());
}

fn rate_says_when_it_opens<H: Harness>(world: &mut World<'_, H>) {
    let rate = Rate::new(1, Span::from_secs(60));
    let scope = Scope::Key("tenant".into());
    world.limit(Limit { name: name("rate"), scope, concurrency: None, rate });
    let hand = world.worker();
    world.of_tenant("a");
    let second = world.of_tenant("a");
    let began = world.now();
    let claims = world.grab(hand, 10);
    assert_eq!(claims.jobs.len(), 1);
    assert_eq!(claims.blocked[0].until, Some(began.after(Span::from_secs(60))));
    world.finish(&claims.jobs[0], hand, ReportedOutcome::Completed).unwrap();
    world.wait(Span(59_999));
    assert_eq!(world.grab_ids(hand, 10), []);
    world.wait(Span(1));
    assert_eq!(world.grab_ids(hand, 10), [second]);
}

fn changed_rate_does_not_wait_for_what_the_old_one_used<H: Harness>(world: &mut World<'_, H>) {
    let rate = |starts, period| Limit {
        name: name("rate"),
        scope: Scope::Key("tenant".into()),
        concurrency: None,
        rate: Rate::new(starts, period),
    };
    let hand = world.worker();
    for removed in [false, true] {
        world.limit(rate(1, Span::from_secs(86_400)));
        let [_, second, _] = [(); 3].map(|()| world.of_tenant(&format!("removed-{removed}")));
        assert_eq!(world.grab_ids(hand, 10).len(), 1);
        if removed {
            world.unlimit("rate", false).unwrap();
        }
        world.limit(rate(10, Span::from_secs(1)));
        assert_eq!(world.grab_ids(hand, 10), []);
        world.wait(Span::from_secs(1));
        assert_eq!(world.grab_ids(hand, 10), [second]);
        world.unlimit("rate", false).unwrap();
        assert_eq!(world.grab(hand, 10).jobs.len(), 1);
    }
}

fn limit_of_the_configuration_is_not_changed_by_others<H: Harness>(world: &mut World<'_, H>) {
    assert_eq!(world.try_limit(per_tenant(1), false), Ok(LimitChange::Created));
    assert_eq!(world.try_limit(per_tenant(1), false), Ok(LimitChange::Unchanged));
    assert_eq!(world.try_limit(per_tenant(2), true), Ok(LimitChange::Replaced));
    assert_eq!(world.try_limit(per_tenant(3), false), Err(LimitRefusal::Configured));
    assert_eq!(world.unlimit("tenant", false), Err(LimitRefusal::Configured));
    let stored = world.ask(world.store().limits());
    assert_eq!(stored.len(), 1);
    assert_eq!((&stored[0].limit, stored[0].configured), (&per_tenant(2), true));
    assert_eq!(world.unlimit("tenant", true), Ok(LimitChange::Removed));
    let rate = Rate::new(100, Span::from_secs(60));
    let limit = Limit { rate, concurrency: None, ..per_queue(1) };
    world.limit(limit.clone());
    assert_eq!(world.unlimit("queue", true), Ok(LimitChange::Unchanged));
    assert_eq!(world.ask(world.store().limits())[0].limit, limit);
}

fn plain_fetches_obey_limits<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let [a, _, b] = ["a", "a", "b"].map(|tenant| world.of_tenant(tenant));
    let from = || ClaimFrom::Queues { queues: vec!["default".into()], tenant: None };
    let claimant = || Claimant::Plain { worker: None, visibility: VISIBILITY };
    let taken = world.claim_by(claimant(), from(), 10).unwrap();
    assert_eq!(ids(&taken), [a, b]);
    world.check_gates();
    world.wait(VISIBILITY);
    world.wait(Span::from_secs(1));
    world.sweep();
    assert_eq!(world.in_flight("tenant"), 0);
}

fn what_gates_count_survives_a_crash<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    world.of_tenant("a");
    let second = world.of_tenant("a");
    let first = world.grab(hand, 1).jobs.remove(0);
    world.crash();
    assert_eq!(world.grab_ids(hand, 10), []);
    world.finish(&first, hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.grab_ids(hand, 10), [second]);
    let keys = keys(&[("tenant", "a")]);
    let subject = Subject { queue: "default", job_type: "work", keys: &keys };
    let limit = per_tenant(1);
    let gate: GateId = limit.gate_of(subject).unwrap().id();
    let states = world.ask(world.store().gate_states(vec![gate]));
    assert_eq!((states[0].in_flight, states[0].value.as_deref()), (1, Some("a")));
}

fn gates_that_are_not_in_use_are_forgotten_and_others_are_not<H: Harness>(
    world: &mut World<'_, H>,
) {
    let rate = Rate::new(1, Span::from_secs(600));
    let scope = Scope::Key("account".into());
    world.limit(Limit { name: name("rate"), scope, concurrency: None, rate });
    world.limit(per_tenant(1));
    let hand = world.worker();
    world.of_tenant("ended");
    world.of_tenant("running");
    let rated = [(); 2].map(|()| world.with_keys(&[("account", "a")]));
    for claimed in world.grab(hand, 10).jobs {
        if claimed.job.keys.get("tenant") != Some("running") {
            world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
        }
    }
    world.of_tenant("running");
    for _ in 0..2 {
        let pruned_before = world.now();
        world.prune(Timestamp(pruned_before.0 - 1_000_000));
        assert_eq!(world.grab_ids(hand, 10), [], "what is in use still counts");
    }
    assert_eq!(world.in_flight("tenant"), 1);
    world.wait(Span::from_secs(600));
    for _ in 0..3 {
        let now = world.now();
        world.prune(Timestamp(now.0 - 1_000_000));
    }
    assert_eq!(world.grab_ids(hand, 10), [rated[1]]);
}

fn prune_says_that_there_are_more_gates_to_forget<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    let jobs: Vec<JobId> = (0..150).map(|n| world.of_tenant(&format!("t{n}"))).collect();
    let claims = world.grab(hand, 150);
    assert_eq!(claims.jobs.len(), jobs.len());
    let gates = claims.jobs.iter().map(|claimed| {
        let subject = Subject { queue: "default", job_type: "work", keys: &claimed.job.keys };
        per_tenant(1).gate_of(subject).unwrap().id()
    });
    let gates: Vec<GateId> = gates.collect();
    for claimed in &claims.jobs {
        world.finish(claimed, hand, ReportedOutcome::Completed).unwrap();
    }
    let mut prunes = 1;
    while world.prune(Timestamp(0)).more {
        prunes += 1;
    }
    assert!((2..10).contains(&prunes), "{prunes}");
    assert_eq!(world.ask(world.store().gate_states(gates)), []);
}
