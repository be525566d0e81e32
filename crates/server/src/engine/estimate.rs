//! How many claimable jobs a class has, as far as one server knows. Pure.
//!
//! Jobs come and go at other servers, so a count is never certain. An estimate that is too high
//! costs a claim that returns few jobs; one that stays too low would drain a backlog slowly:
//!
//! ```text
//! none ──jobs stored here, or signalled──▶ n ──claim took n──▶ none
//!   ▲──────claim came back short──────────────┘
//!   └─────jobs found in the store──▶ at least n ──claim took them all──▶ twice what it took
//! ```
//!
//! A class of which a claim has proved that it is empty has only the jobs that came since. Every
//! server counts those that it makes claimable and signals those that it has no room for, so
//! together they know of each one. A lost signal costs the time until the store is read again.

/// A class with more than this is not counted further: no plan asks for as many.
pub(crate) const MANY: u64 = 2_000;

/// How many claimable jobs a class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Estimate {
    /// A claim returned fewer jobs than it asked for, and none has come since.
    #[default]
    None,
    /// This many came since a claim found none, and at least one.
    Exactly(u64),
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
            Self::Exactly(count) | Self::AtLeast(count) => count,
            Self::Many => u32::MAX as u64,
        }
    }

    /// Whether there may be no more than this many: where the count is a lower bound, it may be the
    /// guess after a claim of them all.
    pub(crate) const fn may_be(self, count: u64) -> bool {
        match self {
            Self::None => true,
            Self::Exactly(known) => known <= count,
            Self::AtLeast(known) => known <= count.saturating_mul(2),
            Self::Many => false,
        }
    }

    /// More jobs became claimable.
    pub(crate) const fn more(self, count: u64) -> Self {
        match (self, self.wanted().saturating_add(count)) {
            (Self::Many, _) | (_, MANY..) => Self::Many,
            (Self::None | Self::Exactly(_), 0) => Self::None,
            (Self::None | Self::Exactly(_), sum) => Self::Exactly(sum),
            (Self::AtLeast(_), sum) => Self::of(sum),
        }
    }

    /// This many were counted in the store a moment ago. There may be more: it counts to a limit,
    /// and others may have come since. A higher estimate stays.
    pub(crate) const fn counted(self, count: u64) -> Self {
        match (self, count) {
            (_, 0) => self,
            (known, _) if known.wanted() > count => Self::of(known.wanted()),
            _ => Self::of(count),
        }
    }

    /// A claim got all it asked for, `got` of them of this class. Where the count is a lower bound,
    /// only a claim that returns too few proves that none is left, so the next one asks for more.
    pub(crate) const fn took(self, got: u64) -> Self {
        match self {
            Self::Many => Self::Many,
            Self::None | Self::Exactly(_) | Self::AtLeast(_) if got == 0 => self,
            Self::None => Self::None,
            Self::Exactly(known) if known > got => Self::Exactly(known - got),
            Self::Exactly(_) => Self::None,
            Self::AtLeast(known) if known > got => Self::AtLeast(known - got),
            Self::AtLeast(_) => Self::of(got.saturating_mul(2)),
        }
    }

    /// As [`Estimate::took`], of jobs that must run alone. A claim in vain would cost a worker that
    /// was kept free for it, so none are taken to be left. The next look finds those that are.
    pub(crate) const fn took_alone(self, got: u64) -> Self {
        match self {
            Self::Many => Self::Many,
            Self::Exactly(known) | Self::AtLeast(known) if known > got => {
                Self::Exactly(known - got)
            }
            Self::None | Self::Exactly(_) | Self::AtLeast(_) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a restart a class counted for one job, and each claim took one.
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

    /// Each empty claim is a transaction that the next job waits for.
    #[test]
    fn jobs_that_come_one_by_one_are_claimed_once_each() {
        let mut estimate = Estimate::None;
        for _ in 0..3 {
            estimate = estimate.more(1);
            assert_eq!(estimate.wanted(), 1);
            estimate = estimate.took(1);
            assert_eq!(estimate, Estimate::None);
        }
    }

    #[test]
    fn no_more_jobs_that_must_run_alone_are_looked_for_than_were_counted() {
        let two = Estimate::None.counted(2);
        assert_eq!(two.took_alone(1).wanted(), 1);
        assert_eq!(two.took_alone(1).took_alone(1), Estimate::None);
    }

    #[test]
    fn counts_add_up_until_they_are_many() {
        assert_eq!(Estimate::None.more(3).more(4), Estimate::Exactly(7));
        assert_eq!(Estimate::None.more(0), Estimate::None);
        assert_eq!(Estimate::AtLeast(3).more(4), Estimate::AtLeast(7));
        assert_eq!(Estimate::Exactly(3).counted(9), Estimate::AtLeast(9));
        assert_eq!(Estimate::Exactly(9).counted(3), Estimate::AtLeast(9));
        assert_eq!(Estimate::Exactly(1).counted(1), Estimate::AtLeast(1));
        assert_eq!(Estimate::Exactly(1).counted(0), Estimate::Exactly(1));
        assert_eq!(Estimate::Exactly(7).took(5), Estimate::Exactly(2));
        assert_eq!(Estimate::AtLeast(7).counted(5), Estimate::AtLeast(7));
        assert_eq!(Estimate::AtLeast(7).counted(9), Estimate::AtLeast(9));
        assert_eq!(Estimate::AtLeast(7).took(5), Estimate::AtLeast(2));
        assert_eq!(Estimate::AtLeast(7).took(0), Estimate::AtLeast(7));
        assert_eq!(Estimate::AtLeast(MANY - 1).more(1), Estimate::Many);
        assert_eq!(Estimate::Exactly(MANY - 1).more(1), Estimate::Many);
        assert_eq!(Estimate::Many.took(512), Estimate::Many);
        assert_eq!(Estimate::of(0), Estimate::None);
    }
}
