//! Floors: where a scan in the order of an index may begin.
//!
//! PostgreSQL keeps the index entries of deleted rows for as long as any transaction of the database
//! holds a snapshot that is older. A scan that begins at the start of a class would walk over the
//! entries of all jobs that were taken since. So the process remembers, for each class, below which
//! place there is nothing, and begins there. The same holds for the attempts of a worker.
//!
//! ```text
//!  rank -2   ░░░░░░░░░░░░[b7]░░░░░░░░░░░│floor ─────────▶
//!  rank  0   ░░░░[b2]░░░░░░░░░░░░░░░░░░░░░░░░░│floor ───▶
//!            nothing     blocks: jobs that came back     open ranges
//! ```
//!
//! **Looks** find this out, beside the claims: each reads the first rows of the ranges, raises floors
//! and drops blocks in which it found nothing. A job that comes back under its old number, such as
//! one that is retried, makes its block (256 numbers) readable before its transaction commits. A look
//! that began before the transaction ended does not drop the block: tickets say which was first.
//!
//! New numbers are no problem: a floor is never raised past a number that some transaction may still
//! store ([`decided`]). Jobs that other servers put below a floor are named in their signals; and
//! a full look, at a bounded rate, finds those that no signal named.
//!
//! Floors are in force only while full looks are costly. Without an old snapshot, every scan begins
//! at the start, as if there were no floors.
//!
//! A statement that proves that something is empty must not use floors.

pub(crate) mod arrivals;
mod decided;
pub(crate) mod hold;
pub(crate) mod holders;
mod known;
pub(crate) mod look;
pub(crate) mod sweeps;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use decided::{Decided, Seen};
pub(crate) use known::Look;
use known::{Known, Part, Read};

/// Numbers in a block, as a power of two.
const BLOCK_BITS: u32 = 8;
/// Most rows that a look expects below a floor; if there are more, the floor is lowered.
pub(crate) const ROWS_BELOW: usize = 200;
/// Most keys that one look reads.
const KEYS_MAX: usize = 1_000;
/// From how many pages on a full look is costly: so many, and these for each range. A page holds
/// about a hundred entries or rows.
const COSTLY: i64 = 64;
const COSTLY_EACH: i64 = 16;
/// Time between looks while floors are in force.
const SOON: Duration = Duration::from_millis(50);
/// How many times as long as a look took the next one waits at least.
const SOON_SHARE: u32 = 10;
/// Least time between full looks, and how many times as long as the last one took.
const FULL_MIN: Duration = Duration::from_secs(1);
const FULL_SHARE: u32 = 20;
/// How often all keys are named while floors are not in force.
const ALL_KEYS: Duration = Duration::from_secs(5);
/// How long a commit without an answer may still take effect. PostgreSQL ends what runs longer.
const UNCERTAIN: Duration = Duration::from_secs(60);
/// Most blocks of a key of which other servers hear.
const UNSAID_MAX: usize = 64;

/// A place in the order of a key's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) rank: i64,
    pub(crate) seq: i64,
}

impl Place {
    pub(crate) const START: Self = Self { rank: i64::MIN, seq: i64::MIN };
    pub(crate) const END: Self = Self { rank: i64::MAX, seq: i64::MAX };

    const fn block(self) -> Block {
        Block { rank: self.rank, nth: self.seq >> BLOCK_BITS }
    }
}

/// Numbers next to each other, at one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block {
    pub(crate) rank: i64,
    pub(crate) nth: i64,
}

impl Block {
    /// Stands for numbers that are drawn as jobs are stored.
    const fn of_new_jobs(rank: i64) -> Self {
        Self { rank, nth: i64::MIN >> BLOCK_BITS }
    }

    const fn is_of_new_jobs(self) -> bool {
        self.nth == i64::MIN >> BLOCK_BITS
    }

    const fn start(self) -> i64 {
        self.nth << BLOCK_BITS
    }

    const fn end(self) -> i64 {
        (self.nth << BLOCK_BITS).saturating_add(1 << BLOCK_BITS)
    }
}

/// Where rows of a key may be: from a place on, before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range<K> {
    pub(crate) key: K,
    pub(crate) from: Place,
    pub(crate) to: Place,
}

impl<K> Range<K> {
    const fn whole(key: K) -> Self {
        Self { key, from: Place::START, to: Place::END }
    }
}

#[derive(Debug)]
struct State<K> {
    in_force: bool,
    /// Whether a look is under way.
    looking: bool,
    /// Rises with everything that happens.
    ticket: u64,
    /// The ticket of the last time when all was forgotten: earlier looks say nothing.
    forgot: u64,
    known: HashMap<K, Known>,
    /// Keys that were read since the last look began.
    used: HashSet<K>,
    /// Where transactions of unknown outcome may put rows, and until when they may.
    uncertain: Vec<(Instant, Vec<(K, Block)>)>,
    /// Blocks of which other servers have not heard; `None` if there are too many.
    unsaid: HashMap<K, Option<HashSet<Block>>>,
    decided: Decided,
    next: Option<Instant>,
    full: FullLooks,
    /// When all keys are to be named again.
    all_keys: Option<Instant>,
}

/// When full looks are made.
#[derive(Debug, Default)]
struct FullLooks {
    /// When the next one is due.
    next: Option<Instant>,
    /// The same while hints of other servers are missed.
    soonest: Option<Instant>,
    /// The ticket of the last time when hints were missed: earlier looks do not find what they were
    /// about.
    missed: u64,
    /// The ticket of the latest one that was made.
    made: u64,
}

impl FullLooks {
    const fn is_awaited(&self) -> bool {
        self.missed > self.made
    }

    const fn at(&self) -> Option<Instant> {
        if self.is_awaited() { self.soonest } else { self.next }
    }

    fn ended(&mut self, ticket: u64, now: Instant, took: Duration) {
        self.made = self.made.max(ticket);
        self.next = Some(now + FULL_MIN.max(took * FULL_SHARE));
        self.soonest = Some(now + FULL_MIN.max(took));
    }

    /// None is made before that time.
    fn put_off(&mut self, until: Instant) {
        self.next = self.next.max(Some(until));
        self.soonest = self.soonest.max(Some(until));
    }
}

/// Whether other servers hear where rows came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    ByOthers,
    ByNone,
}

/// The floors of all keys, shared by all that read and write.
#[derive(Debug)]
pub(crate) struct Floors<K> {
    heard: Heard,
    state: Mutex<State<K>>,
}

/// What a look found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The first rows of each range, in order.
    pub(crate) rows: Vec<Vec<Place>>,
    /// How many rows were asked for of a range that is not below a floor.
    pub(crate) asked: usize,
    pub(crate) last: i64,
    pub(crate) xmin: i64,
    pub(crate) xmax: i64,
    /// Pages that were read.
    pub(crate) pages: i64,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
}

impl<K: Copy + Eq + Hash + Ord> Floors<K> {
    pub(crate) fn new(heard: Heard) -> Self {
        let state = State {
            in_force: false,
            looking: false,
            ticket: 0,
            forgot: 0,
            known: HashMap::new(),
            used: HashSet::new(),
            uncertain: Vec::new(),
            unsaid: HashMap::new(),
            decided: Decided::default(),
            next: None,
            full: FullLooks::default(),
            all_keys: None,
        };
        Self { heard, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the rows of these keys may be: of each key in order, and not overlapping.
    pub(crate) fn ranges(&self, keys: impl IntoIterator<Item = K>) -> Vec<Range<K>> {
        let mut state = self.state();
        let mut ranges = Vec::new();
        for key in keys {
            state.used.insert(key);
            match state.known.get(&key).filter(|_| state.in_force) {
                Some(known) => known.ranges(key, &mut ranges),
                None => ranges.push(Range::whole(key)),
            }
        }
        ranges
    }

    pub(crate) fn are_in_force(&self) -> bool {
        self.state().in_force
    }

    /// Whether a scan of the key reads a place.
    pub(crate) fn covers(&self, key: K, place: Place) -> bool {
        let state = self.state();
        let mut ranges = vec![Range::whole(key)];
        if let Some(known) = state.known.get(&key).filter(|_| state.in_force) {
            ranges.clear();
            known.ranges(key, &mut ranges);
        }
        ranges.iter().any(|range| range.from <= place && place < range.to)
    }

    /// Returns before which place a key has no rows.
    pub(crate) fn lowest(&self, key: K) -> Place {
        self.ranges([key]).first().map_or(Place::START, |range| range.from)
    }

    /// Returns below which number a key has no rows, at any rank.
    pub(crate) fn lowest_seq(&self, key: K) -> i64 {
        let state = self.state();
        let known = state.known.get(&key).filter(|_| state.in_force);
        let lowest = known.and_then(Known::lowest_seq);
        lowest.unwrap_or(i64::MIN)
    }

    /// Whether a scan of all keys should name those that it passed: they get floors, or show
    /// that scans are costly.
    pub(crate) fn wants_all_keys(&self, now: Instant) -> bool {
        let mut state = self.state();
        let wants = state.in_force || state.all_keys.is_none_or(|at| at <= now);
        if wants {
            state.all_keys = Some(now + ALL_KEYS);
        }
        wants
    }

    /// Notes that keys were read.
    pub(crate) fn use_keys(&self, keys: impl IntoIterator<Item = K>) {
        self.state().used.extend(keys);
    }

    /// Returns where rows of those of the wanted keys are that have floors.
    pub(crate) fn all_ranges(&self, mut is_wanted: impl FnMut(&K) -> bool) -> Vec<Range<K>> {
        let mut state = self.state();
        let mut ranges = Vec::new();
        if state.in_force {
            let mut keys: Vec<K> = state.known.keys().copied().filter(&mut is_wanted).collect();
            keys.sort_unstable();
            for key in keys {
                if let Some(known) = state.known.get(&key).filter(|known| known.is_seen()) {
                    known.ranges(key, &mut ranges);
                    state.used.insert(key);
                }
            }
        }
        ranges
    }

    /// Forgets all: numbers begin again.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        state.ticket += 1;
        state.forgot = state.ticket;
        state.full = FullLooks::default();
        state.known.retain(|_, known| known.forget_floors(u64::MAX));
    }

    /// Notes that other servers may have put rows anywhere: a full look that begins from now on
    /// finds them, and is made soon. Floors stay in force until then, as every scan without them walks
    /// as far as that look.
    pub(crate) fn missed(&self) {
        let mut state = self.state();
        state.ticket += 1;
        if state.known.values().filter(|known| known.is_seen()).count() > KEYS_MAX {
            // More than a look reads.
            state.forgot = state.ticket;
            state.known.retain(|_, known| known.forget_floors(u64::MAX));
        }
        state.full.missed = state.ticket;
    }

    /// Forgets what is known of one key.
    pub(crate) fn forget_key(&self, key: K) {
        let mut state = self.state();
        state.ticket += 1;
        // A look that is under way read too early.
        state.forgot = state.ticket;
        if let Some(known) = state.known.get_mut(&key)
            && !known.forget_floors(u64::MAX)
        {
            state.known.remove(&key);
        }
    }

    /// Whether hints were missed, and no full look was made since.
    #[cfg(test)]
    pub(crate) fn full_look_is_awaited(&self) -> bool {
        self.state().full.is_awaited()
    }

    /// Notes that another server put rows into a block.
    pub(crate) fn heard(&self, key: K, block: Block) {
        let mut state = self.state();
        state.ticket += 1;
        let ticket = state.ticket;
        if state.in_force || state.looking {
            state.known.entry(key).or_default().make_readable(block).ticket = ticket;
        }
    }

    /// Takes where rows of a key came back of which other servers have not heard; `None` if it may be
    /// anywhere.
    pub(crate) fn take_unsaid(&self, key: K) -> Option<Vec<Block>> {
        match self.state().unsaid.remove(&key) {
            Some(None) => None,
            Some(Some(blocks)) => Some(blocks.into_iter().collect()),
            None => Some(Vec::new()),
        }
    }

    /// Returns the keys of which other servers have not heard all.
    pub(crate) fn unsaid_keys(&self) -> Vec<K> {
        self.state().unsaid.keys().copied().collect()
    }

    /// Puts back what was taken and did not reach the other servers; `None` for any block of the key.
    pub(crate) fn put_back_unsaid(&self, key: K, block: Option<Block>) {
        let mut state = self.state();
        match block {
            Some(block) => state.leave_unsaid(key, block),
            None => drop(state.unsaid.insert(key, None)),
        }
    }

    fn hold(&self, key: K, block: Block) {
        let mut state = self.state();
        state.ticket += 1;
        let ticket = state.ticket;
        let readable = state.known.entry(key).or_default().make_readable(block);
        readable.holds += 1;
        readable.ticket = ticket;
    }

    /// Ends holds: their transaction has ended.
    fn release(&self, held: &[(K, Block)]) {
        let mut state = self.state();
        if self.heard == Heard::ByOthers {
            held.iter().for_each(|(key, block)| state.leave_unsaid(*key, *block));
        }
        state.release(held);
    }

    /// The transaction may have ended, or take effect later.
    fn release_later(&self, held: Vec<(K, Block)>, now: Instant) {
        let mut state = self.state();
        if self.heard == Heard::ByOthers {
            held.iter().for_each(|(key, block)| state.leave_unsaid(*key, *block));
        }
        state.uncertain.push((now + UNCERTAIN, held));
    }

    /// Returns when the next look is due, if one is and none is under way. The caller makes it.
    pub(crate) fn schedule(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state();
        if state.looking || state.used.is_empty() {
            return None;
        }
        state.looking = true;
        let next = if state.in_force { state.next } else { state.full.at() };
        Some(next.unwrap_or(now).max(now))
    }

    /// Returns what the look reads that was scheduled.
    pub(crate) fn begin(&self, now: Instant) -> Look<K> {
        let mut state = self.state();
        state.ticket += 1;
        state.end_uncertain(now);
        let is_full = !state.in_force || state.full.at().is_none_or(|at| at <= now);
        let mut used: HashSet<K> = std::mem::take(&mut state.used);
        let mut keys = Vec::new();
        if is_full {
            // First, so that rows below their floors are found.
            let seen = state.known.iter().filter(|(_, known)| known.is_seen());
            keys.extend(seen.map(|(key, _)| *key));
            used.retain(|key| !state.known.get(key).is_some_and(Known::is_seen));
        }
        keys.extend(used);
        let mut look =
            Look { ticket: state.ticket, is_full, parts: Vec::new(), ranges: Vec::new() };
        for key in keys.into_iter().take(KEYS_MAX) {
            match state.known.get(&key).filter(|known| state.in_force && known.is_seen()) {
                Some(known) => known.parts(key, &mut look),
                None => look.add(Part::Whole, Range::whole(key)),
            }
        }
        look
    }

    /// The look that was scheduled was not begun.
    pub(crate) fn put_off(&self, now: Instant) {
        let mut state = self.state();
        state.looking = false;
        state.next = Some(now + FULL_MIN);
        state.full.put_off(now + FULL_MIN);
    }

    /// The look failed after so long. One that took too long would do so again.
    pub(crate) fn fail(&self, look: &Look<K>, took: Duration, now: Instant) {
        self.put_off(now);
        let mut state = self.state();
        // As long as there are no floors, every scan walks as far as the look.
        let share = if state.in_force { FULL_SHARE } else { 1 };
        if look.is_full {
            state.full.put_off(now + took * share);
        }
    }

    /// Takes in what a look found.
    pub(crate) fn end(&self, look: &Look<K>, found: &Found) {
        let mut state = self.state();
        state.looking = false;
        let seen = Seen { last: found.last, xmin: found.xmin, xmax: found.xmax, at: found.began };
        let decided = state.decided.observe(seen);
        let ended = found.began + found.took;
        // Full looks have a pace of their own.
        let pause = if look.is_full { SOON } else { SOON.max(found.took * SOON_SHARE) };
        state.next = Some(ended + pause);
        if look.is_full {
            state.full.ended(look.ticket, ended, found.took);
            let ranges = i64::try_from(look.ranges.len()).unwrap_or(i64::MAX);
            state.in_force = found.pages > COSTLY + COSTLY_EACH * ranges;
        }
        if look.ticket < state.forgot {
            return;
        }
        let in_force = state.in_force;
        if !in_force {
            state.known.retain(|_, known| known.forget_floors(look.ticket));
            return;
        }
        for ((part, range), rows) in look.parts.iter().zip(&look.ranges).zip(&found.rows) {
            let asked = if *part == Part::Below { ROWS_BELOW } else { found.asked };
            let read = Read { rows, is_all: rows.len() < asked, decided, ticket: look.ticket };
            state.known.entry(range.key).or_default().take_in(*part, range, &read);
        }
    }
}

impl<K: Copy + Eq + Hash + Ord> State<K> {
    fn leave_unsaid(&mut self, key: K, block: Block) {
        // They read ranks behind the first one that they know.
        if block.is_of_new_jobs() && block.rank >= 0 {
            return;
        }
        let unsaid = self.unsaid.entry(key).or_insert_with(|| Some(HashSet::new()));
        if let Some(blocks) = unsaid {
            blocks.insert(block);
            if blocks.len() > UNSAID_MAX {
                *unsaid = None;
            }
        }
    }

    fn release(&mut self, held: &[(K, Block)]) {
        self.ticket += 1;
        let keep = self.in_force || self.looking;
        for (key, block) in held {
            let Some(known) = self.known.get_mut(key) else { continue };
            let Some(readable) = known.blocks.get_mut(block) else { continue };
            readable.holds = readable.holds.saturating_sub(1);
            readable.ticket = self.ticket;
            if readable.holds == 0 && !keep {
                known.blocks.remove(block);
                if known.blocks.is_empty() {
                    self.known.remove(key);
                }
            }
        }
    }

    fn end_uncertain(&mut self, now: Instant) {
        for (until, held) in std::mem::take(&mut self.uncertain) {
            if until <= now {
                self.release(&held);
            } else {
                self.uncertain.push((until, held));
            }
        }
    }
}
