//! Items of a draft: which there are, what they are given, what carries them out, their results.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::workflow::{ItemOutcome, WorkflowId, WorkflowItem};
use outlast_store::workflow::{
    ItemQuery, ItemRecord, ItemState, Runs, StartedWorkflow, WhichItems,
};
use outlast_store_rules::apply::workflow::running;
use outlast_workflow::advance::{ValueError, Values as _};
use outlast_workflow::limits::INPUTS_BYTES_MAX;
use outlast_workflow::template::size;
use outlast_workflow::{ItemEnd as EndOfItem, Target};
use serde_json::Value;

use super::{Draft, Place, Results, index, number, place_of, waiting_to_begin};
use crate::intake::IntakeError;
use crate::workflows::job::{self, Common};
use crate::workflows::known::Known;
use crate::workflows::service::{self, Child, WorkflowError};

/// How many items are read at once.
const PAGE: u32 = 1_000;
/// How many steps are asked for their results one by one. Of more, all results of the workflow are read.
const READ_ALONE_MAX: usize = 32;
/// How long the results may be that one job of the standard's forms is shown, in bytes.
const PASSED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The same for all jobs that start together: each has its copy.
const COPIES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long the definitions of workflows may be that one write starts, in bytes.
const STARTED_BYTES_MAX: usize = 64 * 1024 * 1024;
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
            .take(most)
            .map(|(place, record)| (place.item, record.clone()))
            .collect();
        let (mut after, mut left) = (None, most);
        while self.is_stored && left > 0 && !self.has_all_of(step) {
            let limit = u32::try_from(left.saturating_add(self.items.len())).unwrap_or(PAGE);
            let page = self.page(Some(at), which, after, limit.min(PAGE)).await?;
            after = page.after;
            for item in page.items {
                let place = place_of(&item);
                if !self.items.contains_key(&place) && !self.placed.contains(&place) {
                    found.insert(item.item, item);
                    left = left.saturating_sub(1);
                }
            }
            if page.is_last {
                break;
            }
        }
        Ok(found.into_values().take(most).collect())
    }

    /// Whether the draft has every item of a step, so that the store need not be asked.
    fn has_all_of(&self, step: usize) -> bool {
        let first = Place { step: number(step), item: 0 };
        let is_single = || self.known.definition.steps()[step].for_each.is_none();
        self.fresh.contains(&step) || self.items.contains_key(&first) && is_single()
    }

    async fn page(
        &self,
        step: Option<u32>,
        which: WhichItems,
        after: Option<(u32, u32)>,
        limit: u32,
    ) -> Result<Page, WorkflowError> {
        let query = ItemQuery {
            workflow: self.id,
            step,
            which,
            with_values: true,
            after,
            limit,
            bytes: PAGE_BYTES,
        };
        let items = self.engine.store().workflow_items(query).await?;
        let bytes = items.iter().map(ItemRecord::value_bytes).sum();
        let is_full = u32::try_from(items.len()).is_ok_and(|count| count >= limit);
        // A page that is half full of bytes may have ended for them.
        let is_last = !is_full && bytes < PAGE_BYTES / 2;
        let after = items.last().map(|last| (last.step, last.item));
        Ok(Page { is_last: is_last || after.is_none(), after, items, bytes })
    }

    /// Starts the next items of a step.
    pub(super) async fn start(&mut self, step: usize, count: usize) -> Result<(), WorkflowError> {
        let described = &self.known.definition.steps()[step];
        let results = match self.known.definition.form.passes_results() {
            true => Some(self.results_before(step, count).await?),
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
            let made = match (&results, self.input_of(&item, &described.target).await?) {
                (Some(Err(reason)), _) => Err(reason.clone().into()),
                (_, Err(reason)) => Err(reason.into()),
                (None, Ok(input)) => self.make(step, of, input, None),
                (Some(Ok(results)), Ok(input)) => self.make(step, of, input, Some(results)),
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
            self.started_bytes += new.definition.len();
            if self.started_bytes > STARTED_BYTES_MAX {
                let problem = format!(
                    "workflows that start together come to more than {STARTED_BYTES_MAX} bytes; set \
                     `concurrency`"
                );
                return Err(problem.into());
            }
            self.started.push(StartedWorkflow {
                id,
                new,
                state: waiting_to_begin(self.now, Some(reference.clone())),
            });
            // The row of an item that a job carries out comes with the job.
            self.children.push(running(of, Runs::Workflow(id)));
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

    /// Returns the results of the steps before one, for `count` jobs to be shown; or why they are too
    /// long for that.
    async fn results_before(
        &mut self,
        step: usize,
        count: usize,
    ) -> Result<Result<Vec<Value>, String>, WorkflowError> {
        let before = &self.known.definition.steps()[step].after;
        let with = |step: &&usize| self.state.steps[**step].completed > 0;
        let wanted = before.iter().filter(with).copied().collect();
        let results = self.results(&wanted).await?;
        let (mut all, mut bytes) = (Vec::with_capacity(before.len()), 0_usize);
        for step in before {
            let result = match wanted.contains(step) {
                true => results.result(*step),
                false => Ok(Value::Null),
            };
            match result {
                Ok(result) => all.push(result),
                Err(why) => return Ok(Err(why.to_string())),
            }
            bytes += all.last().map_or(0, size);
        }
        let copies = bytes.saturating_mul(count);
        if bytes > PASSED_BYTES_MAX || copies > COPIES_BYTES_MAX {
            return Ok(Err(format!(
                "the results of the steps before it have {bytes} bytes, for each of {count} jobs; a job \
                 is shown at most {PASSED_BYTES_MAX}, and jobs that start together {COPIES_BYTES_MAX}"
            )));
        }
        Ok(Ok(all))
    }

    /// Reads the results of steps: of `for_each` a list with a place for each item.
    pub(super) async fn results(
        &mut self,
        steps: &BTreeSet<usize>,
    ) -> Result<Results, WorkflowError> {
        let missing: BTreeSet<usize> =
            steps.iter().copied().filter(|step| !self.read.contains_key(step)).collect();
        let mut found = BTreeMap::new();
        let mut bytes = 0;
        if missing.len() > READ_ALONE_MAX {
            bytes += self.read_completed(None, &missing, &mut found).await?;
        } else {
            for step in &missing {
                bytes += self.read_completed(Some(*step), &missing, &mut found).await?;
                if bytes > INPUTS_BYTES_MAX {
                    break;
                }
            }
        }
        for step in missing {
            let value = match bytes > INPUTS_BYTES_MAX {
                true => {
                    let problem = format!("results come to more than {INPUTS_BYTES_MAX} bytes");
                    Err(ValueError(problem))
                }
                false => Ok(self.result_of(step, found.remove(&number(step)).unwrap_or_default())),
            };
            self.read.insert(step, value);
        }
        let of = |step: &usize| Some((*step, self.read.get(step)?.clone()));
        Ok(Results(steps.iter().filter_map(of).collect()))
    }

    /// Reads the results of completed items, of one step or of all that are wanted, until they are too
    /// long; returns how long they are.
    async fn read_completed(
        &self,
        step: Option<usize>,
        wanted: &BTreeSet<usize>,
        found: &mut BTreeMap<u32, BTreeMap<u32, Option<String>>>,
    ) -> Result<usize, WorkflowError> {
        let (mut after, mut bytes) = (None, 0);
        let is_known = step.is_some_and(|step| self.has_all_of(step));
        while self.is_stored && bytes <= INPUTS_BYTES_MAX && !is_known {
            let page = self.page(step.map(number), WhichItems::Completed, after, PAGE).await?;
            (after, bytes) = (page.after, bytes + page.bytes);
            for item in page.items.into_iter().filter(|item| wanted.contains(&index(item.step))) {
                found.entry(item.step).or_default().insert(item.item, item.result);
            }
            if page.is_last {
                break;
            }
        }
        for (place, item) in &self.items {
            let is_wanted = wanted.contains(&index(place.step));
            if !is_wanted || step.is_some_and(|step| number(step) != place.step) {
                continue;
            }
            let of_step = found.entry(place.step).or_default();
            match WhichItems::Completed.contains(item.state) {
                true => drop(of_step.insert(place.item, item.result.clone())),
                false => drop(of_step.remove(&place.item)),
            }
        }
        Ok(bytes)
    }

    fn result_of(&self, step: usize, items: BTreeMap<u32, Option<String>>) -> Value {
        let value = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        if self.known.definition.steps()[step].for_each.is_none() {
            return items.into_values().next().and_then(value).unwrap_or(Value::Null);
        }
        let mut list = vec![Value::Null; index(self.state.steps[step].total)];
        for (item, text) in items {
            if let Some(place) = list.get_mut(index(item)) {
                *place = value(text).unwrap_or(Value::Null);
            }
        }
        Value::Array(list)
    }
}

/// Items as they were read.
struct Page {
    items: Vec<ItemRecord>,
    /// Where the next page begins.
    after: Option<(u32, u32)>,
    is_last: bool,
    bytes: usize,
}
