//! How many jobs of a class claims take for workers without a free slot.
//!
//! Most jobs of a class may wait for a limit. A claim that asks for many of these reads many and gets
//! few. So the next one asks for twice as many as the last one got, once a limit has opened.

use outlast_store::command::ClassKey;
use outlast_store_rules::apply::limit::Limits;

/// What a claim asks for at least.
const LEAST: u32 = 8;

/// How many jobs of a class may be sent to workers without a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefetch {
    /// So many by one claim.
    UpTo(u32),
    /// None until a limit opens, and then so many.
    Later(u32),
    /// None, as long as these limits are in force: they count starts, and such a job starts later.
    Never {
        /// Whether workers that can take its jobs take no others ahead, so that slots become free:
        /// the last claim for free slots got some of it, or could have.
        needs_slots: bool,
    },
}

impl Prefetch {
    pub(super) fn of(limits: &Limits, key: &ClassKey) -> Self {
        if limits.may_prefetch(key) {
            Self::UpTo(u32::MAX)
        } else {
            Self::Never { needs_slots: true }
        }
    }

    /// Returns how many jobs one claim asks for now.
    pub(crate) const fn most(self) -> u32 {
        match self {
            Self::UpTo(most) => most,
            Self::Later(_) | Self::Never { .. } => 0,
        }
    }

    /// Whether workers that can take its jobs take no others ahead.
    pub(crate) const fn stops_others(self) -> bool {
        matches!(self, Self::Never { needs_slots: true })
    }

    /// There may be jobs of it that start at once.
    pub(super) const fn may_start(&mut self) {
        if let Self::Never { needs_slots } = self {
            *needs_slots = true;
        }
    }

    /// A claim for free slots took jobs of it, or others before it, or its rate was shut.
    pub(super) const fn slots_filled(&mut self, has_some: bool) {
        if let Self::Never { needs_slots } = self {
            *needs_slots = has_some;
        }
    }

    /// A claim got so many, fewer than it asked for: limits let no more start.
    pub(super) fn ended_short(&mut self, got: u32) {
        let next = got.saturating_mul(2).max(LEAST);
        match self {
            Self::UpTo(_) => *self = Self::Later(next),
            // One of several claims of a plan, of which the first got what there was.
            Self::Later(most) => *most = next.max(*most),
            Self::Never { .. } => {}
        }
    }

    /// A claim got all that it asked for.
    pub(super) fn ended_full(&mut self) {
        if let Self::UpTo(most) = self {
            *most = most.saturating_mul(2);
        }
    }

    /// A limit has opened.
    pub(super) fn opened(&mut self) {
        if let Self::Later(most) = *self {
            *self = Self::UpTo(most);
        }
    }
}
