//! Which jobs a claim takes, and what stops the others.

use std::collections::BTreeMap;

use outlast_core::gate::Shut;
use outlast_core::limit::GateId;
use outlast_core::time::Timestamp;
use outlast_store::command::ClassId;
use outlast_store::reply::{Blocked, Claims};

use super::lane::{Lane, LaneJob};

/// Why no more jobs of a lane start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedBy {
    /// Another server is claiming through one of its gates.
    Busy,
    /// A gate counts as many attempts as it lets run.
    Full,
    /// A rate lets the next one start at this time.
    Until(Timestamp),
    /// A rate is kept for jobs that start at once.
    Reserved,
}

impl From<Shut> for BlockedBy {
    fn from(shut: Shut) -> Self {
        match shut {
            Shut::Full => Self::Full,
            Shut::Until(at) => Self::Until(at),
        }
    }
}

/// The jobs that a claim takes.
#[derive(Debug, Default)]
pub struct Selection {
    /// The jobs, best first.
    pub heads: Vec<LaneJob>,
    /// For each lane, why no more of it were taken, if a gate was the reason.
    pub stops: Vec<Option<BlockedBy>>,
    /// The gates that were the reason.
    pub stopped: Vec<(GateId, BlockedBy)>,
    /// Whether all jobs were tried that were read.
    pub is_all: bool,
}

/// What a claim leaves in its classes when it comes back short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Those that are worth another look soon.
    pub retry: Vec<ClassId>,
    /// Those whose jobs wait for a limit.
    pub blocked: Vec<Blocked>,
    /// Those that have jobs for workers with free slots only.
    pub reserved: Vec<ClassId>,
}

impl Remaining {
    /// Notes in what a claim took what limits leave of its classes.
    pub fn note_in(self, claims: &mut Claims) {
        self.retry.into_iter().for_each(|class| claims.pass_over(class));
        claims.blocked.extend(self.blocked);
        claims.kept.extend(self.reserved);
    }

    /// Says what a claim that came back short may still find: in each lane it was stopped by this, or
    /// by nothing. Of some classes there are more lanes than were looked at (`has_more`).
    #[must_use]
    pub fn of(
        lanes: &[Lane],
        stops: &[Option<BlockedBy>],
        has_more: impl Fn(ClassId) -> bool,
    ) -> Self {
        let mut classes: BTreeMap<ClassId, Vec<BlockedBy>> = BTreeMap::new();
        for (lane, stop) in lanes.iter().zip(stops) {
            classes.entry(lane.class).or_default().extend(*stop);
        }
        let mut left = Self::default();
        for (class, stops) in classes {
            if stops.contains(&BlockedBy::Reserved) {
                left.reserved.push(class);
            } else if stops.contains(&BlockedBy::Busy) || has_more(class) {
                left.retry.push(class);
            } else if !stops.is_empty() {
                let opens = stops.iter().filter_map(|stop| match stop {
                    BlockedBy::Until(at) => Some(*at),
                    BlockedBy::Busy | BlockedBy::Full | BlockedBy::Reserved => None,
                });
                left.blocked.push(Blocked { class, until: opens.min() });
            }
        }
        left
    }

    /// Adds what the claim leaves in other classes.
    pub fn append(&mut self, mut other: Self) {
        self.retry.append(&mut other.retry);
        self.blocked.append(&mut other.blocked);
        self.reserved.append(&mut other.reserved);
    }
}

impl Selection {
    /// Some of the jobs could not be taken after all, so gates may have room for others instead:
    /// nothing is known of what stops these.
    pub fn missed(&mut self) {
        self.stops.fill(None);
        self.stopped.clear();
        self.is_all = false;
    }

    /// Returns the classes of lanes of which all `each` heads that were read are chosen: there may be
    /// more of them.
    #[must_use]
    pub fn exhausted(&self, lanes: &[Lane], each: usize) -> Vec<ClassId> {
        let mut counts = vec![0_usize; lanes.len()];
        for head in &self.heads {
            if let Some(count) = counts.get_mut(head.lane) {
                *count += 1;
            }
        }
        let full = lanes.iter().zip(counts).filter(|(_, count)| *count >= each);
        full.map(|(lane, _)| lane.class).collect()
    }
}
