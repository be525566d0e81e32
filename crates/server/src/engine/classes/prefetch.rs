//! How many jobs of a class claims take for workers without a free slot.
//!
//! Most jobs of a class may wait for a limit. A claim that asks for many of these reads many and gets
//! few. So the next one asks for twice as many as the last one got, once a limit has opened.

use outlast_store::apply::limit::Limits;
use outlast_store::command::ClassKey;

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
    Never,
}

impl Prefetch {
    pub(super) fn of(limits: &Limits, key: &ClassKey) -> Self {
        if limits.may_prefetch(key) { Self::UpTo(u32::MAX) } else { Self::Never }
    }

    /// Returns how many jobs one claim asks for now.
    pub(crate) const fn most(self) -> u32 {
        match self {
            Self::UpTo(most) => most,
            Self::Later(_) | Self::Never => 0,
        }
    }

    /// A claim got so many, fewer than it asked for: limits let no more start.
    pub(super) fn ended_short(&mut self, got: u32) {
        if *self != Self::Never {
            *self = Self::Later(got.saturating_mul(2).max(LEAST));
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
