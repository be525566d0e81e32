//! Whether what the steps of workflows name is there, and whether no workflow starts itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_workflow::Target;

use super::PackSet;
use crate::error::PackError;
use crate::keys::nearest;
use crate::note::Note;
use crate::workflow::Workflow;

impl PackSet {
    /// Leaves out workflows that could not run, and those that start them. What belongs to packs
    /// that are not here is noted.
    pub(super) fn check_workflows(&mut self) {
        loop {
            let faulty = self.workflows.values().filter_map(|it| Some((it, self.fault_in(it)?)));
            let faulty: Vec<_> =
                faulty.map(|(workflow, fault)| (Arc::clone(workflow), fault)).collect();
            if faulty.is_empty() {
                break;
            }
            for (workflow, fault) in faulty {
                self.workflows.remove(&workflow.reference);
                if let Some(pack) = self.pack_mut(&workflow.pack) {
                    pack.leave_out(&workflow.reference, fault);
                }
            }
        }
        let notes: Vec<_> = self.workflows.values().flat_map(|it| self.unchecked(it)).collect();
        for (pack, note) in notes {
            if let Some(pack) = self.pack_mut(&pack) {
                pack.note(note);
            }
        }
    }

    /// Nothing else holds the packs of a set that is being read.
    fn pack_mut(&mut self, reference: &str) -> Option<&mut crate::pack::Pack> {
        self.packs.iter_mut().find(|pack| pack.reference == reference).and_then(Arc::get_mut)
    }

    fn has_pack(&self, reference: &str) -> bool {
        self.packs.iter().any(|pack| pack.reference == reference)
    }

    fn fault_in(&self, workflow: &Workflow) -> Option<PackError> {
        let steps = workflow.definition.steps();
        (0..steps.len()).find_map(|step| {
            let (problem, remedy) = match &steps[step].target {
                Target::Type(_) => return None,
                Target::Action(action) => self.no_action(action)?,
                Target::Workflow(other) => {
                    let cycle = self.cycle(workflow, other);
                    cycle.or_else(|| self.no_workflow(other, workflow))?
                }
            };
            let place = format!("steps.{}.{}", steps[step].name, steps[step].target.key());
            let fault = PackError::new(&workflow.file, format!("{place}: {problem}"), remedy);
            Some(fault.at(workflow.lines[step]))
        })
    }

    fn no_action(&self, reference: &str) -> Option<(String, String)> {
        let Some((pack, _)) = reference.split_once('.') else {
            let remedy = "write its pack too, such as `core.echo`".to_owned();
            return Some((format!("`{reference}` is not the reference of an action"), remedy));
        };
        if self.actions.contains_key(reference) || !self.has_pack(pack) {
            return None;
        }
        if let Some(fault) = self.fault_of(reference) {
            let problem = format!("action `{reference}` is left out");
            return Some((problem, format!("correct {}", fault.file())));
        }
        let known = self.actions.keys().map(String::as_str);
        Some((format!("there is no action `{reference}`"), meant(reference, pack, known)))
    }

    fn no_workflow(&self, reference: &str, own: &Workflow) -> Option<(String, String)> {
        let Some((pack, _)) = reference.split_once('.') else {
            let remedy = "write its pack too, such as `reports.nightly`".to_owned();
            return Some((format!("`{reference}` is not the reference of a workflow"), remedy));
        };
        if self.workflows.contains_key(reference) || !self.has_pack(pack) {
            return None;
        }
        if let Some(fault) = self.fault_of_workflow(reference) {
            let problem = format!("workflow `{reference}` is left out");
            return Some((problem, format!("correct {}", fault.file())));
        }
        let known = self.workflows.keys().map(String::as_str).filter(|it| *it != own.reference);
        Some((format!("there is no workflow `{reference}`"), meant(reference, pack, known)))
    }

    /// Says how a workflow starts itself through `first`, if it does.
    fn cycle(&self, workflow: &Workflow, first: &str) -> Option<(String, String)> {
        let own = workflow.reference.as_str();
        let mut seen = BTreeSet::new();
        let mut open = vec![vec![first]];
        while let Some(way) = open.pop() {
            let last = *way.last()?;
            if last == own {
                let through = match &way[..way.len() - 1] {
                    [] => String::new(),
                    others => format!(" through {}", others.join(", ")),
                };
                let problem = format!("{own} starts itself{through}");
                return Some((problem, "that would never end".to_owned()));
            }
            if !seen.insert(last) {
                continue;
            }
            let steps = self.workflows.get(last).map(|it| it.definition.steps());
            for step in steps.unwrap_or_default() {
                if let Target::Workflow(next) = &step.target {
                    open.push([way.as_slice(), &[next]].concat());
                }
            }
        }
        None
    }

    /// Notes about steps that name what is not here, each with its pack.
    fn unchecked(&self, workflow: &Workflow) -> Vec<(String, Note)> {
        let steps = workflow.definition.steps().iter();
        let outside = steps.filter_map(|step| {
            let (Target::Action(named) | Target::Workflow(named)) = &step.target else {
                return None;
            };
            let (pack, _) = named.split_once('.')?;
            if self.has_pack(pack) {
                return None;
            }
            let (name, key) = (&step.name, step.target.key());
            let message = format!(
                "steps.{name}.{key}: `{named}` was not looked for: pack `{pack}` is not here"
            );
            Some((workflow.pack.clone(), Note::new(&workflow.file, message)))
        });
        outside.collect()
    }

    /// The workflow that was most likely meant by a reference that names none.
    #[must_use]
    pub fn nearest_workflow(&self, reference: &str) -> Option<&str> {
        nearest(reference, self.workflows.keys().map(String::as_str))
    }

    /// What is wrong with the file of a workflow, or with its pack, if it was left out for that.
    #[must_use]
    pub fn fault_of_workflow(&self, reference: &str) -> Option<&PackError> {
        let mut faults = self.packs.iter().flat_map(|pack| pack.faults_of_workflows());
        let of_workflow = faults.find(|(name, _)| *name == reference);
        of_workflow.map(|(_, fault)| fault).or_else(|| self.fault_of_pack(reference))
    }
}

/// Says what of a pack was most likely meant. The pack's own name makes nothing alike.
fn meant<'a>(reference: &str, pack: &str, known: impl Iterator<Item = &'a str>) -> String {
    let own = |it: &'a str| it.strip_prefix(pack)?.strip_prefix('.');
    let name = reference.strip_prefix(pack).unwrap_or_default().trim_start_matches('.');
    match nearest(name, known.filter_map(own)) {
        Some(near) => format!("did you mean `{pack}.{near}`?"),
        None => format!("pack `{pack}` has none that is called like it"),
    }
}
