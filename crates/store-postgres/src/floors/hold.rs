//! What keeps blocks readable while a transaction puts rows into them.

use std::hash::Hash;
use std::sync::Arc;

use outlast_store_rules::apply::sweep::Due;
use tokio::time::Instant;
use uuid::Uuid;

use super::look::AllFloors;
use super::sweeps::Sweeps;
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
            sweeps: DueHolds { sweeps: Arc::clone(&floors.sweeps), held: Vec::new() },
        }
    }

    /// Says whether the commit was sent and not answered.
    pub(crate) const fn set_uncertain(&mut self, is_uncertain: bool) {
        self.ready.set_uncertain(is_uncertain);
        self.active.set_uncertain(is_uncertain);
    }
}

/// What one transaction stores that was due long ago.
#[derive(Debug)]
pub(crate) struct DueHolds {
    sweeps: Arc<Sweeps>,
    held: Vec<(Due, i64)>,
}

impl DueHolds {
    /// Notes a row before it is stored; its time is in milliseconds.
    pub(crate) fn put(&mut self, due: Due, time: i64) {
        if self.sweeps.lower(due, time) {
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
            self.sweeps.lower_again(due, time);
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
