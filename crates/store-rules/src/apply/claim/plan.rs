//! What the first pass of a claim reads.

use std::collections::HashMap;

use outlast_store::command::ClassId;

use super::lane::Lane;

/// What the first look of a claim reads.
#[derive(Debug, Default)]
pub struct FirstPassPlan {
    /// How many of the first jobs of each class.
    pub first: HashMap<ClassId, usize>,
    /// How many of the first jobs of lanes in which a slot has become free, or that gave some lately.
    pub recent: Vec<(ClassId, i64, usize)>,
    /// Classes that limits do not tell apart by keys.
    pub(super) whole: HashMap<ClassId, Lane>,
    /// Classes that take part by their lanes. If there are others, the first job of each is read.
    pub(super) by_lanes: Vec<ClassId>,
}

impl FirstPassPlan {
    /// Whether the lanes of the first jobs of a class matter.
    #[must_use]
    pub fn has_lanes(&self, class: ClassId) -> bool {
        !self.whole.contains_key(&class) && !self.by_lanes.contains(&class)
    }
}

/// A claimable job that the first look may take.
#[derive(Clone, Copy, Debug)]
pub struct FirstJob {
    /// Its class.
    pub class: ClassId,
    /// Its lane; `None` if no limit tells the jobs of the class apart.
    pub lane: Option<i64>,
    /// Its rank.
    pub rank: i64,
    /// Its number.
    pub seq: i64,
    /// Whether it was read for its lane, which [`FirstPassPlan::recent`] names.
    pub is_recent: bool,
}
