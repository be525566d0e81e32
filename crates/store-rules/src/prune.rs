//! How far prunes have come: each looks at a part of the store, and the next continues there.

use outlast_store::command::{ClassId, Prune};
use outlast_store::reply::Pruned;

use crate::apply::sweep::reached;
use crate::list::BLOCK_BITS;

/// What the latest prunes looked at last. It is kept in memory: after a restart they begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneCursors {
    /// The last class.
    pub class: ClassId,
    /// The last job: when it ended, in milliseconds, and its number.
    pub job: (i64, i64),
    /// The last block of jobs.
    pub block: i64,
}

impl Default for PruneCursors {
    fn default() -> Self {
        Self { class: ClassId(0), job: (i64::MIN, 0), block: -1 }
    }
}

impl PruneCursors {
    /// Returns the job that a prune continues after, or starts at.
    #[must_use]
    pub fn job_from(&self, from_start: bool) -> (i64, i64) {
        if from_start { Self::default().job } else { self.job }
    }
}

/// How many workflows one prune deletes. Each may have 10,000 items, so they go in small steps.
pub const WORKFLOWS_MAX: i64 = 10;

/// Returns how many workflows a prune found as it counts: when it came to its limit of them, another one
/// follows.
#[must_use]
pub fn found_of(workflows: usize, prune: &Prune) -> usize {
    found_up_to(WORKFLOWS_MAX, workflows, prune)
}

fn found_up_to(most: i64, found: usize, prune: &Prune) -> usize {
    if reached(found, most) { usize::try_from(prune.limit).unwrap_or(usize::MAX) } else { 0 }
}

/// How many operations one prune deletes: more than end between two of them.
pub const OPERATIONS_MAX: i64 = 50;

/// The same as [`found_of`] for operations.
#[must_use]
pub fn operations_found(operations: usize, prune: &Prune) -> usize {
    found_up_to(OPERATIONS_MAX, operations, prune)
}

/// Returns the blocks that these jobs are in, each once.
#[must_use]
pub fn blocks_of(seqs: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut blocks: Vec<i64> = seqs.map(|seq| seq >> BLOCK_BITS).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// What a prune deleted.
#[derive(Clone, Copy, Debug)]
pub struct Deleted {
    /// Jobs.
    pub jobs: usize,
    /// Workers.
    pub workers: usize,
    /// Classes without jobs.
    pub classes: u32,
}

impl Deleted {
    /// Returns the reply. Another prune should follow if it came to its limit anywhere: with the
    /// workers, or with something else of which it `found` so many.
    #[must_use]
    pub fn reply(self, prune: &Prune, found: &[usize]) -> Pruned {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut all = found.iter().chain([&self.workers]);
        Pruned {
            jobs: count(self.jobs),
            workers: count(self.workers),
            classes: self.classes,
            more: all.any(|found| reached(*found, i64::from(prune.limit))),
        }
    }
}
