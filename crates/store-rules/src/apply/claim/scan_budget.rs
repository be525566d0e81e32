//! How far a claim by limits looks.

/// Bounds of what one claim reads. Only tests have others than [`ScanBudget::STANDARD`]: few jobs are
/// enough for these to come to the end of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBudget {
    /// How many times as many of the first jobs of a class as it wants the first look of a claim reads,
    /// if it is of few classes.
    pub first_times: usize,
    /// How many of them it reads at least.
    pub first_jobs: usize,
    /// How many more jobs than it wants a claim tries at first: some lanes may be shut.
    pub spare: usize,
    /// How many of the first jobs of a class a walk looks at for their lanes.
    pub walk_jobs: u32,
    /// How many lanes of these it looks at, at least and at most.
    pub walk_lanes: (u32, u32),
    /// How many lanes of a class each page of a walk has. There are further ones only while the claim
    /// is short, and there are lanes that it has not looked at.
    pub pages: [u32; 4],
}

impl ScanBudget {
    /// What is right for stores that people use.
    pub const STANDARD: Self = Self {
        first_times: 2,
        first_jobs: 32,
        spare: 8,
        walk_jobs: 256,
        walk_lanes: (16, 128),
        pages: [32, 64, 96, 96],
    };

    /// What is right for stores that hold a handful of jobs: each part of a look ends before it has come
    /// to all of them.
    pub const SHORT: Self = Self {
        first_times: 1,
        first_jobs: 1,
        spare: 0,
        walk_jobs: 2,
        walk_lanes: (1, 1),
        pages: [1, 1, 1, 1],
    };

    /// Returns how many lanes of the first jobs of a class are looked at by a walk of a claim of
    /// `wanted` jobs, and how many of those in which a slot has become free.
    #[must_use]
    pub fn front_lanes(&self, wanted: usize) -> u32 {
        let (least, most) = self.walk_lanes;
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(least, most)
    }
}

impl Default for ScanBudget {
    fn default() -> Self {
        Self::STANDARD
    }
}
