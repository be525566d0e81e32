use std::collections::BTreeMap;

use super::*;
use crate::apply::claim::first_pass::FirstPass;
use crate::apply::claim::first_pass::tests::{CLASS, cache, claim, lane, per_tenant, rows};
use crate::apply::claim::gate_changes::GateChanges;
use crate::apply::claim::gates::tests::{NOW, class, terms};
use crate::apply::claim::lane::LaneJob;

#[test]
fn what_is_remembered_of_gates_ends_with_their_release_a_second_and_a_failed_batch() {
    let limits = per_tenant(1);
    let gate = lane(&limits, 1).gates[0].id;
    let is_shut = |cache: &LaneCache, now, changes: &GateChanges| {
        cache.is_shut(&lane(&limits, 1).gates, ClaimContext { now, ..terms(changes) })
    };
    let full = |cache: &mut LaneCache| {
        let stopped = vec![(gate, BlockedBy::Full)];
        cache.note(&[], &Selection { stopped, ..Selection::default() }, NOW, FoundBy::First);
        cache.committed(FreedSlots::default());
    };
    let mut cache = cache(&limits, 1);
    let none = GateChanges::default();
    full(&mut cache);
    assert!(is_shut(&cache, NOW, &none));
    assert!(!is_shut(&cache, NOW.after(SHUT_FOR), &none));
    let mut ended = GateChanges::default();
    ended.release(&[gate], CLASS, 1);
    assert!(!is_shut(&cache, NOW, &ended), "its own batch ends the attempt");
    cache.committed(ended.freed_slots());
    assert!(!is_shut(&cache, NOW, &none));
    full(&mut cache);
    cache.note(
        &[],
        &Selection { stopped: vec![(gate, BlockedBy::Full)], ..Selection::default() },
        NOW,
        FoundBy::First,
    );
    cache.begin_batch();
    assert!(!is_shut(&cache, NOW, &none), "the batch that saw it never took effect");
    full(&mut cache);
    cache.set_limits(&per_tenant(2));
    assert!(!is_shut(&cache, NOW, &none));
}

#[test]
fn lanes_that_gave_jobs_are_read_while_the_first_jobs_are_not_enough() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 100);
    let none = GateChanges::default();
    let lanes: Vec<Lane> = (1..=100).map(|number| lane(&limits, number)).collect();
    let heads = (0..100).map(|lane| LaneJob { lane, rank: 0, seq: 0 }).collect();
    let chosen = Selection { heads, stops: vec![None; 100], ..Selection::default() };
    let key = class(true);
    let plan = |cache: &LaneCache, chance| cache.plan([(CLASS, &key)], 5, chance, terms(&none));
    cache.note(&lanes, &chosen, NOW, FoundBy::First);
    assert_eq!(plan(&cache, 0).recent, []);
    cache.note(&lanes, &chosen, NOW, FoundBy::ScanCursor);
    let recent = (1..=16).map(|lane| (CLASS, lane, 2)).collect::<Vec<_>>();
    assert_eq!(plan(&cache, 1).recent, recent, "the best are read again");
    assert_eq!(plan(&cache, 1).first, HashMap::from([(CLASS, 32)]));
    let walks = plan(&cache, WALKS);
    assert!(walks.first.is_empty() && walks.by_lanes == [CLASS]);
    // A claim ahead of free slots would find nothing otherwise, and there would be no more of them
    // for a second.
    let ahead = ClaimContext { is_prefetch: true, ..terms(&none) };
    let walks = cache.plan([(CLASS, &key)], 5, WALKS, ahead);
    assert_eq!(walks.by_lanes, [CLASS]);
    // Lanes 2 to 16 have no jobs any more.
    let mut some = rows(&[50, 1]);
    some[1].is_recent = true;
    let plan = plan(&cache, 1);
    let mut front = FirstPass::new(plan, some, &mut cache);
    let lanes: Vec<i64> = cache.recent[&CLASS].lanes.iter().take(3).copied().collect();
    assert_eq!(lanes, [1, 17, 18]);
    assert_eq!(claim(&mut front, &mut cache, 1, &BTreeMap::new()), [50]);
    front.satisfied(&mut cache, &[CLASS], None);
    assert!(!cache.needs_recent(CLASS));
}

#[test]
fn lanes_of_a_batch_that_failed_are_forgotten() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 2);
    cache.committed(FreedSlots::default());
    cache.begin_batch();
    assert!(cache.get(CLASS, 1).is_some());
    // In a class that the batch has made. The next one may give its number to another.
    cache.learn(lane(&limits, 3));
    cache.begin_batch();
    assert!(cache.get(CLASS, 3).is_none());
    assert!(cache.recent.is_empty());
}

/// A choice that found these gates full.
fn full(lanes: &[Lane]) -> Selection {
    let stops = vec![Some(BlockedBy::Full); lanes.len()];
    let stopped = lanes.iter().map(|lane| (lane.gates[0].id, BlockedBy::Full)).collect();
    Selection { stops, stopped, is_all: true, ..Selection::default() }
}

/// A batch in which an attempt of a lane ended.
fn ended(lane: &Lane) -> GateChanges {
    let mut changes = GateChanges::default();
    changes.release(&lane.gate_ids(), lane.class, lane.number.unwrap());
    changes
}

#[test]
fn lane_that_an_attempt_has_left_comes_first_until_it_was_tried() {
    let limits = per_tenant(1);
    let (mut cache, none) = (cache(&limits, 0), GateChanges::default());
    let lanes: Vec<Lane> = (1..=3).map(|number| lane(&limits, number)).collect();
    // No one has to remember it before, and the batch that ends it can use it at once.
    let second = ended(&lanes[1]);
    assert_eq!(cache.freed(CLASS, 1, terms(&second)), [2]);
    cache.committed(second.freed_slots());
    cache.committed(ended(&lanes[2]).freed_slots());
    cache.committed(ended(&lanes[1]).freed_slots());
    assert_eq!(cache.freed(CLASS, 1, terms(&none)), [2, 3]);
    assert!(cache.freed(ClassId(9), 1, terms(&none)).is_empty());
    for by in [FoundBy::First, FoundBy::ScanCursor] {
        cache.note(&lanes[1..2], &full(&lanes[1..2]), NOW, by);
        assert_eq!(cache.freed(CLASS, 1, terms(&none)), [3]);
        // That batch failed, and may have been wrong.
        cache.begin_batch();
        assert_eq!(cache.freed(CLASS, 1, terms(&none)), [2, 3]);
    }
    cache.note(&lanes[1..2], &full(&lanes[1..2]), NOW, FoundBy::ScanCursor);
    cache.committed(FreedSlots::default());
    assert_eq!(cache.freed(CLASS, 1, terms(&none)), [3]);
    cache.are_empty(CLASS, [3]);
    cache.committed(FreedSlots::default());
    assert!(cache.freed(CLASS, 1, terms(&none)).is_empty());
}

#[test]
fn slot_that_passes_on_within_a_batch_frees_no_lane() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 1);
    let mut changes = ended(&lane(&limits, 1));
    changes.charge(&lane(&limits, 1).gate_ids());
    assert!(changes.freed());
    cache.committed(changes.freed_slots());
    assert!(cache.freed(CLASS, 1, terms(&GateChanges::default())).is_empty());
}

/// A batch that deletes what is not used, or counts again, writes what it has changed before that.
#[test]
fn slot_is_free_also_if_the_batch_writes_twice_and_takes_over_what_others_have_counted() {
    let limits = per_tenant(1);
    let (mut cache, lanes) = (cache(&limits, 1), [lane(&limits, 1)]);
    let lane = &lanes[0];
    let mut changes = ended(lane);
    assert_eq!(changes.take(), [(lane.gates[0].id, -1)]);
    assert_eq!(changes.of(lane.gates[0].id), 0, "it is stored");
    changes.taken_over(lane.gates[0].id, 3);
    cache.note(&lanes, &full(&lanes), NOW, FoundBy::First);
    assert_eq!(cache.freed(CLASS, 1, terms(&changes)), [1]);
    let mut passed_on = changes.clone();
    passed_on.charge(&lane.gate_ids());
    assert!(cache.freed(CLASS, 1, terms(&passed_on)).is_empty());
    cache.committed(changes.freed_slots());
    assert_eq!(cache.freed(CLASS, 1, terms(&GateChanges::default())), [1]);
}

#[test]
fn lane_that_waits_for_a_gate_comes_first_when_another_one_leaves_it() {
    let limits = per_tenant(1);
    let none = GateChanges::default();
    let mut cache = cache(&limits, 0);
    // All of one tenant, and more than are remembered.
    let of_tenant = |number| Lane { number: Some(number), ..lane(&limits, 1) };
    let other_class = Lane { class: ClassId(9), ..of_tenant(50) };
    (1..=10).for_each(|number| cache.learn(of_tenant(number)));
    cache.learn(other_class);
    cache.committed(ended(&of_tenant(99)).freed_slots());
    assert_eq!(cache.freed(CLASS, 1, terms(&none)), [99, 10, 9, 8, 7, 6, 5, 4]);
    assert_eq!(cache.freed(ClassId(9), 1, terms(&none)), [50]);
    // One that has no jobs waits for nothing, and another one that was seen to wait does.
    let seen = [of_tenant(10), of_tenant(2)];
    let chosen = Selection { stops: vec![None, Some(BlockedBy::Full)], ..full(&seen) };
    cache.note(&seen, &chosen, NOW, FoundBy::ScanCursor);
    cache.committed(FreedSlots::default());
    cache.committed(ended(&of_tenant(99)).freed_slots());
    assert_eq!(cache.freed(CLASS, 1, terms(&none)), [99, 2, 9, 8, 7, 6, 5, 4]);
}

/// A claim of 512 jobs once read as many of each lane in which an attempt had ended: 30,000 of 60.
#[test]
fn claim_of_many_jobs_reads_its_share_of_each_lane() {
    let limits = per_tenant(1_000_000);
    let (mut cache, none, key) = (cache(&limits, 100), GateChanges::default(), class(true));
    let lanes: Vec<Lane> = (1..=30).map(|number| lane(&limits, number)).collect();
    lanes.iter().for_each(|lane| cache.committed(ended(lane).freed_slots()));
    let heads = (0..30).map(|lane| LaneJob { lane, rank: 0, seq: 0 }).collect();
    let gave = Selection { heads, stops: vec![None; 30], ..Selection::default() };
    let nothing = Selection { stops: vec![None; 30], ..Selection::default() };
    let recent = |cache: &LaneCache| cache.plan([(CLASS, &key)], 512, 1, terms(&none)).recent;
    cache.note(&lanes, &nothing, NOW, FoundBy::ScanCursor);
    let read = recent(&cache);
    assert_eq!((read.len(), read[0].2), (30, 2 * 512 / 30 + 8));
    cache.note(&lanes, &gave, NOW, FoundBy::First);
    cache.committed(FreedSlots::default());
    let read = recent(&cache);
    assert_eq!((read.len(), read[0].2), (16, 2 * 512 / 16 + 8), "they are not read twice");
}

#[test]
fn lane_in_which_another_server_was_busy_is_tried_again() {
    let limits = per_tenant(1);
    let (mut cache, none) = (cache(&limits, 1), GateChanges::default());
    let lanes = [lane(&limits, 1)];
    cache.committed(ended(&lanes[0]).freed_slots());
    let chosen =
        Selection { stops: vec![Some(BlockedBy::Busy)], is_all: true, ..Selection::default() };
    cache.note(&lanes, &chosen, NOW, FoundBy::ScanCursor);
    cache.committed(FreedSlots::default());
    assert_eq!(cache.freed(CLASS, 1, terms(&none)), [1]);
}

#[test]
fn walk_that_finds_nothing_lets_the_next_claim_read_the_lanes_that_opened() {
    let limits = per_tenant(1);
    let (mut cache, none, key) = (cache(&limits, 3), GateChanges::default(), class(true));
    let lanes = [lane(&limits, 1)];
    cache.committed(ended(&lane(&limits, 2)).freed_slots());
    let recent = |cache: &LaneCache| cache.plan([(CLASS, &key)], 5, 1, terms(&none)).recent;
    assert_eq!(recent(&cache), []);
    cache.note(&lanes, &full(&lanes), NOW, FoundBy::ScanCursor);
    assert_eq!(recent(&cache), [(CLASS, 2, 2)]);
}

#[test]
fn what_is_remembered_is_bounded() {
    let limits = per_tenant(1);
    let mut cache = cache(&limits, 0);
    for number in 0..25_000 {
        let of = Lane { class: ClassId(number), ..lane(&limits, 1) };
        let waiting = Lane { number: Some(number), ..lane(&limits, number) };
        cache.begin_batch();
        cache.learn(waiting.clone());
        cache.committed(ended(&of).freed_slots());
        cache.committed(ended(&waiting).freed_slots());
    }
    let most = LANES_MAX + 10;
    let sizes = [cache.lanes.len(), cache.behind.len(), cache.freed.len()];
    assert!(sizes.iter().all(|size| *size <= most), "{sizes:?}");
    assert!(cache.freed.get(&CLASS).unwrap().len() <= FREED_MAX);
    assert!(cache.get(CLASS, 24_999).is_some());
}
