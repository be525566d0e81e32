//! Which results an advance may read, so that a store loads these before it.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::{Decision, Standing, by_words};
use super::event::Event;
use super::start::may_end_at_once;
use super::values::has_result;
use crate::definition::{Definition, When};
use crate::state::{StepStatus, WorkflowState};

/// Returns the steps whose results [`super::advance()`] may ask for with this event.
#[must_use]
pub fn reads(definition: &Definition, state: &WorkflowState, event: &Event) -> BTreeSet<usize> {
    let mut forecast =
        Forecast { definition, state, now: None, ends: BTreeMap::new(), found: BTreeSet::new() };
    match event {
        Event::Begun => {
            for step in definition.order().iter().copied() {
                if definition.steps()[step].after.is_empty() {
                    forecast.look(step);
                }
            }
            forecast.go_on(definition.order());
        }
        Event::ItemsEnded { step, ends } => {
            let Some(known) = state.steps.get(*step) else { return BTreeSet::new() };
            let mut known = known.clone();
            for end in ends {
                known.running = known.running.saturating_sub(1);
                *known.counter(end.outcome) += 1;
            }
            if known.running > 0 || known.held > 0 || state.stop.is_some() {
                return BTreeSet::new();
            }
            let described = &definition.steps()[*step];
            let standing = Standing::of(described, known.status_of_items(), false);
            forecast.now = Some(*step);
            forecast.ends.insert(*step, End::As(standing));
            forecast.go_on(definition.children(*step));
        }
        // Everything that runs again may read everything it refers to.
        Event::RetryRequested => {
            for (step, known) in state.steps.iter().enumerate() {
                if known.status != StepStatus::Completed {
                    forecast.add_references(step);
                }
            }
        }
        Event::ItemReplayed { .. } | Event::CancelRequested | Event::TimeoutReached => {}
    }
    forecast.found
}

/// How a step ends in the advance that is foreseen, if it does. If it does not, nothing behind it
/// starts.
#[derive(Clone, Copy)]
enum End {
    As(Standing),
    /// In a way that only its expressions know.
    Unknown,
}

struct Forecast<'a> {
    definition: &'a Definition,
    state: &'a WorkflowState,
    /// The step that ends by the event, so has a result by now.
    now: Option<usize>,
    ends: BTreeMap<usize, End>,
    found: BTreeSet<usize>,
}

impl Forecast<'_> {
    /// Looks at steps and all that may follow them at once.
    fn go_on(&mut self, first: &[usize]) {
        let position = |step: &usize| self.definition.position(*step);
        let mut left: BTreeSet<usize> = first.iter().map(position).collect();
        while let Some(position) = left.pop_first() {
            let step = self.definition.order()[position];
            if !self.ends.contains_key(&step) && !self.look(step) {
                continue;
            }
            if self.ends.contains_key(&step) {
                let children = self.definition.children(step).iter();
                left.extend(children.map(|child| self.definition.position(*child)));
            }
        }
    }

    /// Foresees a step. Says whether it may start or end.
    fn look(&mut self, step: usize) -> bool {
        let waits = self.state.steps[step].status == StepStatus::Waiting;
        if !waits || !self.definition.reads_results_from(step) {
            return false;
        }
        let described = &self.definition.steps()[step];
        let mut before = Vec::with_capacity(described.after.len());
        let mut unknown = false;
        for parent in &described.after {
            let known = &self.state.steps[*parent];
            let parent_described = &self.definition.steps()[*parent];
            match self.ends.get(parent) {
                Some(End::As(standing)) => before.push(standing.to(described, parent_described)),
                Some(End::Unknown) => unknown = true,
                None if known.status.is_ended() => {
                    let of = Standing::of(parent_described, known.status, known.after_failure);
                    before.push(of.to(described, parent_described));
                }
                None => return false,
            }
        }
        let decision = match &described.when {
            When::Always => Some(Decision::Run),
            When::Expression(_) => None,
            _ if unknown => None,
            _ => by_words(described, &before),
        };
        match decision {
            Some(Decision::Skip) => {
                let after = before.iter().any(Standing::is_after_failure);
                let skipped = if after { Standing::SkippedAfterFailure } else { Standing::Skipped };
                self.ends.insert(step, End::As(skipped));
            }
            Some(Decision::Run) => {
                self.add_references(step);
                if may_end_at_once(self.definition, self.state, step) {
                    // An input without a value fails; a list may also be empty.
                    let alone = described.for_each.is_none() && self.state.steps[step].total == 0;
                    let failed = Standing::of(described, StepStatus::Failed, false);
                    let end = if alone { End::As(failed) } else { End::Unknown };
                    self.ends.insert(step, end);
                }
            }
            None => {
                self.add_references(step);
                self.ends.insert(step, End::Unknown);
            }
        }
        true
    }

    fn add_references(&mut self, step: usize) {
        for (name, result) in self.definition.steps()[step].references().steps {
            let Some(of) = self.definition.step(&name).filter(|_| result) else { continue };
            if has_result(&self.state.steps[of]) || self.now == Some(of) {
                self.found.insert(of);
            }
        }
    }
}
