//! Losing many workers at once: whether their jobs are suspected, and whether silence is
//! believed.
//!
//! Workers that go at the same moment are not found in the same look: each has its own last
//! beat. So what counts is a window of time, and with those that were given up in it those that
//! are about to be.
//!
//! ```text
//! shut ──most fall silent, connections stand──▶ open: nothing is given up for silence
//!   ▲───they beat again, or a whole lease has passed──┘
//! ```

use std::collections::VecDeque;

use crate::time::{BootTime, Span};

/// Losing this many workers is never a mass loss.
pub const FEW: usize = 3;

/// The live workers, as one look finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FleetCounts {
    /// How many hold a lease.
    pub live: usize,
    /// Of these, how many lost their connection or have missed beats for half their lease.
    pub ailing: usize,
    /// Of these, how many are silent though no connection was seen to drop.
    pub silent: usize,
    /// How many the store shows as given up lately, by whatever server.
    pub lapsed_lately: usize,
}

/// What one server remembers of workers that were given up, and of its breaker.
#[derive(Debug, Default)]
pub struct MassLoss {
    lapsed: VecDeque<(BootTime, usize)>,
    opened: Option<BootTime>,
}

/// Returns whether `lost` workers of `all` are more than a few and more than half.
#[must_use]
pub const fn are_most(lost: usize, all: usize) -> bool {
    lost > FEW && lost.saturating_mul(2) > all
}

impl MassLoss {
    /// Notes that workers were given up.
    pub fn lapsed(&mut self, count: usize, now: BootTime) {
        if count > 0 {
            self.lapsed.push_back((now, count));
        }
    }

    /// Returns whether workers that are given up now go with most of the others, within a
    /// window: then none of their jobs is suspected.
    pub fn is_mass(&mut self, look: FleetCounts, window: Span, now: BootTime) -> bool {
        while self.lapsed.front().is_some_and(|(at, _)| now.since(*at) > window) {
            self.lapsed.pop_front();
        }
        let here: usize = self.lapsed.iter().map(|(_, count)| count).sum();
        let lapsed = here.max(look.lapsed_lately);
        are_most(look.ailing.saturating_add(lapsed), look.live.saturating_add(lapsed))
    }

    /// Returns until when workers that are merely silent are not given up, if most of them are:
    /// a whole lease from when that began. Those whose connection dropped are another matter.
    pub fn hold(&mut self, look: FleetCounts, lease: Span, now: BootTime) -> Option<BootTime> {
        if !are_most(look.silent, look.live) {
            self.opened = None;
            return None;
        }
        let until = self.opened.get_or_insert(now).after(lease);
        (now < until).then_some(until)
    }
}

#[cfg(test)]
mod tests;
