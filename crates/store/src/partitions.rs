//! Looking after what history is kept in, which is no part of any batch.

use outlast_core::time::Timestamp;

use crate::command::LeadershipFence;

/// A look at what history is kept in. It may be broken off and repeated at any time.
#[derive(Clone, Debug)]
pub struct Maintain {
    /// The lease it is done under; refused when another server has taken over.
    pub leadership: LeadershipFence,
    /// Events, and attempts and output of jobs that are forgotten, go when all of their day is
    /// before this.
    pub finished_before: Timestamp,
    /// How many rows at most are deleted one by one of each sort.
    pub limit: u32,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Maintained {
    /// Partitions made.
    pub made: u32,
    /// Partitions dropped.
    pub dropped: u32,
    /// Rows deleted one by one.
    pub deleted: u32,
    /// Whether a limit was reached, so that another look should follow.
    pub more: bool,
    /// Steps that were put off because another transaction had locked the table.
    pub put_off: u32,
}

/// A day in milliseconds.
pub const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The beginning of a time's day in UTC: history goes by whole days.
#[must_use]
pub const fn day_of(time: Timestamp) -> Timestamp {
    Timestamp(time.0.saturating_sub(time.0.rem_euclid(DAY_MS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_begins_at_midnight_on_both_sides_of_1970() {
        for (time, begins) in
            [(0, 0), (1, 0), (DAY_MS - 1, 0), (DAY_MS, DAY_MS), (-1, -DAY_MS), (-DAY_MS, -DAY_MS)]
        {
            assert_eq!(day_of(Timestamp(time)), Timestamp(begins), "{time}");
        }
    }
}
