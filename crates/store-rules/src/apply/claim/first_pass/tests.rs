use std::collections::BTreeMap;

use outlast_core::keys::Keys;
use outlast_core::limit::Scope;

use super::*;
use crate::apply::claim::fair::Shares;
use crate::apply::claim::gate_changes::GateChanges;
use crate::apply::claim::gates::Gates;
use crate::apply::claim::gates::tests::{self as limits, NOW, class, limit, terms};
use crate::apply::claim::lane_cache::FoundBy;
use crate::apply::limit::Limits;

pub(in crate::apply) const CLASS: ClassId = ClassId(1);

pub(in crate::apply) fn per_tenant(concurrency: u32) -> Limits {
    [limits::per_tenant(concurrency)].into_iter().collect()
}

pub(in crate::apply) fn lane(limits: &Limits, number: i64) -> Lane {
    let keys = BTreeMap::from([("tenant".into(), format!("t{number}"))]);
    limits.lane(CLASS, &class(true), number, Keys::new(keys).unwrap())
}

/// A memory that knows lanes 1 to `lanes`.
pub(in crate::apply) fn cache(limits: &Limits, lanes: i64) -> LaneCache {
    let mut cache = LaneCache::default();
    cache.set_limits(limits);
    (1..=lanes).for_each(|number| cache.learn(lane(limits, number)));
    cache
}

/// One job of each of these lanes, in order.
pub(in crate::apply) fn rows(lanes: &[i64]) -> Vec<FirstJob> {
    let row = |(seq, lane): (i64, &i64)| FirstJob {
        class: CLASS,
        lane: Some(*lane),
        rank: 0,
        seq,
        is_recent: false,
    };
    (100_i64..).zip(lanes).map(row).collect()
}

/// A look that has read these, which are all jobs of the class or not.
pub(in crate::apply) fn look(
    cache: &mut LaneCache,
    rows: Vec<FirstJob>,
    is_all: bool,
) -> FirstPass {
    let first = HashMap::from([(CLASS, rows.len() + usize::from(is_all))]);
    FirstPass::new(FirstPassPlan { first, ..FirstPassPlan::default() }, rows, cache)
}

/// Claims at most `wanted` jobs, while gates count this; returns their lanes.
pub(in crate::apply) fn claim(
    front: &mut FirstPass,
    cache: &mut LaneCache,
    wanted: usize,
    counts: &BTreeMap<i64, i64>,
) -> Vec<i64> {
    let (mut changes, mut gates, mut taken) =
        (GateChanges::default(), Gates::default(), Vec::new());
    while taken.len() < wanted {
        let still = wanted - taken.len();
        let Some(page) = front.next_page(cache, still, terms(&changes)) else { break };
        for lane in &page.lanes {
            let count = counts.get(&lane.number.unwrap()).copied().unwrap_or(0);
            gates.read(lane.gates[0].id, count, 0);
        }
        let turns = Shares::default().turns(&page.lanes, page.heads.clone(), NOW);
        let chosen = gates.choose(&page.lanes, turns, still, terms(&changes));
        cache.note(&page.lanes, &chosen, NOW, FoundBy::First);
        for head in &chosen.heads {
            changes.charge(&page.lanes[head.lane].gate_ids());
            taken.push(page.lanes[head.lane].number.unwrap());
        }
        front.tried(cache, page, &chosen, &[]);
    }
    taken
}

#[test]
fn first_jobs_are_tried_in_order_and_those_behind_full_gates_last() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 30);
    let full = BTreeMap::from([(1, 1), (3, 1)]);
    let mut front = look(&mut cache, rows(&[1, 2, 3, 4, 1, 2]), true);
    assert_eq!(claim(&mut front, &mut cache, 2, &full), [2, 4]);
    // It knows now which are full, and does not look at them while there are others.
    let mut front = look(&mut cache, rows(&[1, 3, 5, 6]), true);
    let page = front.next_page(&cache, 1, terms(&GateChanges::default())).unwrap();
    let numbers: Vec<Option<i64>> = page.lanes.iter().map(|lane| lane.number).collect();
    assert_eq!(numbers, [Some(5), Some(6)]);
}

#[test]
fn memory_of_a_full_gate_hides_no_job_of_a_class_that_was_read_whole() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 3);
    let mut front = look(&mut cache, rows(&[1, 2]), true);
    assert_eq!(claim(&mut front, &mut cache, 2, &BTreeMap::from([(1, 1)])), [2]);
    // Another server has ended the attempt.
    let mut front = look(&mut cache, rows(&[1]), true);
    assert_eq!(claim(&mut front, &mut cache, 1, &BTreeMap::new()), [1]);
    let left = front.rest(false).left;
    assert_eq!((left.retry, left.blocked, left.reserved), (vec![], vec![], vec![]));
}

#[test]
fn class_is_blocked_when_all_its_jobs_were_seen_and_none_may_start() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 3);
    let full = BTreeMap::from([(1, 1), (2, 1)]);
    for _ in 0..2 {
        let mut front = look(&mut cache, rows(&[1, 2, 2]), true);
        assert_eq!(claim(&mut front, &mut cache, 2, &full), Vec::<i64>::new());
        assert_eq!(front.rest(false).left.blocked.len(), 1);
    }
    let mut front = look(&mut cache, rows(&[1, 2, 2]), false);
    assert_eq!(claim(&mut front, &mut cache, 2, &full), Vec::<i64>::new());
    assert_eq!(Vec::from_iter(front.partial.iter().copied()), [CLASS]);
    assert_eq!(front.rest(false).left.blocked, [], "there are more jobs than were read");
}

#[test]
fn gate_that_stops_one_job_is_asked_once_for_all_others() {
    let of = |name, scope| limit(name, scope, Some(3), None);
    let per_queue = of("queue", Scope::Queue("mail".into()));
    let limits: Limits =
        [per_queue, of("tenant", Scope::Key("tenant".into()))].into_iter().collect();
    let mut cache = cache(&limits, 60);
    let numbers: Vec<i64> = (1..=60).collect();
    let mut front = look(&mut cache, rows(&numbers), true);
    let mut pages = 0;
    let (none, mut gates) = (GateChanges::default(), Gates::default());
    while let Some(page) = front.next_page(&cache, 5, terms(&none)) {
        pages += 1;
        // No gate was locked.
        let turns = Shares::default().turns(&page.lanes, page.heads.clone(), NOW);
        for gate in page.lanes.iter().flat_map(|lane| lane.gates.iter()) {
            gates.look_at(gate.id, 0, 0);
        }
        let chosen = gates.choose(&page.lanes, turns, 5, terms(&none));
        assert_eq!(chosen.heads, []);
        front.tried(&cache, page, &chosen, &[]);
    }
    assert!(pages <= 4, "{pages}");
    assert_eq!(front.rest(false).left.retry, [CLASS]);
}

#[test]
fn what_the_store_does_not_find_again_is_not_tried_again() {
    let limits = per_tenant(5);
    let mut cache = cache(&limits, 3);
    let mut front = look(&mut cache, rows(&[1, 2, 3]), true);
    let none = GateChanges::default();
    let mut page = front.next_page(&cache, 1, terms(&none)).unwrap();
    page.heads.remove(0);
    let missed = page.heads[0];
    let mut chosen = Selection { heads: vec![missed], ..Selection::default() };
    chosen.missed();
    front.tried(&cache, page, &chosen, &[missed.seq]);
    let numbers: Vec<Option<i64>> = front.rows.iter().map(|row| row.lane).collect();
    assert_eq!(numbers, [Some(3)]);
    assert_eq!(
        Vec::from_iter(front.partial.iter().copied()),
        [CLASS],
        "there may be others behind the one that was missed"
    );
}

#[test]
fn job_that_two_reads_found_is_tried_once() {
    let limits = per_tenant(5);
    let mut cache = cache(&limits, 1);
    let mut both = rows(&[1]);
    both.push(FirstJob { is_recent: true, ..both[0] });
    let mut front = look(&mut cache, both, true);
    assert_eq!(claim(&mut front, &mut cache, 5, &BTreeMap::new()), [1]);
}

/// A job of a class that gates do not tell apart.
fn plain(class: ClassId, seq: i64) -> FirstJob {
    FirstJob { class, lane: None, rank: 0, seq, is_recent: false }
}

/// A class without limits, and one that takes part by its lanes.
fn beside_lanes(cache: &mut LaneCache, rows: Vec<FirstJob>) -> FirstPass {
    let other = ClassId(2);
    let whole = HashMap::from([(other, per_tenant(1).whole(other, &class(false)))]);
    let first = HashMap::from([(CLASS, 1), (other, 20)]);
    FirstPass::new(
        FirstPassPlan { first, whole, by_lanes: vec![CLASS], ..FirstPassPlan::default() },
        rows,
        cache,
    )
}

#[test]
fn what_goes_before_the_classes_by_lanes_is_tried_without_these() {
    let limits = per_tenant(1);
    let (mut cache, none, other) = (cache(&limits, 3), GateChanges::default(), ClassId(2));
    let rows = (1..=20).map(|seq| if seq == 4 { plain(CLASS, 4) } else { plain(other, seq) });
    let mut front = beside_lanes(&mut cache, rows.collect());
    let page = front.next_page(&cache, 1, terms(&none)).unwrap();
    let seqs: Vec<i64> = page.heads.iter().map(|head| head.seq).collect();
    assert_eq!((seqs, page.unread().count()), (vec![1, 2, 3], 0));
    let mut chosen = Selection { stops: vec![None], ..Selection::default() };
    chosen.heads.clone_from(&page.heads);
    front.tried(&cache, page, &chosen, &[]);
    assert!(front.next_page(&cache, 1, terms(&none)).is_none(), "now it is the turn of the lanes");
    assert_eq!(front.take_by_lanes(), [CLASS]);
    front.join((1..=3).map(|number| lane(&limits, number)).collect());
    // As long as there are other jobs, those of the lanes have the places up to the last of these.
    let page = front.next_page(&cache, 1, terms(&none)).unwrap();
    assert_eq!(page.heads.iter().map(|head| head.seq).max(), Some(13));
    assert_eq!((page.unread().count(), page.upto), (3, Some((0, 13))));
    front.tried(&cache, page, &Selection { stops: vec![None; 4], ..Selection::default() }, &[]);
    let page = front.next_page(&cache, 1, terms(&none)).unwrap();
    assert_eq!((page.unread().count(), page.upto), (3, None));
    front.tried(&cache, page, &Selection { stops: vec![None; 4], ..Selection::default() }, &[]);
    assert!(front.take_by_lanes().is_empty());
    let rest = front.rest(false);
    assert_eq!((rest.looked.len(), rest.stops.len()), (6, 6), "{rest:?}");
}

#[test]
fn class_by_lanes_that_has_no_jobs_is_not_looked_at() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 3);
    let mut front = beside_lanes(&mut cache, vec![plain(ClassId(2), 1), plain(ClassId(2), 2)]);
    assert!(front.take_by_lanes().is_empty());
    assert_eq!(front.next_page(&cache, 5, terms(&GateChanges::default())).unwrap().heads.len(), 2);
    assert_eq!(front.rest(false).beyond, []);
}

#[test]
fn class_whose_first_jobs_are_shut_takes_part_by_its_lanes_now_and_then() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 3);
    let other = ClassId(2);
    let mut rows = rows(&[1; 5]);
    rows.extend((0..3).map(|n| plain(other, 200 + n)));
    let whole = HashMap::from([(other, limits.whole(other, &class(false)))]);
    let first = HashMap::from([(CLASS, 5), (other, 5)]);
    let mut front = FirstPass::new(
        FirstPassPlan { first, whole, ..FirstPassPlan::default() },
        rows,
        &mut cache,
    );
    let page = front.next_page(&cache, 1, terms(&GateChanges::default())).unwrap();
    let chosen = vec![*page.heads.last().unwrap()];
    front.tried(&cache, page, &Selection { heads: chosen, ..Selection::default() }, &[]);
    front.satisfied(&mut cache, &[CLASS, other], None);
    assert!(cache.needs_recent(CLASS) && !cache.needs_recent(other));
}

#[test]
fn class_in_which_jobs_came_while_it_was_looked_at_is_looked_at_further() {
    let limits = per_tenant(5);
    let mut cache = cache(&limits, 1);
    let none = GateChanges::default();
    for is_new in [false, true] {
        let mut front = look(&mut cache, rows(&[1]), true);
        let mut page = front.next_page(&cache, 5, terms(&none)).unwrap();
        if is_new {
            // It has the place of the only one that is read again.
            page.heads[0] = LaneJob { rank: -9, seq: 500, ..page.heads[0] };
        }
        let chosen = Selection { heads: page.heads.clone(), ..Selection::default() };
        front.tried(&cache, page, &chosen, &[]);
        let beyond = front.rest(false).beyond;
        assert_eq!(beyond, if is_new { vec![CLASS] } else { vec![] });
    }
}
