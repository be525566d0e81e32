//! Items of a draft: which there are, what they are given, what carries them out, their results.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use outlast_core::workflow::{ItemOutcome, WorkflowId, WorkflowItem};
use outlast_store::workflow::{
    ItemQuery, ItemRecord, ItemState, Runs, StartedWorkflow, WhichItems,
};
use outlast_workflow::advance::{ValueError, Values as _};
use outlast_workflow::limits::INPUTS_BYTES_MAX;
use outlast_workflow::{ItemEnd as EndOfItem, Target};
use serde_json::Value;

use super::{Draft, Place, Results, index, number, place_of, waiting_to_begin};
use crate::intake::IntakeError;
use crate::workflows::job::{self, Common};
use crate::workflows::known::Known;
use crate::workflows::service::{self, Child, WorkflowError};

/// How many items are read at once.
const PAGE: u32 = 1_000;
/// How many bytes of their inputs or results are.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Why nothing carries out an item.
pub(in crate::workflows) enum Unmade {
    /// This server does not know its action or workflow; another one may.
    Unknown(String),
    /// It is not possible.
    Impossible(String),
}

impl From<String> for Unmade {
    fn from(reason: String) -> Self {
        Self::Impossible(reason)
    }
}

impl From<IntakeError> for Unmade {
    fn from(error: IntakeError) -> Self {
        match &error {
            IntakeError::UnknownAction { .. } | IntakeError::FaultyAction { .. } => {
                Self::Unknown(error.to_string())
            }
            IntakeError::Invalid(_)
            | IntakeError::DisabledAction { .. }
            | IntakeError::InvalidParameters { .. } => Self::Impossible(error.to_string()),
        }
    }
}

impl<'a> Draft<'a> {
    /// Returns the first items of a step that are so, the draft's over the store's.
    pub(super) async fn items_of(
        &self,
        step: usize,
        which: WhichItems,
        most: usize,
    ) -> Result<Vec<ItemRecord>, WorkflowError> {
        let at = number(step);
        let mut found: BTreeMap<u32, ItemRecord> = self
            .items
            .range(Place { step: at, item: 0 }..=Place { step: at, item: u32::MAX })
            .filter(|(_, item)| which.contains(item.state))
            .map(|(place, record)| (place.item, record.clone()))
            .collect();
        let (mut after, mut count) = (None, 0);
        while self.is_stored && count < most {
            let query = ItemQuery {
                workflow: self.id,
                step: Some(at),
                which,
                with_values: true,
                after,
                limit: PAGE,
                bytes: PAGE_BYTES,
            };
            let page = self.engine.store().workflow_items(query).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.step, last.item));
            for item in page {
                let place = place_of(&item);
                if !self.items.contains_key(&place) && !self.placed.contains(&place) {
                    found.insert(item.item, item);
                    count += 1;
                }
            }
        }
        Ok(found.into_values().take(most).collect())
    }

    /// Starts the next items of a step.
    pub(super) async fn start(&mut self, step: usize, count: usize) -> Result<(), WorkflowError> {
        let described = &self.known.definition.steps()[step];
        let results = match self.known.definition.form.passes_results() {
            true => Some(self.results_before(step).await?),
            false => None,
        };
        for item in self.items_of(step, WhichItems::Held, count).await? {
            let place = place_of(&item);
            let of = WorkflowItem {
                workflow: self.id,
                step: item.step,
                item: item.item,
                keeps_result: self.known.keeps_results[step],
            };
            let made = match self.input_of(&item, &described.target).await? {
                Ok(input) => self.make(step, of, input, results.as_deref()),
                Err(reason) => Err(reason.into()),
            };
            match made {
                Ok(()) => {
                    self.items.remove(&place);
                    self.placed.insert(place);
                }
                Err(Unmade::Unknown(reason)) if self.is_patient => {
                    return Err(WorkflowError::Later(reason));
                }
                Err(Unmade::Unknown(reason) | Unmade::Impossible(reason)) => {
                    let outcome = ItemOutcome::Failed;
                    // Its input stays: a retry may find what was missing.
                    let state = ItemState::Ended(outcome);
                    self.items.insert(place, ItemRecord { state, ..item });
                    let end = EndOfItem { item: place.item, outcome, error: Some(reason) };
                    self.failed.entry(step).or_default().push(end);
                }
            }
        }
        Ok(())
    }

    /// Makes what carries out an item.
    fn make(
        &mut self,
        step: usize,
        of: WorkflowItem,
        input: Value,
        results: Option<&[Value]>,
    ) -> Result<(), Unmade> {
        let described = &self.known.definition.steps()[step];
        let common = self.common();
        if let Target::Workflow(reference) = &described.target {
            let id = WorkflowId(job::id_of(common, of));
            let child = Child { id, of, reference, input };
            let new = service::child(self.engine.settings(), self.known, child)?;
            self.started.push(StartedWorkflow { id, new, state: waiting_to_begin(self.now) });
            // The row of an item that a job carries out comes with the job.
            self.children.push(ItemRecord {
                step: of.step,
                item: of.item,
                state: ItemState::Running,
                runs: Some(Runs::Workflow(id)),
                input: None,
                result: None,
            });
            return Ok(());
        }
        let job = job::plan(common, described, of, input, results)?;
        self.jobs.push(job);
        Ok(())
    }

    fn common(&self) -> Common<'a> {
        Common {
            settings: self.engine.settings(),
            id: self.id,
            name: &self.known.new.name,
            tenant: Some(self.known.new.tenant.as_str()).filter(|tenant| !tenant.is_empty()),
            labels: &self.known.stored.labels,
            keys: &self.known.stored.keys,
            retries: self.progress.retries,
            now: self.now,
        }
    }

    /// Returns what an item is given: as it was rendered, or as what carried it out before was given.
    async fn input_of(
        &self,
        item: &ItemRecord,
        target: &Target,
    ) -> Result<Result<Value, String>, WorkflowError> {
        let gone =
            || "what it was given was deleted with its job; begin the workflow again".to_owned();
        let text = match (&item.input, item.runs) {
            (Some(input), _) => Some(input.clone()),
            (None, Some(Runs::Job(job))) => {
                let job = self.engine.store().job(job).await?;
                job.map(|job| job.job.payload.args.clone())
            }
            (None, Some(Runs::Workflow(child))) => {
                let child = self.engine.store().look_at_workflow(child, true).await?.record;
                let known = child.and_then(|child| Known::parse(child).ok());
                return Ok(known.map(|known| known.parameters).ok_or_else(gone));
            }
            (None, None) => None,
        };
        let value = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let value = match (value, target) {
            // A job of an action has its parameters as its only argument.
            (Some(Value::Array(args)), Target::Action(_)) if item.input.is_none() => {
                args.into_iter().next()
            }
            (value, _) => value,
        };
        Ok(value.ok_or_else(gone))
    }

    async fn results_before(&self, step: usize) -> Result<Vec<Value>, WorkflowError> {
        let before = &self.known.definition.steps()[step].after;
        let with = |step: &&usize| self.state.steps[**step].completed > 0;
        let wanted = before.iter().filter(with).copied().collect();
        let results = self.results(&wanted).await?;
        Ok(before.iter().map(|step| results.result(*step).unwrap_or(Value::Null)).collect())
    }

    /// Reads the results of steps: of `for_each` a list with a place for each item.
    pub(super) async fn results(&self, steps: &BTreeSet<usize>) -> Result<Results, WorkflowError> {
        let mut found = HashMap::new();
        let mut bytes = 0;
        for step in steps {
            let items = self.items_of(*step, WhichItems::Completed, usize::MAX).await?;
            bytes += items
                .iter()
                .filter_map(|item| item.result.as_ref())
                .map(String::len)
                .sum::<usize>();
            let value = match bytes > INPUTS_BYTES_MAX {
                true => {
                    let problem = format!("results come to more than {INPUTS_BYTES_MAX} bytes");
                    Err(ValueError(problem))
                }
                false => Ok(self.result_of(*step, items)),
            };
            found.insert(*step, value);
        }
        Ok(Results(found))
    }

    fn result_of(&self, step: usize, items: Vec<ItemRecord>) -> Value {
        let value = |item: ItemRecord| {
            let text = item.result?;
            serde_json::from_str(&text).ok()
        };
        if self.known.definition.steps()[step].for_each.is_none() {
            return items.into_iter().next().and_then(value).unwrap_or(Value::Null);
        }
        let mut list = vec![Value::Null; index(self.state.steps[step].total)];
        for item in items {
            if let Some(place) = list.get_mut(index(item.item)) {
                *place = value(item).unwrap_or(Value::Null);
            }
        }
        Value::Array(list)
    }
}
