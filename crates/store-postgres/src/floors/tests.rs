use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::hold::Holds;
use super::*;

const KEY: i64 = 7;
const COSTLY_PAGES: i64 = 1_000_000;

fn at(rank: i64, seq: i64) -> Place {
    Place { rank, seq }
}

/// A store with one class, and what one server knows of it.
struct World {
    floors: Arc<Floors<i64>>,
    now: Instant,
    last: i64,
    next_transaction: i64,
    committed: BTreeSet<Place>,
    open: BTreeMap<i64, Open>,
    look: Option<Look<i64>>,
    found: Option<(Look<i64>, Found)>,
    pages: i64,
    /// How long a look takes.
    took: Duration,
    /// Time from look to look.
    pause: Duration,
}

struct Open {
    place: Place,
    holds: Option<Holds<i64>>,
}

impl World {
    fn new() -> Self {
        Self {
            floors: Arc::new(Floors::new(Heard::ByOthers)),
            now: Instant::now(),
            last: 1_000,
            next_transaction: 1,
            committed: BTreeSet::new(),
            open: BTreeMap::new(),
            look: None,
            found: None,
            pages: COSTLY_PAGES,
            took: Duration::ZERO,
            pause: FULL_MIN,
        }
    }

    fn covers(&self, place: Place) -> bool {
        let ranges = self.floors.ranges([KEY]);
        ranges.iter().any(|range| range.from <= place && place < range.to)
    }

    fn draw(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// Begins a transaction that stores a row; one of this server holds its place before.
    fn begin(&mut self, place: Place, how: How) -> i64 {
        let holds = (how != How::Elsewhere).then(|| {
            let mut holds = Holds::new(Arc::clone(&self.floors));
            match how {
                How::New => holds.put_new(KEY, place.rank),
                _ => holds.put(KEY, place),
            }
            holds
        });
        let id = self.next_transaction;
        self.next_transaction += 1;
        self.open.insert(id, Open { place, holds });
        id
    }

    fn commit(&mut self, id: i64) {
        let Open { place, holds } = self.open.remove(&id).unwrap();
        self.committed.insert(place);
        // The answer comes after the commit.
        drop(holds);
    }

    fn start_look(&mut self) {
        self.now += self.pause;
        self.floors.ranges([KEY]);
        if self.floors.schedule(self.now).is_some() {
            self.look = Some(self.floors.begin(self.now));
        }
    }

    fn read_look(&mut self) {
        let Some(look) = self.look.take() else { return };
        let rows = look.ranges.iter().enumerate().map(|(nth, range)| {
            let limit = if look.is_below(nth) { ROWS_BELOW } else { 1 };
            self.committed.range(range.from..range.to).take(limit).copied().collect()
        });
        let found = Found {
            rows: rows.collect(),
            asked: 1,
            last: self.last,
            xmin: self.open.keys().next().copied().unwrap_or(self.next_transaction),
            xmax: self.next_transaction,
            pages: self.pages,
            began: self.now,
            took: self.took,
        };
        self.found = Some((look, found));
    }

    fn end_look(&mut self) {
        if let Some((look, found)) = self.found.take() {
            self.floors.end(&look, &found);
        }
    }

    fn look(&mut self) {
        self.start_look();
        self.read_look();
        self.end_look();
    }

    /// A look that ends without an answer.
    fn look_in_vain(&mut self) {
        self.start_look();
        if let Some(look) = self.look.take() {
            self.now += self.took;
            self.floors.fail(&look, self.took, self.now);
        }
    }

    fn check(&self, what: &str) {
        for place in &self.committed {
            assert!(self.covers(*place), "{what}: {place:?} in {:?}", self.floors.ranges([KEY]));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// By another server.
    Elsewhere,
    New,
    Back,
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i64::try_from(self.0 >> 34).unwrap() % limit
    }
}

fn play(world: &mut World, dice: &mut Dice) -> &'static str {
    match dice.below(13) {
        0 => {
            let seq = world.draw();
            world.begin(at(0, seq), How::Elsewhere);
            "another server stores a job"
        }
        1 | 2 => {
            let seq = world.draw();
            world.begin(at([0, -20, -2][usize::try_from(dice.below(3)).unwrap()], seq), How::New);
            "a job is stored"
        }
        3 | 4 => {
            let place = at(-dice.below(3), 1 + dice.below(world.last));
            world.begin(place, How::Back);
            "a job comes back"
        }
        5..=7 => {
            let nth = usize::try_from(dice.below(64)).unwrap();
            if let Some(id) = world.open.keys().nth(nth % world.open.len().max(1)).copied() {
                world.commit(id);
            }
            "a commit"
        }
        8 => {
            if let Some(id) = world.open.keys().next().copied() {
                world.open.remove(&id);
            }
            "a rollback"
        }
        9 => {
            let taken: Vec<Place> = world.committed.iter().take(3).copied().collect();
            world.committed.retain(|place| !taken.contains(place));
            "a claim"
        }
        10 if world.look.is_none() && world.found.is_none() => {
            world.start_look();
            "a look begins"
        }
        11 => {
            world.read_look();
            "a look reads"
        }
        _ => {
            world.end_look();
            "a look ends"
        }
    }
}

#[test]
fn every_job_is_in_a_range_however_transactions_and_looks_interleave() {
    for seed in 1..400_u64 {
        let (mut world, mut dice) = (World::new(), Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        // No transaction runs for so long that it is not waited for.
        world.pause = Duration::from_millis(80);
        let mut done = Vec::new();
        for _ in 0..150 {
            done.push(play(&mut world, &mut dice));
            world.check(&format!("seed {seed}: {done:?}"));
        }
    }
}

/// Takes jobs in order, so that what is left is entries of deleted rows.
fn worked_off() -> World {
    let mut world = World::new();
    for _ in 0..5 {
        world.look();
    }
    assert!(world.floors.lowest(KEY) > at(0, 900), "{:?}", world.floors.ranges([KEY]));
    world
}

#[test]
fn a_floor_rises_to_the_first_job_that_is_left() {
    let mut world = World::new();
    world.committed.insert(at(0, 400));
    (0..5).for_each(|_| world.look());
    assert_eq!(world.floors.lowest(KEY), at(0, 400));
    // One that another server has locked is still there.
    world.committed.insert(at(0, 1_001));
    world.last = 2_000;
    (0..5).for_each(|_| world.look());
    assert_eq!(world.floors.lowest(KEY), at(0, 400));
    world.committed.remove(&at(0, 400));
    (0..5).for_each(|_| world.look());
    assert_eq!(world.floors.lowest(KEY), at(0, 1_001));
}

#[test]
fn a_job_that_comes_back_makes_only_its_block_readable() {
    let mut world = worked_off();
    let floor = world.floors.lowest(KEY);
    let id = world.begin(at(0, 300), How::Back);
    let ranges = world.floors.ranges([KEY]);
    assert_eq!(ranges[0], Range { key: KEY, from: at(0, 256), to: at(0, 512) });
    assert_eq!(ranges[1].from, floor);
    // A look that began before the commit leaves the block.
    world.start_look();
    world.read_look();
    world.commit(id);
    world.end_look();
    assert!(world.covers(at(0, 300)));
    world.committed.remove(&at(0, 300));
    world.look();
    assert!(!world.covers(at(0, 300)));
}

#[test]
fn a_commit_without_an_answer_keeps_its_block_for_as_long_as_it_may_take_effect() {
    let mut world = worked_off();
    let mut holds = Holds::new(Arc::clone(&world.floors));
    holds.put(KEY, at(0, 300));
    holds.set_uncertain(true);
    drop(holds);
    (0..5).for_each(|_| world.look());
    assert!(world.covers(at(0, 300)));
    world.now += UNCERTAIN * 2;
    (0..3).for_each(|_| world.look());
    assert!(!world.covers(at(0, 300)));
}

#[test]
fn what_other_servers_put_below_a_floor_is_found_by_their_signal_or_by_a_full_look() {
    let mut world = worked_off();
    world.committed.insert(at(0, 300));
    assert!(!world.covers(at(0, 300)));
    world.floors.heard(KEY, at(0, 300).block());
    assert!(world.covers(at(0, 300)));
    world.committed.insert(at(0, 700));
    world.look();
    assert!(world.covers(at(0, 700)));
    world.committed.insert(at(-20, 1_001));
    world.look();
    assert!(world.covers(at(-20, 1_001)));
}

#[test]
fn after_a_full_look_that_failed_floors_rise_and_the_next_one_is_as_rare_as_if_it_had_not() {
    let mut world = worked_off();
    world.took = Duration::from_secs(30);
    world.look_in_vain();
    world.took = Duration::from_millis(1);
    world.committed.insert(at(0, 300));
    let failed = world.now;
    while world.now + world.pause < failed + Duration::from_secs(30) * FULL_SHARE {
        world.last += 100;
        world.look();
        assert!(!world.covers(at(0, 300)), "a full look after {:?}", world.now - failed);
        assert!(world.floors.lowest(KEY) >= at(0, world.last - 200), "floors do not rise");
    }
    world.look();
    assert!(world.covers(at(0, 300)));
}

#[test]
fn while_there_are_no_floors_a_look_that_failed_is_made_again_after_as_long_as_it_took() {
    let mut world = World::new();
    world.took = Duration::from_secs(30);
    world.look_in_vain();
    world.floors.ranges([KEY]);
    assert_eq!(world.floors.schedule(world.now), Some(world.now + world.took));
}

#[test]
fn a_look_that_was_not_begun_puts_off_no_full_look_for_long() {
    let mut world = worked_off();
    world.floors.ranges([KEY]);
    world.floors.schedule(world.now).unwrap();
    world.floors.put_off(world.now);
    world.committed.insert(at(0, 300));
    world.look();
    assert!(world.covers(at(0, 300)));
}

#[test]
fn missed_hints_bring_a_full_look_soon_and_no_scan_without_floors() {
    let mut world = worked_off();
    world.took = Duration::from_secs(5);
    world.look();
    world.now += world.took;
    world.committed.insert(at(0, 300));
    world.look();
    assert!(!world.covers(at(0, 300)), "a full look");
    // One is under way when the hints are missed, and has read.
    world.now += world.took * FULL_SHARE;
    world.committed.remove(&at(0, 300));
    world.start_look();
    world.read_look();
    world.committed.insert(at(0, 300));
    world.floors.missed();
    world.end_look();
    assert!(!world.covers(at(0, 300)));
    assert!(world.floors.lowest(KEY) > at(0, 900), "{:?}", world.floors.ranges([KEY]));
    world.now += world.took;
    world.look();
    assert!(!world.covers(at(0, 300)), "a full look right after another");
    world.now += world.took;
    world.look();
    assert!(world.covers(at(0, 300)));
}

#[test]
fn a_commit_may_take_as_long_as_postgresql_lets_it() {
    let mut world = worked_off();
    let seq = world.draw();
    let id = world.begin(at(0, seq), How::Elsewhere);
    for _ in 0..11 {
        world.last += 100;
        world.look();
    }
    world.commit(id);
    world.check("a slow commit");
}

#[test]
fn a_mass_below_a_floor_lowers_it() {
    let mut world = worked_off();
    world.committed.extend((300..800).map(|seq| at(0, seq)));
    world.look();
    assert!((300..800).all(|seq| world.covers(at(0, seq))));
}

#[test]
fn floors_are_in_force_only_while_full_looks_are_costly() {
    let mut world = worked_off();
    world.pages = 4;
    world.look();
    assert_eq!(world.floors.ranges([KEY]), [Range::whole(KEY)]);
    world.pages = COSTLY_PAGES;
    (0..5).for_each(|_| world.look());
    assert!(world.floors.lowest(KEY) > at(0, 900));
    world.floors.forget();
    assert_eq!(world.floors.ranges([KEY]), [Range::whole(KEY)]);
}

#[test]
fn a_scan_gets_no_more_than_so_many_ranges_and_the_last_reaches_to_the_end() {
    let mut world = worked_off();
    world.last = 1_000_000;
    (0..5).for_each(|_| world.look());
    let back: Vec<i64> = (0..100).map(|nth| world.begin(at(0, nth * 1_000), How::Back)).collect();
    back.into_iter().for_each(|id| world.commit(id));
    let ranges = world.floors.ranges([KEY]);
    assert_eq!(ranges.len(), 32);
    assert_eq!(ranges.last().unwrap().to, Place::END);
    world.check("all came back");
}

#[test]
fn other_servers_hear_where_jobs_came_back_once() {
    let mut world = World::new();
    let id = world.begin(at(0, 300), How::Back);
    assert_eq!(world.floors.take_unsaid(KEY), Some(Vec::new()));
    world.commit(id);
    assert_eq!(world.floors.take_unsaid(KEY), Some(vec![at(0, 300).block()]));
    assert_eq!(world.floors.take_unsaid(KEY), Some(Vec::new()));
    for nth in 0..100 {
        let id = world.begin(at(0, nth * 1_000), How::Back);
        world.commit(id);
    }
    assert_eq!(world.floors.take_unsaid(KEY), None);
    world.floors.put_back_unsaid(KEY, None);
    assert_eq!(world.floors.unsaid_keys(), [KEY]);
    assert_eq!(world.floors.take_unsaid(KEY), None);
    world.floors.put_back_unsaid(KEY, Some(at(0, 300).block()));
    assert_eq!(world.floors.take_unsaid(KEY), Some(vec![at(0, 300).block()]));
}
