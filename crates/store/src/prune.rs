//! How far prunes have come: each looks at a part of the store, and the next continues there.

use crate::command::ClassId;

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
