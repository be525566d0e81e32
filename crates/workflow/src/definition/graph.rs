//! Which step follows which: cycles, depth, and what comes before.

use std::collections::{BTreeMap, BTreeSet};

use super::step::{StepDefinition, When};
use crate::expression::References;
use crate::fault::{Fault, nearest, shown};

/// What is derived from the edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    pub(crate) by_name: BTreeMap<String, usize>,
    pub(crate) children: Vec<Vec<usize>>,
    pub(crate) depth: Vec<usize>,
    pub(crate) order: Vec<usize>,
    /// Where each step is in `order`.
    pub(crate) position: Vec<usize>,
    /// Whether each step, or one behind it, reads a result.
    pub(crate) reads_results: Vec<bool>,
}

/// Where steps were written, for faults.
pub(crate) trait Places {
    /// Calls with the place of a key of a step.
    fn fault(&self, step: usize, key: &str, problem: String) -> Fault;
}

impl Graph {
    /// Derives the graph and checks that it has no cycle and that expressions read what came before.
    pub(crate) fn new(steps: &[StepDefinition], places: &impl Places) -> Result<Self, Fault> {
        let by_name =
            steps.iter().enumerate().map(|(index, step)| (step.name.clone(), index)).collect();
        let mut children = vec![Vec::new(); steps.len()];
        for (index, step) in steps.iter().enumerate() {
            for parent in &step.after {
                children[*parent].push(index);
            }
        }
        let zeros = vec![0; steps.len()];
        let (depth, position) = (zeros.clone(), zeros);
        let reads_results = vec![false; steps.len()];
        let mut graph =
            Self { by_name, children, depth, order: Vec::new(), position, reads_results };
        graph.sort(steps, places)?;
        for (position, step) in graph.order.iter().enumerate() {
            graph.position[*step] = position;
        }
        graph.check_references(steps, places)?;
        for step in graph.order.iter().rev().copied() {
            let own = steps[step].references().steps.into_values().any(|result| result);
            let behind = graph.children[step].iter().any(|child| graph.reads_results[*child]);
            graph.reads_results[step] = own || behind;
        }
        Ok(graph)
    }

    /// Orders the steps so that each comes after those it waits for.
    fn sort(&mut self, steps: &[StepDefinition], places: &impl Places) -> Result<(), Fault> {
        let mut missing: Vec<_> = steps.iter().map(|step| step.after.len()).collect();
        let mut ready: BTreeSet<usize> =
            (0..steps.len()).filter(|index| missing[*index] == 0).collect();
        while let Some(step) = ready.pop_first() {
            self.order.push(step);
            for child in &self.children[step] {
                self.depth[*child] = self.depth[*child].max(self.depth[step] + 1);
                missing[*child] -= 1;
                if missing[*child] == 0 {
                    ready.insert(*child);
                }
            }
        }
        let Some(stuck) = (0..steps.len()).find(|index| missing[*index] > 0) else {
            return Ok(());
        };
        let cycle = cycle(steps, &missing, stuck);
        let names: Vec<_> = cycle.iter().map(|index| shown(&steps[*index].name)).collect();
        let first = cycle.first().copied().unwrap_or(stuck);
        let problem = format!("waits for itself: {}; leave out one", names.join(" after "));
        Err(places.fault(first, "after", problem))
    }

    fn check_references(
        &self,
        steps: &[StepDefinition],
        places: &impl Places,
    ) -> Result<(), Fault> {
        let mut before: Option<Vec<Vec<u64>>> = None;
        for (index, step) in steps.iter().enumerate() {
            for (key, references) in references(step) {
                for name in references.steps.keys() {
                    let of = self
                        .by_name
                        .get(name)
                        .copied()
                        .ok_or_else(|| places.fault(index, key, self.unknown(name)))?;
                    if of == index {
                        let problem = format!("reads its own step `{name}`; it has not ended yet");
                        return Err(places.fault(index, key, problem));
                    }
                    let is_before = step.after.contains(&of)
                        || contains(&before.get_or_insert_with(|| self.before(steps))[index], of);
                    if !is_before {
                        let problem = format!(
                            "reads the step `{name}`, which does not come before it; \
                             add it: after: [{name}]"
                        );
                        return Err(places.fault(index, key, problem));
                    }
                }
            }
        }
        Ok(())
    }

    /// Says that an expression reads a step that is not there.
    fn unknown(&self, name: &str) -> String {
        // `steps.step-0` is `steps.step` minus `0`.
        let dashed = format!("{name}-");
        if let Some(near) = self.by_name.keys().find(|known| known.starts_with(&dashed)) {
            return format!(
                "reads the step `{}`, which is not there; write steps[\"{near}\"], since `-` is minus",
                shown(name)
            );
        }
        let problem = format!("reads the step `{}`, which is not there", shown(name));
        match nearest(name, self.by_name.keys().map(String::as_str)) {
            Some(near) => format!("{problem}; did you mean `{near}`?"),
            None => problem,
        }
    }

    /// Returns for each step a bit for each step that comes before it.
    fn before(&self, steps: &[StepDefinition]) -> Vec<Vec<u64>> {
        let words = steps.len().div_ceil(64);
        let mut before = vec![vec![0; words]; steps.len()];
        for step in &self.order {
            let mut all = vec![0; words];
            for parent in &steps[*step].after {
                for (bits, of_parent) in all.iter_mut().zip(&before[*parent]) {
                    *bits |= of_parent;
                }
                all[parent / 64] |= 1 << (parent % 64);
            }
            before[*step] = all;
        }
        before
    }
}

fn contains(bits: &[u64], step: usize) -> bool {
    bits[step / 64] & (1 << (step % 64)) != 0
}

/// Returns what each key of a step reads.
fn references(step: &StepDefinition) -> Vec<(&'static str, References)> {
    let mut found = Vec::new();
    if let When::Expression(expression) = &step.when {
        found.push(("when", expression.references().clone()));
    }
    if let Some(list) = &step.for_each {
        found.push(("for_each", list.references()));
    }
    found.push(("with", step.input.references()));
    found
}

/// Returns steps that wait for each other in a circle, the first again at the end.
fn cycle(steps: &[StepDefinition], missing: &[usize], stuck: usize) -> Vec<usize> {
    let mut way = vec![stuck];
    loop {
        let Some(last) = way.last() else { return way };
        // A step that waits for a stuck one is stuck; so one of its parents is too.
        let Some(parent) = steps[*last].after.iter().find(|parent| missing[**parent] > 0) else {
            return way;
        };
        if let Some(start) = way.iter().position(|step| step == parent) {
            let mut cycle = way.split_off(start);
            cycle.push(*parent);
            return cycle;
        }
        way.push(*parent);
    }
}
