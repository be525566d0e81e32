//! The three budgets: failures, losses, interruptions.
//!
//! An attempt that ended by the job's own doing is a failure; by its worker's death a
//! loss; by a shutdown an interruption. Each has a budget of its own, so a deploy does
//! not use up retries and a crash-looping job still ends. An attempt that was handed
//! over and never started charges nothing, and neither does one that its worker ended
//! because no server renewed the lease.

use crate::time::Span;

/// What a job has used up so far in this life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spent {
    /// Attempts charged against the retry policy's `max_attempts`.
    pub failures: u32,
    /// Attempts ended by the death of their worker, after they started as far as is known;
    /// from the second one in vain on also those of which no start is known.
    pub losses: u32,
    /// Attempts ended by shutdown, drain or eviction.
    pub interruptions: u32,
}

/// What an attempt that has ended was charged: which of the counts of [`Spent`] it raised. An attempt may be
/// charged twice: the silence of a plain client is a loss and a failure, and a shutdown beyond what is free is
/// an interruption and a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a budget that was charged or not")]
pub struct Charge {
    /// A retry is used up.
    pub failure: bool,
    /// A loss is.
    pub loss: bool,
    /// An interruption is.
    pub interruption: bool,
}

impl Charge {
    const FAILURE: u8 = 1;
    const LOSS: u8 = 2;
    const INTERRUPTION: u8 = 4;

    /// Returns what raised the counts of a life from `before` to `after`.
    #[must_use]
    pub const fn of(before: Spent, after: Spent) -> Self {
        Self {
            failure: after.failures > before.failures,
            loss: after.losses > before.losses,
            interruption: after.interruptions > before.interruptions,
        }
    }

    /// Returns it as a number, as it is stored.
    #[must_use]
    pub const fn bits(self) -> u8 {
        let Self { failure, loss, interruption } = self;
        let failure = if failure { Self::FAILURE } else { 0 };
        let loss = if loss { Self::LOSS } else { 0 };
        let interruption = if interruption { Self::INTERRUPTION } else { 0 };
        failure | loss | interruption
    }

    /// Reads such a number.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self {
            failure: bits & Self::FAILURE != 0,
            loss: bits & Self::LOSS != 0,
            interruption: bits & Self::INTERRUPTION != 0,
        }
    }

    /// Returns a word for each budget that was charged.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let Self { failure, loss, interruption } = self;
        let all = [(interruption, "interruption"), (loss, "loss"), (failure, "failure")];
        all.into_iter().filter(|(is_charged, _)| *is_charged).map(|(_, word)| word)
    }
}

/// How much the operator allows. The failure budget is the job's own `max_attempts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Losses after which a job is given up as a suspect (`executor.loss_budget`).
    pub losses: u32,
    /// Free interruptions, after which each counts as a failure
    /// (`executor.interruption_budget`).
    pub interruptions: u32,
    /// Whether a shutdown spends a retry (`executor.interruptions`).
    pub interruption_charge: InterruptionCharge,
}

/// Whether an attempt ended by shutdown uses up a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptionCharge {
    /// It does not: the job goes to the front of its queue and keeps its retries.
    Free,
    /// It does, as the letter of OJS graceful shutdown has it.
    Charge,
}

impl Budgets {
    /// The defaults of the configuration.
    pub const DEFAULT: Self =
        Self { losses: 3, interruptions: 10, interruption_charge: InterruptionCharge::Free };
}

/// How long a job that no live worker can run is kept before it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduledTimeout {
    /// It waits without limit, and shows the reason.
    Never,
    /// It fails after this long without an eligible live worker.
    After(Span),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_is_what_rose_and_is_read_back() {
        let before = Spent { failures: 1, losses: 2, interruptions: 3 };
        let raised: [(Spent, &[&str]); 5] = [
            (before, &[]),
            (Spent { failures: 2, ..before }, &["failure"]),
            (Spent { losses: 3, ..before }, &["loss"]),
            (Spent { failures: 2, losses: 3, ..before }, &["loss", "failure"]),
            (Spent { failures: 2, interruptions: 4, ..before }, &["interruption", "failure"]),
        ];
        for (after, words) in raised {
            let charge = Charge::of(before, after);
            assert_eq!(charge.words().collect::<Vec<_>>(), words);
            assert_eq!(Charge::from_bits(charge.bits()), charge);
        }
    }
}
