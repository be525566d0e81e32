//! How long things took, in buckets.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bounds of buckets, in milliseconds, as the standard recommends them for run times.
pub(crate) const RUN: &[u64] =
    &[5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000];
/// The same for waits.
pub(crate) const WAIT: &[u64] = &[
    10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000,
];
/// For commits and delays of the server itself, in microseconds.
pub(crate) const SHORT: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    5_000_000,
];

/// Counts of what fell into each bucket. The unit is that of the bounds.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [u64],
    /// One more than bounds: the last is for what is above them all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns what it holds now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Snapshot { bounds: self.bounds, counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// A histogram at a moment; several may be added up.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) bounds: &'static [u64],
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: u64,
}

impl Snapshot {
    pub(crate) fn empty(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0 }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
