//! What follows from what happened to a workflow.
//!
//! The end of a job is noted in the transaction that ends it. A server reads what was noted, calls
//! [`advance()`], and writes the state, the effects and that these ends are taken in one transaction,
//! unless the workflow has changed since. So a server killed at any instruction neither skips nor
//! repeats a step, and of two last jobs that end at once the second sees the first.
//!
//! ```text
//!  Event ─▶ counters of its step ─▶ step ended? ─▶ its children: all before them ended?
//!                                                   ├─ skip, fail ─▶ ended: its children …
//!                                                   └─ start ─▶ StoreItems, EnqueueItems
//!  no step open any more ─▶ WorkflowEnded
//! ```
//!
//! When a step runs, once all steps in its `after` have ended:
//!
//! | `when` | all succeeded | one failed | one skipped after a failure | one skipped otherwise |
//! |---|---|---|---|---|
//! | `success` | runs | skipped | skipped | skipped |
//! | `failure` | skipped | runs | runs | skipped, unless another failed |
//! | `always` | runs | runs | runs | runs |
//! | an expression | as it says | as it says | as it says | as it says |
//!
//! Failed is every end but success: failed, timed out, abandoned, cancelled. With
//! `on_failure: continue` it counts as success. A step is skipped *after a failure* if one before it
//! failed or was itself skipped after a failure; so `failure` runs however far behind the failure it
//! is, until a step that ran stands between. Unlike in GitHub Actions, a step after one with
//! `always` does not look behind it.
//!
//! All items of a step are stored before any runs. Those that wait for their turn are *held*; each
//! end lets the next ones go, whatever their number, without a look at the others.

mod again;
mod decide;
mod event;
mod reads;
mod start;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;

use crate::definition::Definition;
use crate::state::{Outcome, StepStatus, Stop, WorkflowState, WorkflowStatus};
use decide::{Decision, Standing, counts_as_failure};
pub use event::{Advance, Effect, Event, ItemEnd, Refusal};
pub use reads::reads;
pub use values::{Inputs, ValueError, Values, result};

/// Carries out an event on a state and returns what a store must do, in order.
///
/// # Errors
///
/// Refuses what cannot have happened in this state, such as a second report of the same end. The
/// state is then unchanged and nothing is to be done.
pub fn advance(
    definition: &Definition,
    state: &mut WorkflowState,
    event: &Event,
    inputs: &Inputs<'_>,
) -> Result<Advance, Refusal> {
    debug_assert_eq!(definition.steps().len(), state.steps.len(), "a state of another definition");
    let mut walk =
        Walk { definition, state, inputs, advance: Advance::default(), ready: BTreeSet::new() };
    match event {
        Event::Begun => walk.begin(),
        Event::ItemsEnded { step, ends } => walk.items_ended(*step, ends)?,
        Event::ItemReplayed { step, outcome } => walk.item_replayed(*step, *outcome)?,
        Event::CancelRequested => walk.stop(Stop::Cancel)?,
        Event::TimeoutReached => walk.stop(Stop::Timeout)?,
        Event::RetryRequested => walk.retry()?,
    }
    walk.apply_rules();
    Ok(walk.advance)
}

/// One advance on its way.
struct Walk<'a> {
    definition: &'a Definition,
    state: &'a mut WorkflowState,
    inputs: &'a Inputs<'a>,
    advance: Advance,
    /// Steps that may have to start, by their position in the order of the definition. So it does
    /// not matter in which order they came here.
    ready: BTreeSet<usize>,
}

impl Walk<'_> {
    fn begin(&mut self) {
        let roots = (0..self.state.steps.len())
            .filter(|step| self.definition.steps()[*step].after.is_empty());
        let positions: Vec<_> = roots.map(|step| self.definition.position(step)).collect();
        self.ready.extend(positions);
    }

    fn items_ended(&mut self, step: usize, ends: &[ItemEnd]) -> Result<(), Refusal> {
        let known = self.state.steps.get_mut(step).ok_or(Refusal::NoSuchStep(step))?;
        let count = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        if known.running < count {
            return Err(Refusal::NotRunning { step, running: known.running });
        }
        for end in ends {
            known.running -= 1;
            *known.counter(end.outcome) += 1;
            if end.outcome != Outcome::Completed {
                let text = end.error.as_deref().unwrap_or(end.outcome.as_text());
                known.blame(Some(end.item), text);
            }
        }
        self.advance.changed.insert(step);
        self.refill(step);
        let known = &self.state.steps[step];
        if count > 0 && known.running == 0 && known.held == 0 {
            self.end_step(step, self.state.steps[step].status_of_items());
        }
        Ok(())
    }

    /// Lets held items go, as many as may run at once.
    fn refill(&mut self, step: usize) {
        let known = &mut self.state.steps[step];
        let window = self.definition.steps()[step].window(known.total);
        let count = window.saturating_sub(known.running).min(known.held);
        if count == 0 {
            return;
        }
        known.held -= count;
        known.running += count;
        self.advance.changed.insert(step);
        self.advance.effects.push(match self.definition.steps()[step].target {
            crate::definition::Target::Workflow(_) => Effect::StartWorkflows { step, count },
            _ => Effect::EnqueueItems { step, count },
        });
    }

    fn stop(&mut self, stop: Stop) -> Result<(), Refusal> {
        if self.state.status.is_ended() {
            return Err(Refusal::AlreadyEnded(self.state.status));
        }
        if self.state.stop.is_some() {
            return Ok(());
        }
        self.state.stop = Some(stop);
        for step in self.definition.order().iter().copied() {
            let known = &mut self.state.steps[step];
            match known.status {
                StepStatus::Waiting => self.end_step(step, StepStatus::Cancelled),
                StepStatus::Running => {
                    // The store cancels what is held at once, and reports only what runs.
                    known.cancelled += known.held;
                    known.held = 0;
                    self.advance.changed.insert(step);
                    self.advance.effects.push(Effect::CancelItems { step });
                }
                StepStatus::Completed
                | StepStatus::Failed
                | StepStatus::TimedOut
                | StepStatus::Abandoned
                | StepStatus::Cancelled
                | StepStatus::Skipped => {}
            }
        }
        Ok(())
    }

    fn end_step(&mut self, step: usize, status: StepStatus) {
        let known = &mut self.state.steps[step];
        debug_assert!(!known.status.is_ended(), "step {step} ended twice");
        known.status = status;
        debug_assert!(known.is_sound(), "step {step}: {known:?}");
        self.state.open = self.state.open.saturating_sub(1);
        self.advance.changed.insert(step);
        self.advance.effects.push(Effect::StepEnded { step, status });
        let children = self.definition.children(step).iter();
        self.ready.extend(children.map(|child| self.definition.position(*child)));
    }

    /// Starts, skips and fails steps until none is left that need not wait, then ends the workflow
    /// if no step is open.
    fn apply_rules(&mut self) {
        while let Some(position) = self.ready.pop_first() {
            let step = self.definition.order()[position];
            if self.state.steps[step].status == StepStatus::Waiting && self.all_before_ended(step) {
                self.decide(step);
            }
        }
        if self.state.open == 0 && !self.state.status.is_ended() {
            self.state.status = self.final_status();
            self.advance.effects.push(Effect::WorkflowEnded { status: self.state.status });
        }
    }

    fn all_before_ended(&self, step: usize) -> bool {
        let mut before = self.definition.steps()[step].after.iter();
        before.all(|parent| self.state.steps[*parent].status.is_ended())
    }

    fn decide(&mut self, step: usize) {
        let standings = Standing::before(self.definition, self.state, step);
        let decision = match decide::by_words(&self.definition.steps()[step], &standings) {
            Some(decision) => decision,
            None => match self.ask(step) {
                Ok(decision) => decision,
                Err(reason) => return self.fail_step(step, &reason),
            },
        };
        match decision {
            Decision::Run => {
                if let Err(reason) = self.start(step) {
                    self.fail_step(step, &reason);
                }
            }
            Decision::Skip => {
                let after = standings.iter().any(Standing::is_after_failure);
                self.state.steps[step].after_failure = after;
                self.end_step(step, StepStatus::Skipped);
            }
        }
    }

    fn fail_step(&mut self, step: usize, reason: &str) {
        self.state.steps[step].blame(None, reason);
        self.end_step(step, StepStatus::Failed);
    }

    fn final_status(&self) -> WorkflowStatus {
        match self.state.stop {
            Some(Stop::Cancel) => WorkflowStatus::Cancelled,
            Some(Stop::Timeout) => WorkflowStatus::Timeout,
            None => {
                let steps = self.definition.steps().iter().zip(&self.state.steps);
                let failed = steps
                    .filter(|(step, _)| !step.handled)
                    .any(|(step, state)| counts_as_failure(step, state.status));
                if failed { WorkflowStatus::Failed } else { WorkflowStatus::Completed }
            }
        }
    }
}
