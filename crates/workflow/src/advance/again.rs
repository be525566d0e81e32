//! What failed runs again: by a retry of the workflow, or by a replay of one dead letter.
//!
//! What completed stays as it is. What was skipped, or never started, is decided again if a step
//! before it runs again.

use std::collections::BTreeSet;

use super::Walk;
use super::event::Refusal;
use crate::definition::OnFailure;
use crate::state::{Outcome, StepStatus, WorkflowStatus};

impl Walk<'_> {
    pub(super) fn retry(&mut self) -> Result<(), Refusal> {
        match self.state.status {
            WorkflowStatus::Running => return Err(Refusal::StillRunning),
            WorkflowStatus::Completed => return Err(Refusal::NothingToRetry),
            WorkflowStatus::Failed | WorkflowStatus::Cancelled | WorkflowStatus::Timeout => {}
        }
        let mut reopened = false;
        for step in self.definition.order().iter().copied() {
            let status = self.state.steps[step].status;
            let failed = status.is_unsuccessful()
                // Its failure counted as success, and others went on from there.
                && (self.definition.steps()[step].on_failure == OnFailure::Fail
                    || status == StepStatus::Cancelled);
            let all_ended = self.all_before_ended(step);
            if failed || (status == StepStatus::Skipped && !all_ended) {
                self.reopen(step);
                reopened = true;
                if all_ended {
                    self.ready.insert(self.definition.position(step));
                }
            }
        }
        if !reopened {
            // A cancel that found only running steps, all of which completed.
            return Err(Refusal::NothingToRetry);
        }
        self.run_again();
        Ok(())
    }

    pub(super) fn item_replayed(&mut self, step: usize, outcome: Outcome) -> Result<(), Refusal> {
        if !self.state.status.is_ended() && self.state.stop.is_some() {
            return Err(Refusal::Stopping);
        }
        let known = self.state.steps.get_mut(step).ok_or(Refusal::NoSuchStep(step))?;
        let counter = known.counter(outcome);
        if outcome == Outcome::Completed || *counter == 0 {
            return Err(Refusal::NotEnded { step });
        }
        *counter -= 1;
        known.running += 1;
        if known.unsuccessful() == 0 {
            known.reason = None;
        }
        if known.status.is_ended() {
            self.reopen(step);
        }
        self.state.steps[step].status = StepStatus::Running;
        self.advance.changed.insert(step);
        for later in self.after(step) {
            let known = &self.state.steps[later];
            let undecided = known.status == StepStatus::Skipped
                || (known.status.is_unsuccessful() && known.total == 0);
            if undecided && !self.all_before_ended(later) {
                self.reopen(later);
            }
        }
        self.run_again();
        Ok(())
    }

    /// Makes a step that ended wait again.
    fn reopen(&mut self, step: usize) {
        let known = &mut self.state.steps[step];
        known.status = StepStatus::Waiting;
        known.after_failure = false;
        if known.total == 0 {
            known.reason = None;
        }
        self.state.open += 1;
        self.advance.changed.insert(step);
    }

    fn run_again(&mut self) {
        self.state.status = WorkflowStatus::Running;
        self.state.stop = None;
    }

    /// Returns all steps behind a step, each after those before it.
    fn after(&self, step: usize) -> Vec<usize> {
        let mut left: BTreeSet<usize> = BTreeSet::from([self.definition.position(step)]);
        let mut found = Vec::new();
        while let Some(position) = left.pop_first() {
            let next = self.definition.order()[position];
            found.push(next);
            let children = self.definition.children(next).iter();
            left.extend(children.map(|child| self.definition.position(*child)));
        }
        found.split_off(1)
    }
}
