//! Unique jobs: when a job that is already stored stands in the way of a new one.
//!
//! ```text
//! new job ─fingerprint─▶ which job took this key last? ─none, or not in the way─▶ stored, takes it
//!                                                       └─in the way─▶ reject | ignore | replace
//! ```
//!
//! A job is judged when a new one meets it, by the policy of the new one. So nothing happens to a
//! key when its job is claimed or ends.

use crate::job::State;
use crate::time::{Span, Timestamp};

/// A hash of what makes a job the same as another.
pub type Fingerprint = [u8; 32];

/// A set of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct States(u8);

impl States {
    /// The states in which a job has yet to end: those that count if a policy names none.
    pub const LIVE: Self = Self::EMPTY
        .with(State::Scheduled)
        .with(State::Available)
        .with(State::Pending)
        .with(State::Active)
        .with(State::Retryable);

    /// No state.
    pub const EMPTY: Self = Self(0);

    /// Returns the set with one more state.
    #[must_use]
    pub const fn with(self, state: State) -> Self {
        Self(self.0 | Self::bit(state))
    }

    /// Whether the state is one of them.
    #[must_use]
    pub const fn has(self, state: State) -> bool {
        self.0 & Self::bit(state) != 0
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn bit(state: State) -> u8 {
        match state {
            State::Scheduled => 1,
            State::Available => 1 << 1,
            State::Pending => 1 << 2,
            State::Active => 1 << 3,
            State::Completed => 1 << 4,
            State::Retryable => 1 << 5,
            State::Cancelled => 1 << 6,
            State::Discarded => 1 << 7,
        }
    }
}

/// What becomes of a new job if another is in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnConflict {
    /// It is refused.
    Reject,
    /// It is not stored; its producer gets the other one instead.
    Ignore,
    /// It is stored, and the other one is cancelled.
    Replace,
    /// The same, but it runs when the other one was scheduled to run.
    ReplaceExceptSchedule,
}

impl OnConflict {
    /// Every answer.
    pub const ALL: [Self; 4] =
        [Self::Reject, Self::Ignore, Self::Replace, Self::ReplaceExceptSchedule];

    /// Returns the standard's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Ignore => "ignore",
            Self::Replace => "replace",
            Self::ReplaceExceptSchedule => "replace_except_schedule",
        }
    }

    /// Returns the answer called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }
}

/// That a job is to be the only one of its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unique {
    /// What makes another job the same.
    pub fingerprint: Fingerprint,
    /// The states in which another job is in the way.
    pub states: States,
    /// For how long after it was stored another job is in the way; `None` for as long as it is in
    /// one of the states.
    pub period: Option<Span>,
    /// What becomes of the new job then.
    pub on_conflict: OnConflict,
}

/// A job that may be in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its state.
    pub state: State,
    /// Whether an attempt holds it: that of a job which was cancelled may still run.
    pub held: bool,
    /// When it was stored.
    pub created: Timestamp,
}

impl Unique {
    /// Whether a stored job of the same fingerprint is in the way at `now`.
    #[must_use]
    pub fn conflicts_with(&self, holder: Holder, now: Timestamp) -> bool {
        let counts =
            self.states.has(holder.state) || (holder.held && self.states.has(State::Active));
        counts && self.period.is_none_or(|period| now < holder.created.after(period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unique(states: States, period: Option<Span>) -> Unique {
        Unique { fingerprint: [0; 32], states, period, on_conflict: OnConflict::Reject }
    }

    #[test]
    fn job_is_in_the_way_in_the_states_that_the_new_policy_names() {
        for state in State::ALL {
            let holder = Holder { state, held: state == State::Active, created: Timestamp(5) };
            let live = unique(States::LIVE, None);
            assert_eq!(live.conflicts_with(holder, Timestamp(9)), !state.is_terminal());
            for other in State::ALL {
                let only = unique(States::EMPTY.with(other), None);
                assert_eq!(only.conflicts_with(holder, Timestamp(9)), state == other);
            }
        }
    }

    #[test]
    fn period_counts_from_when_the_job_was_stored() {
        let holder = Holder { state: State::Available, held: false, created: Timestamp(1_000) };
        let policy = unique(States::LIVE, Some(Span(500)));
        assert!(policy.conflicts_with(holder, Timestamp(1_499)));
        assert!(!policy.conflicts_with(holder, Timestamp(1_500)));
    }

    #[test]
    fn cancelled_job_is_in_the_way_while_its_attempt_runs() {
        let held = Holder { state: State::Cancelled, held: true, created: Timestamp(0) };
        let policy = unique(States::LIVE, None);
        assert!(policy.conflicts_with(held, Timestamp(1)));
        assert!(!policy.conflicts_with(Holder { held: false, ..held }, Timestamp(1)));
        let waiting = unique(States::EMPTY.with(State::Available), None);
        assert!(!waiting.conflicts_with(held, Timestamp(1)));
    }
}
