//! How many claimable jobs a class has, as far as one server knows. Pure.
//!
//! Jobs come and go at other servers, so a count is never exact. An estimate that is too high costs
//! a claim that returns few jobs; one that stays too low would drain a backlog slowly:
//!
//! ```text
//! none ──stored here, counted, told──▶ at least n ──claim took them all──▶ twice what it took
//!   ▲──────claim came back short──────────────┘
//! ```

/// A class with more than this is not counted further: no plan asks for as many.
pub(crate) const MANY: u64 = 2_000;

/// How many claimable jobs a class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Estimate {
    /// A claim returned fewer jobs than it asked for, and none has come since.
    #[default]
    None,
    /// At least this many, and at least one.
    AtLeast(u64),
    /// More than any plan asks for.
    Many,
}

impl Estimate {
    /// Returns the estimate for this many counted jobs.
    pub(crate) const fn of(count: u64) -> Self {
        match count {
            0 => Self::None,
            1..MANY => Self::AtLeast(count),
            _ => Self::Many,
        }
    }

    /// Returns how many jobs a plan may ask for.
    pub(crate) const fn wanted(self) -> u64 {
        match self {
            Self::None => 0,
            Self::AtLeast(count) => count,
            Self::Many => u32::MAX as u64,
        }
    }

    /// More jobs became claimable.
    pub(crate) const fn more(self, count: u64) -> Self {
        match self {
            Self::Many => Self::Many,
            Self::None | Self::AtLeast(_) => Self::of(self.wanted().saturating_add(count)),
        }
    }

    /// This many were counted in the store a moment ago; a higher estimate stays.
    pub(crate) const fn counted(self, count: u64) -> Self {
        let counted = Self::of(count);
        if counted.wanted() > self.wanted() { counted } else { self }
    }

    /// A claim got all it asked for, `got` of them of this class. Only a claim that returns too few
    /// proves that none is left, so the next one asks for more.
    pub(crate) const fn took(self, got: u64) -> Self {
        match self {
            Self::Many => Self::Many,
            Self::None | Self::AtLeast(_) if got == 0 => self,
            Self::AtLeast(known) if known > got => Self::AtLeast(known - got),
            Self::None | Self::AtLeast(_) => Self::of(got.saturating_mul(2)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REVIEW S2: after a restart a class counted for one job, and each claim took one.
    #[test]
    fn a_backlog_of_unknown_length_is_asked_for_twice_as_much_each_time() {
        let (mut left, mut estimate, mut claims) = (60_000_u64, Estimate::of(1), 0);
        while estimate != Estimate::None {
            let asked = estimate.wanted().min(512);
            let got = asked.min(left);
            left -= got;
            claims += 1;
            estimate = if got < asked { Estimate::None } else { estimate.took(got) };
        }
        assert_eq!(left, 0);
        assert!(claims < 60_000 / 512 + 20, "{claims} claims");
    }

    #[test]
    fn counts_add_up_until_they_are_many() {
        assert_eq!(Estimate::None.more(3).more(4), Estimate::AtLeast(7));
        assert_eq!(Estimate::AtLeast(7).counted(5), Estimate::AtLeast(7));
        assert_eq!(Estimate::AtLeast(7).counted(9), Estimate::AtLeast(9));
        assert_eq!(Estimate::AtLeast(7).took(5), Estimate::AtLeast(2));
        assert_eq!(Estimate::AtLeast(7).took(0), Estimate::AtLeast(7));
        assert_eq!(Estimate::AtLeast(MANY - 1).more(1), Estimate::Many);
        assert_eq!(Estimate::Many.took(512), Estimate::Many);
        assert_eq!(Estimate::of(0), Estimate::None);
    }
}
