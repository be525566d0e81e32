use std::collections::BTreeMap;

use outlast_core::gate::Rate;
use outlast_core::keys::Keys;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::time::Span;
use outlast_store::command::{ClassId, ClassKey, Route};
use outlast_store::reply::Blocked;

use super::*;
use crate::apply::claim::fair::Shares;
use crate::apply::claim::lane::jobs_of_each;
use crate::apply::claim::selection::Remaining;
use crate::apply::limit::Limits;

pub(in crate::apply) const NOW: Timestamp = Timestamp(1_000_000);

pub(in crate::apply) fn class(keyed: bool) -> ClassKey {
    ClassKey {
        queue: "mail".into(),
        job_type: "send".into(),
        route: Route::Plain,
        tenant: None,
        isolated: false,
        keyed,
        placement: Default::default(),
    }
}

pub(in crate::apply) fn limit(
    name: &str,
    scope: Scope,
    concurrency: Option<u32>,
    rate: Option<Rate>,
) -> Limit {
    Limit { name: LimitName::new(name).unwrap(), scope, concurrency, rate }
}

pub(in crate::apply) fn per_tenant(concurrency: u32) -> Limit {
    limit("tenant", Scope::Key("tenant".into()), Some(concurrency), None)
}

fn tenant(value: &str) -> Keys {
    Keys::new(BTreeMap::from([("tenant".into(), value.into())])).unwrap()
}

/// Two lanes of tenants `a` and `b`, and `each` jobs of each in turn.
fn two_tenants(limits: &Limits, each: i64) -> (Vec<Lane>, Vec<LaneJob>) {
    let key = class(true);
    let lane = |number, keys| limits.lane(ClassId(1), &key, number, keys);
    let lanes = vec![lane(1, tenant("a")), lane(2, tenant("b"))];
    let heads = (0..2 * each).rev().map(|seq| LaneJob {
        lane: usize::try_from(seq % 2).unwrap(),
        rank: 0,
        seq,
    });
    (lanes, heads.collect())
}

fn read_all(lanes: &[Lane], in_flight: i64) -> Gates {
    let mut gates = Gates::default();
    let ids: Vec<GateId> = gates.missing(lanes).into_iter().map(|gate| gate.id).collect();
    for id in ids {
        gates.read(id, in_flight, 0);
    }
    gates
}

fn turns(lanes: &[Lane], heads: Vec<LaneJob>) -> ShareOrder {
    Shares::default().turns(lanes, heads, NOW)
}

pub(in crate::apply) fn terms(changes: &GateChanges) -> ClaimContext<'_> {
    ClaimContext { changes, taken: None, now: NOW, is_prefetch: false }
}

fn seqs(chosen: &Selection) -> Vec<i64> {
    chosen.heads.iter().map(|head| head.seq).collect()
}

#[test]
fn heads_are_chosen_in_order_until_each_gate_is_full() {
    let limits: Limits = [per_tenant(2)].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 5);
    let none = GateChanges::default();
    let chosen = read_all(&lanes, 0).choose(&lanes, turns(&lanes, heads.clone()), 10, terms(&none));
    assert_eq!(seqs(&chosen), [0, 1, 2, 3]);
    assert_eq!(chosen.stops, [Some(BlockedBy::Full), Some(BlockedBy::Full)]);
    let chosen = read_all(&lanes, 1).choose(&lanes, turns(&lanes, heads), 1, terms(&none));
    assert_eq!((seqs(&chosen), &chosen.stops[..]), (vec![0], &[None, None][..]));
}

#[test]
fn what_the_batch_has_taken_and_ended_counts() {
    let limits: Limits = [per_tenant(2)].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 5);
    let mut changes = GateChanges::default();
    changes.release(&lanes[0].gate_ids(), lanes[0].class, 0);
    changes.charge(&lanes[1].gate_ids());
    let chosen = read_all(&lanes, 1).choose(&lanes, turns(&lanes, heads), 10, terms(&changes));
    assert_eq!(seqs(&chosen), [0, 2]);
    assert!(changes.freed());
    let mut by = changes.take();
    by.sort_unstable();
    let mut expected = vec![(lanes[0].gates[0].id, -1), (lanes[1].gates[0].id, 1)];
    expected.sort_unstable();
    assert_eq!(by, expected);
}

#[test]
fn job_takes_no_slot_of_a_limit_when_another_stops_it() {
    let queue = limit("queue", Scope::Queue("mail".into()), Some(3), None);
    let limits: Limits = [per_tenant(1), queue].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 5);
    let none = GateChanges::default();
    // One of each tenant; the queue has room for a third.
    let chosen = read_all(&lanes, 0).choose(&lanes, turns(&lanes, heads), 10, terms(&none));
    assert_eq!(seqs(&chosen), [0, 1]);
}

#[test]
fn gate_that_was_not_locked_is_busy_and_worth_another_look() {
    let limits: Limits = [per_tenant(2)].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 5);
    let mut gates = Gates::default();
    gates.read(lanes[0].gates[0].id, 0, 0);
    let chosen = gates.choose(&lanes, turns(&lanes, heads), 10, terms(&GateChanges::default()));
    assert_eq!(seqs(&chosen), [0, 2]);
    assert_eq!(chosen.stops, [Some(BlockedBy::Full), Some(BlockedBy::Busy)]);
    let left = Remaining { retry: vec![ClassId(1)], ..Remaining::default() };
    assert_eq!(Remaining::of(&lanes, &chosen.stops, |_| false), left);
}

#[test]
fn prefetch_takes_what_a_limit_lets_start_and_none_of_a_rate() {
    let rate = Rate::new(10, Span::from_secs(10));
    for (most, rate, taken) in [(5, None, 4), (1, None, 1), (1_000, rate, 0)] {
        let limits: Limits =
            [limit("tenant", Scope::Key("tenant".into()), Some(most), rate)].into_iter().collect();
        let (lanes, heads) = two_tenants(&limits, 4);
        let none = GateChanges::default();
        let terms = ClaimContext { is_prefetch: true, ..terms(&none) };
        let chosen = read_all(&lanes, 0).choose(&lanes, turns(&lanes, heads), 10, terms);
        assert_eq!(chosen.heads.len(), 2 * taken, "{most}");
        let kept = Remaining::of(&lanes, &chosen.stops, |_| false).reserved;
        assert_eq!(kept.contains(&ClassId(1)), rate.is_some(), "{most}");
    }
}

#[test]
fn class_opens_with_the_first_of_its_rates() {
    let rate = Rate::new(1, Span::from_secs(10));
    let per = |name: &str| limit(name, Scope::Key("tenant".into()), None, rate);
    let limits: Limits = [per("rate")].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 2);
    let mut gates = Gates::default();
    gates.read(lanes[0].gates[0].id, 0, 1_000_000_000 + 7_000_000);
    gates.read(lanes[1].gates[0].id, 0, 1_000_000_000 + 4_000_000);
    let chosen = gates.choose(&lanes, turns(&lanes, heads), 10, terms(&GateChanges::default()));
    assert_eq!(seqs(&chosen), Vec::<i64>::new());
    let until = Some(NOW.after(Span::from_secs(4)));
    let left =
        Remaining { blocked: vec![Blocked { class: ClassId(1), until }], ..Remaining::default() };
    assert_eq!(Remaining::of(&lanes, &chosen.stops, |_| false), left);
}

#[test]
fn starts_use_up_a_rate_and_are_written_once() {
    let rate = Rate::new(10, Span::from_secs(10));
    let limits: Limits =
        [limit("rate", Scope::Type("send".into()), None, rate)].into_iter().collect();
    let lanes = vec![limits.whole(ClassId(1), &class(false))];
    let mut gates = read_all(&lanes, 0);
    assert_eq!(gates.take_used(&lanes[0]), [], "nothing has started");
    gates.started(&lanes[0], NOW);
    gates.started(&lanes[0], NOW);
    let gate = lanes[0].gates[0].id;
    assert_eq!(gates.take_used(&lanes[0]), [(gate, 1_000_000_000 + 2_000_000)]);
    assert_eq!(gates.take_used(&lanes[0]), []);
}

#[test]
fn starts_of_a_batch_are_in_order_though_a_later_claim_knows_an_earlier_time() {
    let rate = Rate::new(10, Span::from_secs(10));
    let limits: Limits =
        [limit("rate", Scope::Type("send".into()), None, rate)].into_iter().collect();
    let lanes = vec![limits.whole(ClassId(1), &class(false))];
    let (mut gates, gate) = (read_all(&lanes, 0), lanes[0].gates[0].id);
    let now = gates.at_least(NOW);
    gates.started(&lanes[0], now);
    assert_eq!(gates.take_used(&lanes[0]), [(gate, 1_000_000_000 + 1_000_000)]);
    let earlier = Timestamp(NOW.0 - 50);
    assert_eq!(gates.at_least(earlier), NOW);
    gates.started(&lanes[0], earlier);
    assert_eq!(gates.take_used(&lanes[0]), [(gate, 1_000_000_000 + 2_000_000)]);
    let later = NOW.after(Span(1));
    assert_eq!(gates.at_least(later), later);
}

#[test]
fn only_limits_on_keys_tell_the_jobs_of_a_class_apart() {
    let queue = limit("queue", Scope::Queue("mail".into()), Some(3), None);
    let by_queue: Limits = [queue].into_iter().collect();
    let by_tenant: Limits = [per_tenant(1)].into_iter().collect();
    assert!(by_queue.may_apply(&class(true)) && by_queue.may_apply(&class(false)));
    assert!(by_tenant.may_apply(&class(true)) && !by_tenant.may_apply(&class(false)));
    assert!(!by_queue.need_lanes(&class(true)) && by_tenant.need_lanes(&class(true)));
    let other = ClassKey { queue: "other".into(), ..class(false) };
    assert!(!by_queue.may_apply(&other));
}

#[test]
fn fewer_heads_of_each_lane_are_read_when_there_are_many_and_the_rest_is_not_taken_for_gone() {
    assert_eq!(jobs_of_each(1, 512), 512);
    assert_eq!(jobs_of_each(64, 512), 128);
    assert_eq!(jobs_of_each(64, 5), 5);
    assert_eq!(jobs_of_each(100_000, 512), 16);
    let limits: Limits = [per_tenant(5)].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 3);
    let none = GateChanges::default();
    let chosen = read_all(&lanes, 0).choose(&lanes, turns(&lanes, heads), 10, terms(&none));
    assert_eq!(chosen.exhausted(&lanes, 3), [ClassId(1), ClassId(1)]);
    assert_eq!(chosen.exhausted(&lanes, 4), []);
}

#[test]
fn shut_lanes_are_no_proof_about_those_that_were_not_looked_at() {
    let limits: Limits = [per_tenant(0)].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 1);
    let none = GateChanges::default();
    let chosen = read_all(&lanes, 0).choose(&lanes, turns(&lanes, heads), 10, terms(&none));
    let again = || Remaining { retry: vec![ClassId(1)], ..Remaining::default() };
    assert_eq!(Remaining::of(&lanes, &chosen.stops, |_| true), again());
    let taken = Selection { stops: vec![None; lanes.len()], ..Selection::default() };
    assert_eq!(Remaining::of(&lanes, &taken.stops, |_| true), again(), "all of them were taken");
    assert_eq!(Remaining::of(&lanes, &taken.stops, |_| false), Remaining::default());
    let blocked = Blocked { class: ClassId(1), until: None };
    assert_eq!(
        Remaining::of(&lanes, &chosen.stops, |_| false),
        Remaining { blocked: vec![blocked], ..Remaining::default() }
    );
}

#[test]
fn gate_that_looked_shut_is_not_passed_without_its_lock() {
    let limits: Limits = [per_tenant(1)].into_iter().collect();
    let (lanes, heads) = two_tenants(&limits, 1);
    let mut gates = Gates::default();
    for (lane, in_flight) in lanes.iter().zip([1, 0]) {
        gates.look_at(lane.gates[0].id, in_flight, 0);
    }
    assert_eq!(gates.missing(&lanes).len(), 2, "they are read again when that is worth it");
    let none = GateChanges::default();
    let chosen = gates.choose(&lanes, turns(&lanes, heads), 10, terms(&none));
    assert_eq!(chosen.stops, [Some(BlockedBy::Full), Some(BlockedBy::Busy)]);
    assert_eq!(seqs(&chosen), Vec::<i64>::new());
}

#[test]
fn no_more_heads_are_read_than_a_gate_lets_start_and_one() {
    let rate = Rate::new(20, Span::from_secs(10));
    let per = |name: &str, most, rate| limit(name, Scope::Key("tenant".into()), most, rate);
    let lane = |of: Vec<Limit>| {
        let limits: Limits = of.into_iter().collect();
        limits.lane(ClassId(1), &class(true), 1, tenant("a"))
    };
    assert_eq!(lane(vec![]).jobs_worth_reading(64), 64);
    assert_eq!(lane(vec![per("a", Some(5), None)]).jobs_worth_reading(64), 6);
    assert_eq!(lane(vec![per("a", Some(5), None)]).jobs_worth_reading(4), 4);
    let both = vec![per("a", Some(5), None), per("b", None, rate)];
    assert_eq!(lane(both).jobs_worth_reading(64), 3);
}
