//! A store in memory that carries out effects and checks them against the items it has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::*;
use crate::state::StepState;

/// An item of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemAt {
    pub(super) step: usize,
    pub(super) item: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemState {
    Held,
    Running,
    Ended(Outcome),
}

pub(super) struct Store {
    pub(super) definition: Definition,
    pub(super) state: WorkflowState,
    pub(super) items: BTreeMap<ItemAt, ItemState>,
    pub(super) inputs: BTreeMap<ItemAt, Value>,
    pub(super) parameters: Value,
    /// What each completed item returned.
    results: BTreeMap<ItemAt, Value>,
}

/// The results of a store; only those may be asked for that were announced.
struct Announced<'a> {
    store: &'a Store,
    announced: BTreeSet<usize>,
}

impl Values for Announced<'_> {
    fn result(&self, step: usize) -> Result<Value, ValueError> {
        assert!(self.announced.contains(&step), "step {step} was read without notice");
        let results = &self.store.results;
        if self.store.definition.steps()[step].for_each.is_none() {
            let result = results.get(&ItemAt { step, item: 0 });
            return result.cloned().ok_or_else(|| ValueError("gone".into()));
        }
        let of = |item| results.get(&ItemAt { step, item }).cloned().unwrap_or(Value::Null);
        Ok((0..self.store.state.steps[step].total).map(of).collect())
    }
}

impl Store {
    pub(super) fn begin(definition: Definition) -> Self {
        Self::begin_with(definition, json!({"n": 3}))
    }

    pub(super) fn begin_with(definition: Definition, parameters: Value) -> Self {
        let stored = definition.to_json();
        assert_eq!(Definition::of_stored(&stored).as_ref(), Ok(&definition));
        let mut store = Self {
            state: WorkflowState::new(&definition),
            definition,
            items: BTreeMap::new(),
            inputs: BTreeMap::new(),
            parameters,
            results: BTreeMap::new(),
        };
        store.happens(&Event::Begun);
        store
    }

    /// Carries out an event that the rules accept.
    pub(super) fn happens(&mut self, event: &Event) -> Advance {
        self.try_event(event).unwrap()
    }

    pub(super) fn refused(&mut self, event: &Event) -> Refusal {
        self.try_event(event).unwrap_err()
    }

    pub(super) fn try_event(&mut self, event: &Event) -> Result<Advance, Refusal> {
        let (before, mut state) = (self.state.clone(), self.state.clone());
        let values = Announced { store: self, announced: reads(&self.definition, &state, event) };
        let workflow = json!({"id": "w-1"});
        let inputs = Inputs { parameters: &self.parameters, workflow: &workflow, values: &values };
        let outcome = advance(&self.definition, &mut state, event, &inputs);
        self.state = state;
        match &outcome {
            Ok(advance) => {
                for (step, (old, new)) in before.steps.iter().zip(&self.state.steps).enumerate() {
                    assert!(old == new || advance.changed.contains(&step), "step {step} untold");
                }
                for effect in &advance.effects {
                    self.carry_out(effect);
                }
                self.check();
            }
            Err(_) => assert_eq!(self.state, before),
        }
        outcome
    }

    fn carry_out(&mut self, effect: &Effect) {
        match effect {
            Effect::StoreItems { step, inputs } => {
                self.check_start(*step);
                assert!(self.of(*step).is_empty(), "items of step {step} stored twice");
                for (item, input) in (0_u32..).zip(inputs) {
                    let at = ItemAt { step: *step, item };
                    self.items.insert(at, ItemState::Held);
                    self.inputs.insert(at, input.clone());
                }
            }
            Effect::HoldUnsuccessful { step } => {
                self.check_start(*step);
                for at in self.of(*step) {
                    let state = self.items.get_mut(&at).unwrap();
                    assert_ne!(*state, ItemState::Running);
                    if *state != ItemState::Ended(Outcome::Completed) {
                        *state = ItemState::Held;
                    }
                }
            }
            Effect::EnqueueItems { step, count } | Effect::StartWorkflows { step, count } => {
                let count = usize::try_from(*count).unwrap();
                let held =
                    self.of(*step).into_iter().filter(|at| self.items[at] == ItemState::Held);
                let next: Vec<_> = held.take(count).collect();
                assert_eq!(next.len(), count, "too few held items");
                for at in next {
                    self.items.insert(at, ItemState::Running);
                }
            }
            Effect::CancelItems { step } => {
                for at in self.of(*step) {
                    let state = self.items.get_mut(&at).unwrap();
                    if *state == ItemState::Held {
                        *state = ItemState::Ended(Outcome::Cancelled);
                    }
                }
            }
            Effect::StepEnded { .. } | Effect::WorkflowEnded { .. } => {}
        }
    }

    fn check_start(&self, step: usize) {
        for parent in &self.definition.steps()[step].after {
            let status = self.state.steps[*parent].status;
            assert!(status.is_ended(), "step {step} starts while {parent} is {status}");
        }
    }

    fn of(&self, step: usize) -> Vec<ItemAt> {
        let (first, last) = (ItemAt { step, item: 0 }, ItemAt { step, item: u32::MAX });
        self.items.range(first..=last).map(|(at, _)| *at).collect()
    }

    /// Checks the invariants that hold at every moment.
    fn check(&self) {
        let running = !self.running().is_empty();
        assert_eq!(running, !self.state.status.is_ended(), "{:?} {:?}", self.state, self.items);
        let open = self.state.steps.iter().filter(|step| !step.status.is_ended()).count();
        assert_eq!(usize::try_from(self.state.open).unwrap(), open);
        for (step, known) in self.state.steps.iter().enumerate() {
            assert!(known.is_sound(), "step {step}: {known:?}");
            let mut counted = StepState {
                status: known.status,
                reason: known.reason.clone(),
                after_failure: known.after_failure,
                ..StepState::new()
            };
            for at in self.of(step) {
                counted.total += 1;
                match self.items[&at] {
                    ItemState::Held => counted.held += 1,
                    ItemState::Running => counted.running += 1,
                    ItemState::Ended(outcome) => *counted.counter(outcome) += 1,
                }
            }
            assert_eq!(*known, counted, "step {step}");
        }
    }

    pub(super) fn running(&self) -> Vec<ItemAt> {
        let running = self.items.iter().filter(|(_, state)| **state == ItemState::Running);
        running.map(|(at, _)| *at).collect()
    }

    pub(super) fn unsuccessful(&self) -> Vec<ItemAt> {
        let bad = |state: &ItemState| matches!(state, ItemState::Ended(outcome) if *outcome != Outcome::Completed);
        self.items.iter().filter(|(_, state)| bad(state)).map(|(at, _)| *at).collect()
    }

    pub(super) fn end(&mut self, at: ItemAt, outcome: Outcome) -> Advance {
        let result = match (at.step + usize::try_from(at.item).unwrap()) % 3 {
            0 => json!({"list": [1, 2], "n": at.step}),
            1 => json!([at.item]),
            _ => json!(at.step),
        };
        self.end_with(at, outcome, result)
    }

    pub(super) fn end_with(&mut self, at: ItemAt, outcome: Outcome, result: Value) -> Advance {
        assert_eq!(self.items.insert(at, ItemState::Ended(outcome)), Some(ItemState::Running));
        if outcome == Outcome::Completed {
            self.results.insert(at, result);
        }
        let ends = vec![ItemEnd { item: at.item, outcome, error: None }];
        self.happens(&Event::ItemsEnded { step: at.step, ends })
    }

    /// Returns the first item of a step.
    pub(super) fn first(&self, step: &str) -> ItemAt {
        ItemAt { step: self.definition.step(step).unwrap(), item: 0 }
    }

    /// Ends the only item of a step.
    pub(super) fn ends(&mut self, step: &str, outcome: Outcome) -> Advance {
        self.end(self.first(step), outcome)
    }

    /// Completes the only item of a step with a result.
    pub(super) fn completes(&mut self, step: &str, result: Value) -> Advance {
        self.end_with(self.first(step), Outcome::Completed, result)
    }

    /// Ends whatever runs, until nothing does.
    pub(super) fn end_all(&mut self, outcome: Outcome) {
        while let Some(at) = self.running().first().copied() {
            self.end(at, outcome);
        }
    }

    /// Replays a dead letter. Refused, its job runs outside of the workflow.
    pub(super) fn replay(&mut self, at: ItemAt) -> Result<Advance, Refusal> {
        let ItemState::Ended(outcome) = self.items[&at] else { panic!("{at:?} has not ended") };
        self.items.insert(at, ItemState::Running);
        let replayed = self.try_event(&Event::ItemReplayed { step: at.step, outcome });
        if replayed.is_err() {
            self.items.insert(at, ItemState::Ended(outcome));
        }
        replayed
    }

    pub(super) fn result(&self) -> Value {
        let announced = (0..self.state.steps.len()).collect();
        result(&self.definition, &self.state, &Announced { store: self, announced }).unwrap()
    }

    /// Returns the inputs of a step.
    pub(super) fn inputs_of(&self, step: &str) -> Vec<Value> {
        self.of(self.first(step).step).iter().map(|at| self.inputs[at].clone()).collect()
    }
}
