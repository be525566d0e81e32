//! What keeps blocks readable while a transaction puts rows into them.

use std::hash::Hash;
use std::sync::Arc;

use outlast_core::time::Timestamp;
use outlast_store_rules::apply::sweep::Due;
use tokio::time::Instant;
use uuid::Uuid;

use super::look::AllFloors;
use super::sweeps::{Sweeps, Swept};
use super::{Block, Floors, Place};

/// The holds of one transaction.
#[derive(Debug)]
pub(crate) struct AllHolds {
    /// Of claimable jobs, by class.
    pub(crate) ready: Holds<i64>,
    /// Of attempts, by worker.
    pub(crate) active: Holds<Uuid>,
    pub(crate) sweeps: DueHolds,
}

impl AllHolds {
    pub(crate) fn new(floors: &AllFloors) -> Self {
        Self {
            ready: Holds::new(Arc::clone(&floors.ready)),
            active: Holds::new(Arc::clone(&floors.active)),
            sweeps: DueHolds::new(Arc::clone(&floors.sweeps)),
        }
    }

    /// Says whether the commit was sent and not answered.
    pub(crate) const fn set_uncertain(&mut self, is_uncertain: bool) {
        self.ready.set_uncertain(is_uncertain);
        self.active.set_uncertain(is_uncertain);
    }
}

/// What one transaction stores that was due long ago, and what it has swept.
#[derive(Debug)]
pub(crate) struct DueHolds {
    sweeps: Arc<Sweeps>,
    held: Vec<(Due, i64)>,
    swept: Vec<Swept>,
}

impl DueHolds {
    fn new(sweeps: Arc<Sweeps>) -> Self {
        Self { sweeps, held: Vec::new(), swept: Vec::new() }
    }

    /// Notes what a sweep has found. It raises the floor once the transaction is committed: one that is
    /// made again finds the same.
    pub(crate) fn sweep(&mut self, swept: Swept) {
        self.swept.push(swept);
    }

    /// Notes that the transaction is committed.
    pub(crate) fn confirm(&mut self) {
        for swept in self.swept.drain(..) {
            self.sweeps.raise(&swept);
        }
    }

    /// Notes a row before it is stored; its time is in milliseconds, and `now` is the transaction's.
    pub(crate) fn put(&mut self, due: Due, time: i64, now: Timestamp) {
        if self.sweeps.put(due, time, now) {
            self.held.push((due, time));
        }
    }

    pub(crate) fn sweeps(&self) -> &Sweeps {
        &self.sweeps
    }
}

impl Drop for DueHolds {
    fn drop(&mut self) {
        for (due, time) in self.held.drain(..) {
            self.sweeps.lower(due, time);
        }
    }
}

/// The blocks into which one transaction puts rows. When it is dropped, the transaction has ended,
/// or has an unknown outcome.
#[derive(Debug)]
pub(crate) struct Holds<K: Copy + Eq + Hash + Ord> {
    floors: Arc<Floors<K>>,
    held: Vec<(K, Block)>,
    /// Whether the commit was sent and not answered.
    is_uncertain: bool,
}

impl<K: Copy + Eq + Hash + Ord> Holds<K> {
    pub(crate) const fn new(floors: Arc<Floors<K>>) -> Self {
        Self { floors, held: Vec::new(), is_uncertain: false }
    }

    /// Says whether the commit was sent and not answered.
    pub(crate) const fn set_uncertain(&mut self, is_uncertain: bool) {
        self.is_uncertain = is_uncertain;
    }

    /// Makes a place readable before the transaction puts a row there.
    pub(crate) fn put(&mut self, key: K, place: Place) {
        self.hold(key, place.block());
    }

    /// Makes a rank readable before the transaction stores new jobs there.
    pub(crate) fn put_new(&mut self, key: K, rank: i64) {
        self.hold(key, Block::of_new_jobs(rank));
    }

    fn hold(&mut self, key: K, block: Block) {
        let held = (key, block);
        // Rows come mostly in order.
        if self.held.last() != Some(&held) {
            self.floors.hold(key, held.1);
            self.held.push(held);
        }
    }

    pub(crate) fn floors(&self) -> &Floors<K> {
        &self.floors
    }
}

impl<K: Copy + Eq + Hash + Ord> Drop for Holds<K> {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        if self.is_uncertain {
            self.floors.release_later(held, Instant::now());
        } else {
            self.floors.release(&held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A batch that was made again after a conflict passed over what had expired long ago, because
    // its first try had raised the floor.
    #[test]
    fn a_transaction_that_is_not_committed_raises_no_floor() {
        let sweeps = Arc::new(Sweeps::default());
        let begin = Instant::now();
        let slow = begin + std::time::Duration::from_millis(100);
        let try_once = || {
            let mut holds = DueHolds::new(Arc::clone(&sweeps));
            let began = sweeps.begin(Due::Expiry, slow);
            holds.sweep(sweeps.end(Due::Expiry, began, Some(Timestamp(100_000)), slow));
            holds
        };
        let lost = sweeps.begin(Due::Expiry, begin);
        let _lost = sweeps.end(Due::Expiry, lost, Some(Timestamp(100_000)), slow);
        assert_eq!(sweeps.begin(Due::Expiry, slow).from, [i64::MIN]);
        // A sweep of all times took long, so that the next begins at the floor.
        let first = sweeps.begin(Due::Expiry, begin);
        sweeps.raise(&sweeps.end(Due::Expiry, first, Some(Timestamp(50_000)), slow));
        assert_eq!(sweeps.begin(Due::Expiry, slow).from, [45_000]);
        drop(try_once());
        assert_eq!(sweeps.begin(Due::Expiry, slow).from, [45_000]);
        let mut holds = try_once();
        // It comes back in the same transaction, after the sweep.
        holds.put(Due::Expiry, 20_000, Timestamp(100_000));
        holds.confirm();
        drop(holds);
        assert_eq!(sweeps.begin(Due::Expiry, slow).from, [20_000]);
        try_once().confirm();
        assert_eq!(sweeps.begin(Due::Expiry, slow).from, [95_000]);
    }
}
