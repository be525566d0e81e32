//! Shares against a virtual clock: slots, tenants with jobs of known length, and what each gets.

use std::collections::BTreeMap;

use outlast_core::keys::Keys;
use outlast_store::command::ClassId;

use super::*;

const SECOND: i64 = 1_000;

/// An attempt that ran for so many milliseconds.
fn after(seq: i64, ran: i64) -> Ended {
    Ended { seq, ran: Some(Span(u64::try_from(ran).unwrap())) }
}

/// Jobs of a tenant that wait, in order of their numbers.
struct Tenant {
    name: &'static str,
    weight: u32,
    rank: i64,
    /// How long each runs, in milliseconds.
    takes: i64,
    waiting: VecDeque<i64>,
}

/// One server with slots.
#[derive(Default)]
struct Server {
    shares: Shares,
    /// When it is free again, what it runs, for how long, and for whom; by slot.
    busy: Vec<Option<(i64, Ended, &'static str)>>,
}

/// Tenants, servers and a clock in milliseconds.
struct World {
    now: i64,
    seq: i64,
    tenants: Vec<Tenant>,
    servers: Vec<Server>,
    /// Jobs that have ended, by tenant.
    ended: BTreeMap<&'static str, usize>,
}

impl World {
    fn new(slots: &[usize]) -> Self {
        let server = |slots: &usize| Server { shares: Shares::default(), busy: vec![None; *slots] };
        let servers = slots.iter().map(server).collect();
        Self { now: 0, seq: 0, tenants: Vec::new(), servers, ended: BTreeMap::new() }
    }

    fn add(&mut self, name: &'static str, weight: u32, takes: i64, jobs: i64) {
        let waiting = (self.seq..self.seq + jobs).collect();
        self.seq += jobs;
        self.tenants.push(Tenant { name, weight, rank: 0, takes, waiting });
    }

    fn lanes(&self) -> Vec<Lane> {
        let lane = |(n, tenant): (usize, &Tenant)| Lane {
            class: ClassId(1),
            number: Some(i64::try_from(n).unwrap()),
            keys: Arc::new(Keys::default()),
            gates: [].into(),
            share: Some(Share {
                queue: "q".into(),
                value: Some(tenant.name.into()),
                weight: tenant.weight,
            }),
        };
        self.tenants.iter().enumerate().map(lane).collect()
    }

    /// Ends what has run long enough, and gives out jobs to free slots.
    fn step(&mut self) {
        let lanes = self.lanes();
        let now = Timestamp(self.now);
        for server in &mut self.servers {
            for slot in &mut server.busy {
                if let Some((_, ended, name)) = slot.filter(|(until, _, _)| *until <= self.now) {
                    server.shares.ended(ended, now);
                    *self.ended.entry(name).or_default() += 1;
                    *slot = None;
                }
            }
            let free: Vec<usize> =
                (0..server.busy.len()).filter(|at| server.busy[*at].is_none()).collect();
            if free.is_empty() {
                continue;
            }
            let mut heads = Vec::new();
            for (lane, tenant) in self.tenants.iter().enumerate() {
                let first = tenant.waiting.iter().take(free.len());
                heads.extend(first.map(|seq| LaneJob { lane, rank: tenant.rank, seq: *seq }));
            }
            let mut turns = server.shares.turns(&lanes, heads, now);
            let mut chosen = Vec::new();
            while chosen.len() < free.len() {
                let take = |head| {
                    chosen.push(head);
                    true
                };
                if turns.try_next(take).is_none() {
                    break;
                }
            }
            for (head, slot) in chosen.into_iter().zip(free) {
                let tenant = &mut self.tenants[head.lane];
                assert_eq!(tenant.waiting.pop_front(), Some(head.seq), "oldest first");
                server.shares.claimed(&lanes[head.lane], head.rank, head.seq, now);
                let ended = after(head.seq, tenant.takes);
                server.busy[slot] = Some((self.now + tenant.takes, ended, tenant.name));
            }
        }
    }

    /// Runs until a time, in steps of 100 ms.
    fn run_until(&mut self, until: i64) {
        while self.now < until {
            self.step();
            self.now += 100;
        }
        self.step();
    }

    fn ended(&self, name: &str) -> usize {
        self.ended.get(name).copied().unwrap_or(0)
    }

    /// How many slots run jobs of a tenant.
    fn running(&self, name: &str) -> usize {
        let slots = self.servers.iter().flat_map(|server| &server.busy).flatten();
        slots.filter(|(_, _, of)| *of == name).count()
    }
}

fn close(found: usize, expected: usize, by: usize) {
    assert!(found.abs_diff(expected) <= by, "{found} is not about {expected}");
}

#[test]
fn weights_share_ten_slots_and_a_million_jobs_delay_ten_by_seconds() {
    let mut world = World::new(&[10]);
    world.add("a", 1, SECOND, 100_000);
    world.add("b", 1, SECOND, 10);
    world.add("c", 3, SECOND, 1_000);
    world.run_until(6 * SECOND);
    assert_eq!(world.ended("b"), 10, "first in, first out would take 2.8 hours");
    close(world.ended("c"), 36, 4);
    close(world.ended("a"), 14, 3);
    // From then on two share ten slots, one to three.
    let (a, c) = (world.ended("a"), world.ended("c"));
    world.run_until(46 * SECOND);
    close(world.ended("a") - a, 100, 4);
    close(world.ended("c") - c, 300, 4);
}

#[test]
fn slot_time_counts_and_not_starts() {
    let mut world = World::new(&[100]);
    world.add("a", 1, 600 * SECOND, 10_000);
    world.step();
    assert_eq!(world.running("a"), 100);
    world.add("b", 1, SECOND, 10_000);
    // The slots are free after ten minutes; then b gets all of them until it is done.
    world.run_until(12 * 60 * SECOND);
    assert_eq!(world.ended("b"), 10_000);
}

#[test]
fn one_slot_goes_round() {
    let mut world = World::new(&[1]);
    world.add("a", 1, 2 * SECOND, 1_000);
    world.add("b", 1, SECOND, 1_000);
    world.add("c", 2, SECOND, 1_000);
    world.run_until(400 * SECOND);
    // A quarter, a quarter and half of the time.
    close(world.ended("a"), 50, 3);
    close(world.ended("b"), 100, 3);
    close(world.ended("c"), 200, 3);
}

#[test]
fn each_of_two_servers_shares_out_its_own_slots() {
    let mut world = World::new(&[6, 4]);
    world.add("a", 1, SECOND, 100_000);
    world.add("b", 1, SECOND, 1_000);
    world.run_until(20 * SECOND);
    close(world.ended("b"), 100, 4);
    close(world.ended("a"), 100, 4);
}

#[test]
fn shares_hold_within_a_priority_and_priority_goes_first() {
    let mut world = World::new(&[10]);
    world.add("a", 1, SECOND, 100_000);
    world.add("b", 1, SECOND, 1_000);
    world.add("urgent", 1, SECOND, 40);
    world.tenants.last_mut().unwrap().rank = -20;
    world.run_until(4 * SECOND);
    assert_eq!(world.ended("urgent"), 40);
    assert_eq!((world.ended("a"), world.ended("b")), (0, 0));
    world.run_until(24 * SECOND);
    close(world.ended("a"), 100, 4);
    close(world.ended("b"), 100, 4);
}

#[test]
fn share_that_had_no_jobs_has_no_claim_on_time_that_it_did_not_use() {
    let mut world = World::new(&[4]);
    world.add("a", 1, SECOND, 100_000);
    world.add("b", 1, SECOND, 1);
    world.run_until(300 * SECOND);
    world.tenants.pop();
    world.add("b", 1, SECOND, 1_000);
    let (a, b) = (world.ended("a"), world.ended("b"));
    world.run_until(400 * SECOND);
    close(world.ended("a") - a, 200, 8);
    close(world.ended("b") - b, 200, 8);
}

#[test]
fn debt_is_not_forgotten_while_others_wait() {
    let mut world = World::new(&[2]);
    world.add("a", 1, 100 * SECOND, 2);
    world.run_until(1);
    world.tenants[0].takes = SECOND;
    world.add("b", 1, SECOND, 1_000);
    world.seq += 1_000;
    world.tenants[0].waiting = (world.seq..world.seq + 1_000).collect();
    world.seq += 1_000;
    // a had 200 seconds of both slots; b gets as much before they share again.
    world.run_until(190 * SECOND);
    assert_eq!(world.ended("a"), 2);
    world.run_until(300 * SECOND);
    assert!(world.ended("a") > 50, "{}", world.ended("a"));
}

#[test]
fn ten_thousand_tenants_all_come_round() {
    // A claim sees some of the lanes; here each step sees 32 of them from another one on.
    let mut shares = Shares::default();
    let mut waiting: Vec<VecDeque<i64>> = (0..10_000_i64).map(|n| [n].into()).collect();
    waiting[5_000] = (10_000..1_000_000).collect();
    let lane = |n: usize| Lane {
        class: ClassId(1),
        number: Some(1),
        keys: Arc::new(Keys::default()),
        gates: [].into(),
        share: Some(Share { queue: "q".into(), value: Some(n.to_string()), weight: 1 }),
    };
    let mut from = 0;
    for look in 0..2_000_i64 {
        let open = (0..10_000).map(|n| (from + n) % 10_000).filter(|n| !waiting[*n].is_empty());
        let seen: Vec<usize> = open.take(32).collect();
        let lanes: Vec<Lane> = seen.iter().map(|n| lane(*n)).collect();
        let heads = seen.iter().enumerate().flat_map(|(lane, n)| {
            waiting[*n].iter().take(10).map(move |seq| LaneJob { lane, rank: 0, seq: *seq })
        });
        let now = Timestamp(look * 100);
        let mut turns = shares.turns(&lanes, heads.collect(), now);
        let mut chosen = Vec::new();
        while chosen.len() < 10 {
            let take = |head| {
                chosen.push(head);
                true
            };
            if turns.try_next(take).is_none() {
                break;
            }
        }
        for head in chosen {
            shares.claimed(&lanes[head.lane], 0, head.seq, now);
            shares.ended(after(head.seq, 0), now);
            waiting[seen[head.lane]].pop_front();
        }
        from = (from + 7_919) % 10_000;
    }
    let left = waiting.iter().filter(|of| !of.is_empty()).count();
    assert!(left < 500, "{left} tenants of 10,000 still wait");
}

#[test]
fn job_that_a_gate_stops_gives_its_place_to_the_next_share() {
    let mut world = World::new(&[]);
    world.add("a", 1, SECOND, 3);
    world.add("b", 1, SECOND, 3);
    let (lanes, mut shares) = (world.lanes(), Shares::default());
    let heads = (0..6).map(|seq| LaneJob { lane: usize::from(seq > 2), rank: 0, seq });
    let mut turns = shares.turns(&lanes, heads.collect(), Timestamp(0));
    let (mut taken, mut refused) = (Vec::new(), 0);
    while let Some(()) = turns.try_next(|head| {
        let stops = head.lane == 0 && !taken.is_empty();
        refused += usize::from(stops);
        if !stops {
            taken.push(head.seq);
        }
        !stops
    }) {}
    assert_eq!((taken, refused), (vec![0, 3, 4, 5], 1));
}

#[test]
fn batch_that_is_tried_again_is_charged_once() {
    let mut world = World::new(&[]);
    world.add("a", 1, SECOND, 1);
    let (lanes, mut shares) = (world.lanes(), Shares::default());
    for _ in 0..3 {
        shares.begin_batch();
        shares.claimed(&lanes[0], 0, 0, Timestamp(0));
    }
    shares.committed(&[], Timestamp(0));
    let pass = |shares: &Shares| shares.states.values().map(|state| state.pass).sum::<i64>();
    assert_eq!(pass(&shares), FIRST_ESTIMATE);
    shares.ended(after(0, 3 * SECOND), Timestamp(3 * SECOND));
    assert_eq!(pass(&shares), 3_000_000);
    shares.ended(after(0, 9 * SECOND), Timestamp(9 * SECOND));
    assert_eq!(pass(&shares), 3_000_000);
    assert!(shares.charges.is_empty());
}

/// A job that was lost and taken again in one batch was charged for neither attempt.
#[test]
fn attempt_that_ends_in_the_batch_that_takes_the_job_again_keeps_its_charge() {
    let mut world = World::new(&[]);
    world.add("a", 1, SECOND, 1);
    let (lanes, mut shares) = (world.lanes(), Shares::default());
    let pass = |shares: &Shares| shares.states.values().map(|state| state.pass).sum::<i64>();
    shares.begin_batch();
    shares.claimed(&lanes[0], 0, 0, Timestamp(0));
    shares.committed(&[], Timestamp(0));
    shares.begin_batch();
    shares.claimed(&lanes[0], 0, 0, Timestamp(10 * SECOND));
    shares.committed(&[after(0, 10 * SECOND)], Timestamp(10 * SECOND));
    assert_eq!(pass(&shares), 2 * FIRST_ESTIMATE);
    shares.begin_batch();
    shares.committed(&[after(0, 30 * SECOND)], Timestamp(40 * SECOND));
    assert_eq!(pass(&shares), FIRST_ESTIMATE + 30_000_000);
}

#[test]
fn attempts_are_charged_for_the_time_that_they_ran_and_not_for_waiting_at_a_worker() {
    let mut world = World::new(&[]);
    world.add("a", 1, SECOND, 1);
    let (lanes, mut shares) = (world.lanes(), Shares::default());
    let mut pass = |ended: Ended| {
        shares.claimed(&lanes[0], 0, 0, Timestamp(0));
        shares.ended(ended, Timestamp(10 * SECOND));
        shares.states.values().map(|state| state.pass).sum::<i64>()
    };
    assert_eq!(pass(Ended { seq: 0, ran: None }), 0, "it was handed back");
    assert_eq!(pass(after(0, 3)), 3_000);
    assert_eq!(pass(after(0, 0)), 3_000 + CHARGE_MIN, "or it would always be next");
}

/// After a day behind a limit, a share took all slots for as long.
#[test]
fn share_that_a_limit_held_up_catches_up_by_minutes_at_most() {
    let mut world = World::new(&[]);
    world.add("a", 1, SECOND, 1);
    world.add("b", 1, SECOND, 1);
    let (lanes, mut shares) = (world.lanes(), Shares::default());
    let both = |shares: &mut Shares, now: i64| {
        let heads = (0..2).map(|lane| LaneJob { lane, rank: 0, seq: i64::from(lane == 1) });
        drop(shares.turns(&lanes, heads.collect(), Timestamp(now)));
    };
    for hour in 0..24 {
        let now = hour * 3_600 * SECOND;
        both(&mut shares, now);
        shares.claimed(&lanes[0], 0, 100 + hour, Timestamp(now));
        shares.ended(after(100 + hour, 3_000 * SECOND), Timestamp(now + 3_000 * SECOND));
    }
    let now = 24 * 3_600 * SECOND;
    both(&mut shares, now);
    let pass = |value: &str| {
        let mut all = shares.states.iter();
        let found = all.find(|(account, _)| account.value.as_deref() == Some(value));
        found.map(|(_, state)| state.pass).unwrap()
    };
    let behind = pass("a") - pass("b");
    assert!(behind <= 20_000 * SECOND * 1_000, "{behind}");
}
