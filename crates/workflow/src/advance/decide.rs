//! Whether a step runs, from how those before it ended.

use crate::definition::{Definition, OnFailure, StepDefinition, When};
use crate::state::{StepStatus, WorkflowState};

/// Whether a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Run,
    Skip,
}

/// What the end of a step is to one that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Success,
    Failure,
    /// A failure that a callback of its batch deals with, to that callback.
    HandledFailure,
    Skipped,
    SkippedAfterFailure,
}

impl Standing {
    /// Returns what the ends of those before it are to a step.
    pub(crate) fn before(definition: &Definition, state: &WorkflowState, step: usize) -> Vec<Self> {
        let steps = definition.steps();
        let of = |parent: &usize| {
            let known = &state.steps[*parent];
            Self::of(&steps[*parent], known.status, known.after_failure)
                .to(&steps[step], &steps[*parent])
        };
        steps[step].after.iter().map(of).collect()
    }

    /// Returns what this end of a step is to others.
    pub(crate) const fn of(step: &StepDefinition, status: StepStatus, after_failure: bool) -> Self {
        match status {
            StepStatus::Skipped if after_failure => Self::SkippedAfterFailure,
            StepStatus::Skipped => Self::Skipped,
            status if counts_as_failure(step, status) => Self::Failure,
            _ => Self::Success,
        }
    }

    /// Returns what it is to a child.
    pub(crate) const fn to(self, child: &StepDefinition, parent: &StepDefinition) -> Self {
        match self {
            Self::Failure | Self::SkippedAfterFailure if child.callback && parent.handled => {
                Self::HandledFailure
            }
            other => other,
        }
    }

    const fn is_failure(&self) -> bool {
        matches!(self, Self::Failure | Self::HandledFailure | Self::SkippedAfterFailure)
    }

    /// Says whether a step that is skipped for it is skipped after a failure.
    pub(crate) const fn is_after_failure(&self) -> bool {
        matches!(self, Self::Failure | Self::SkippedAfterFailure)
    }
}

/// Says whether a step that ended so failed in the eyes of others.
pub(crate) const fn counts_as_failure(step: &StepDefinition, status: StepStatus) -> bool {
    status.is_unsuccessful() && matches!(step.on_failure, OnFailure::Fail)
}

/// Decides what needs no expression.
pub(crate) fn by_words(step: &StepDefinition, before: &[Standing]) -> Option<Decision> {
    let runs = match &step.when {
        When::Success => before.iter().all(|it| *it == Standing::Success),
        When::Failure => before.iter().any(Standing::is_failure),
        When::Always => true,
        When::NoFailure => !before.iter().any(Standing::is_after_failure),
        When::Expression(_) => return None,
    };
    Some(if runs { Decision::Run } else { Decision::Skip })
}
