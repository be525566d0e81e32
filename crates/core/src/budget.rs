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
