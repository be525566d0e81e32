//! A workflow as answers show it.

use std::collections::BTreeMap;

use outlast_core::time::Timestamp;
use outlast_core::workflow::{ItemOutcome, WorkflowId};
use outlast_packs::WorkflowParameters;
use outlast_store::workflow::{
    ItemQuery, ItemRecord, ItemState, Runs, WhichItems, WorkflowQuery, WorkflowRecord,
};
use outlast_wire::workflow::{
    Ending, Form, Parent, ScheduleFire, Status, StepStatus, StepView, WorkflowView,
};
use outlast_workflow::{StepState, StepStatus as RulesStatus, Target, draw};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::known::Known;
use super::look::parse;
use super::service::WorkflowError;
use super::stored::{self, Progress, StopWord};
use crate::engine::Engine;

/// How many workflows are read at once: each may have a result of 1 MiB.
const LISTED_AT_ONCE: u32 = 25;
/// How many items of a workflow are read at once, and how many are shown.
const PAGE: u32 = 2_000;
const ITEMS_MAX: usize = 20_000;
/// Of how many items values are read: later ones have no result here.
const VALUES_MAX: usize = 4_000;
/// How long the results of steps may be that one answer shows, in bytes.
const RESULTS_BYTES_MAX: usize = 1024 * 1024;

/// Of how many items a page of the dashboard shows jobs and results.
const PAGE_ITEMS_MAX: u64 = 500;

/// Reads a workflow for a page: with jobs and results only if it is not an update, and there are few.
pub(crate) async fn for_page(
    engine: &Engine,
    id: WorkflowId,
    is_update: bool,
) -> Result<WorkflowView, WorkflowError> {
    let wanted = if is_update { 0 } else { PAGE_ITEMS_MAX };
    read(engine, id, None, Shown { drawing: None, items_max: wanted }).await
}

/// Reads a workflow, if the tenant may see it; drawn as wide as `drawing` says.
pub(crate) async fn find(
    engine: &Engine,
    id: WorkflowId,
    tenant: Option<&str>,
    drawing: Option<usize>,
) -> Result<WorkflowView, WorkflowError> {
    read(engine, id, tenant, Shown { drawing, items_max: u64::MAX }).await
}

/// What is shown of a workflow.
struct Shown {
    drawing: Option<usize>,
    /// With how many items at most these are read.
    items_max: u64,
}

async fn read(
    engine: &Engine,
    id: WorkflowId,
    tenant: Option<&str>,
    Shown { drawing, items_max }: Shown,
) -> Result<WorkflowView, WorkflowError> {
    let look = engine.store().look_at_workflow(id, true).await?;
    let record = look.record.ok_or(WorkflowError::NotFound(id))?;
    if tenant.is_some_and(|tenant| record.new.tenant != tenant) {
        return Err(WorkflowError::NotFound(id));
    }
    let damaged = |what: String| WorkflowError::Damaged(id, what);
    let known = Known::parse(record.clone()).map_err(damaged)?;
    let (status, progress) = parse(&record).map_err(damaged)?;
    let steps = stored::steps(&known.definition, &look.steps).map_err(damaged)?;
    let count: u64 = steps.iter().map(|step| u64::from(step.state.total)).sum();
    let items = match count <= items_max {
        true => Items::read(engine, id).await?,
        false => Items { cut_at: Some(0), ..Items::default() },
    };
    let parent = parent_of(engine, &record).await?;
    let state = stored::state(status, &progress, &steps);
    let drawing = drawing.map(|width| {
        let mut named = known.definition.clone();
        named.name = Some(record.new.name.clone()).filter(|name| !name.is_empty());
        draw(&named, &state, width)
    });
    let steps = steps.iter().enumerate().map(|(at, step)| step_view(&known, at, step, &items));
    let steps = steps.collect();
    let view = brief(record, &progress, Some(known))?;
    Ok(WorkflowView { steps, parent, drawing, ..view })
}

/// Reads workflows without their steps and results, the latest first.
pub(crate) async fn list(
    engine: &Engine,
    query: WorkflowQuery,
) -> Result<Vec<WorkflowView>, WorkflowError> {
    let mut views = Vec::new();
    let wanted = query.limit;
    let mut query = query;
    loop {
        let left = wanted.saturating_sub(u32::try_from(views.len()).unwrap_or(u32::MAX));
        if left == 0 {
            break;
        }
        query.limit = left.min(LISTED_AT_ONCE);
        let records = engine.store().workflows(query.clone()).await?;
        let is_last = u32::try_from(records.len()).is_ok_and(|count| count < query.limit);
        query.after = records.last().map(|last| (last.created, last.id));
        for record in records {
            let id = record.id;
            let damaged = |what| WorkflowError::Damaged(id, what);
            let view = parse(&record).map_err(damaged);
            match view.and_then(|(_, progress)| brief(record, &progress, None)) {
                // Results may be long, and a list is of many workflows.
                Ok(view) => views.push(WorkflowView { result: None, ..view }),
                // The others are listed all the same.
                Err(error) => tracing::warn!(%error, "a workflow is left out of a list"),
            }
        }
        if is_last {
            break;
        }
    }
    Ok(views)
}

/// Shows what a record says; of a list without what its definition says.
fn brief(
    record: WorkflowRecord,
    progress: &Progress,
    known: Option<Known>,
) -> Result<WorkflowView, WorkflowError> {
    let damaged = |what: String| WorkflowError::Damaged(record.id, what);
    let status = Status::parse(&record.state.status);
    let status = status.ok_or_else(|| damaged(record.state.status.clone()))?;
    let ending = progress.stop.filter(|_| status == Status::Running).map(|stop| match stop {
        StopWord::Cancel => Ending::Cancelled,
        StopWord::Timeout => Ending::Timeout,
    });
    let form = match (&known, &progress.form) {
        (Some(known), _) => Form::parse(known.definition.form.as_str()),
        (None, form) => form.as_deref().and_then(Form::parse),
    };
    let schedule = known.as_ref().and_then(|known| known.stored.schedule.as_ref());
    let schedule = schedule
        .map(|fire| ScheduleFire { name: fire.name.clone(), fire_time: Timestamp(fire.fire_time) });
    let (parameters, labels, keys) = match known {
        Some(known) => (masked(&known), known.stored.labels, known.stored.keys),
        None => (Map::new(), BTreeMap::new(), BTreeMap::new()),
    };
    Ok(WorkflowView {
        id: record.id.0,
        name: Some(record.new.name).filter(|name| !name.is_empty()),
        workflow_ref: progress.reference.clone(),
        status,
        ending,
        form: form.unwrap_or(Form::Steps),
        parameters,
        labels,
        keys,
        parent: None,
        schedule,
        retries: progress.retries,
        result: progress.result.clone(),
        error: progress.error.clone(),
        created: record.created,
        updated: record.updated,
        finished: record.state.finished,
        deadline: progress.deadline.map(Timestamp),
        steps: Vec::new(),
        drawing: None,
    })
}

/// Returns the parameters as they may be shown: secret ones are masked.
fn masked(known: &Known) -> Map<String, Value> {
    let Value::Object(parameters) = &known.parameters else { return Map::new() };
    match WorkflowParameters::read(known.definition.parameters.as_ref()) {
        Ok(described) => described.mask(parameters),
        // It was read when the workflow began.
        Err(_) => Map::new(),
    }
}

async fn parent_of(
    engine: &Engine,
    record: &WorkflowRecord,
) -> Result<Option<Parent>, WorkflowError> {
    let Some(of) = record.new.parent else { return Ok(None) };
    let parent = engine.store().look_at_workflow(of.workflow, true).await?.record;
    let known = parent.and_then(|parent| Known::parse(parent).ok());
    let step = known.as_ref().and_then(|known| {
        known.definition.steps().get(usize::try_from(of.step).unwrap_or(usize::MAX))
    });
    let step = step.map_or_else(|| of.step.to_string(), |step| step.name.clone());
    Ok(Some(Parent { workflow: of.workflow.0, step, item: of.item }))
}

/// What carries out the items of each step, and the results that are shown.
#[derive(Default)]
struct Items {
    runs: BTreeMap<u32, Vec<Runs>>,
    results: BTreeMap<u32, Vec<(u32, String)>>,
    /// How many items of each step completed without a result.
    without: BTreeMap<u32, u32>,
    /// The step whose items were too many; of later ones none was read.
    cut_at: Option<u32>,
}

impl Items {
    async fn read(engine: &Engine, id: WorkflowId) -> Result<Self, WorkflowError> {
        let mut found = Self::default();
        let query = ItemQuery {
            workflow: id,
            step: None,
            which: WhichItems::All,
            with_values: true,
            after: None,
            limit: PAGE,
            bytes: RESULTS_BYTES_MAX,
        };
        let (mut query, mut left, mut count) = (query, RESULTS_BYTES_MAX, 0);
        loop {
            let page = engine.store().workflow_items(query).await?;
            let Some(last) = page.last() else { return Ok(found) };
            query.after = Some((last.step, last.item));
            for item in page {
                count += 1;
                found.add(item, query.with_values, &mut left);
            }
            if count >= ITEMS_MAX {
                found.cut_at = query.after.map(|(step, _)| step);
                return Ok(found);
            }
            query.with_values = count < VALUES_MAX;
        }
    }

    fn add(&mut self, item: ItemRecord, has_values: bool, left: &mut usize) {
        self.runs.entry(item.step).or_default().extend(item.runs);
        if item.state != ItemState::Ended(ItemOutcome::Completed) {
            return;
        }
        if item.result.is_none() && has_values {
            *self.without.entry(item.step).or_default() += 1;
        }
        if let Some(result) = item.result {
            let fits = result.len() <= *left;
            if fits {
                *left -= result.len();
                self.results.entry(item.step).or_default().push((item.item, result));
            }
        }
    }

    fn of(&self, step: u32, pick: impl Fn(Runs) -> Option<Uuid>) -> Vec<Uuid> {
        let runs = self.runs.get(&step);
        runs.into_iter().flatten().filter_map(|runs| pick(*runs)).collect()
    }

    /// Whether some jobs of a step are not shown, since there are too many.
    fn leaves_out_jobs(&self, step: u32, state: &StepState) -> bool {
        self.cut_at.is_some_and(|cut_at| step >= cut_at && state.total > 0)
    }

    /// How many items of a step completed, as far as they were read with their results.
    fn completed(&self, step: u32) -> u32 {
        let results = self.results.get(&step).map_or(0, Vec::len);
        let without = self.without.get(&step).copied().unwrap_or(0);
        u32::try_from(results).unwrap_or(u32::MAX).saturating_add(without)
    }

    /// Returns the result of a step as expressions see it, if all of it is there.
    fn result(&self, step: u32, is_list: bool, state: &StepState) -> Option<Box<RawValue>> {
        if is_list && state.total == 0 && state.status == RulesStatus::Completed {
            return RawValue::from_string("[]".to_owned()).ok();
        }
        let results = self.results.get(&step)?;
        if self.completed(step) < state.completed {
            return None;
        }
        let text = match is_list {
            false => results.first()?.1.clone(),
            true => {
                let total = usize::try_from(state.total).unwrap_or(usize::MAX);
                let mut list = vec!["null"; total];
                for (item, result) in results {
                    *list.get_mut(usize::try_from(*item).unwrap_or(usize::MAX))? = result;
                }
                format!("[{}]", list.join(","))
            }
        };
        RawValue::from_string(text).ok()
    }
}

fn step_view(known: &Known, at: usize, step: &stored::Step, items: &Items) -> StepView {
    let described = &known.definition.steps()[at];
    let names = |steps: &[usize]| -> Vec<String> {
        steps.iter().map(|step| known.definition.steps()[*step].name.clone()).collect()
    };
    let of = |wanted: bool, name: &str| wanted.then(|| name.to_owned());
    let target = &described.target;
    let name = target.reference();
    let state = &step.state;
    let number = u32::try_from(at).unwrap_or(u32::MAX);
    let is_list = described.for_each.is_some();
    let is_kept = known.keeps_results.get(at).copied().unwrap_or(false);
    StepView {
        name: described.name.clone(),
        status: StepStatus::parse(state.status.as_str()).unwrap_or(StepStatus::Waiting),
        after: names(&described.after),
        action: of(matches!(target, Target::Action(_)), name),
        job_type: of(matches!(target, Target::Type(_)), name),
        workflow: of(matches!(target, Target::Workflow(_)), name),
        callback: described.callback,
        total: state.total,
        held: state.held,
        running: state.running,
        completed: state.completed,
        failed: state.unsuccessful(),
        job_ids: items.of(number, |runs| runs.job().map(|job| job.0)),
        workflow_ids: items.of(number, |runs| runs.workflow().map(|child| child.0)),
        jobs_left_out: items.leaves_out_jobs(number, state),
        result: items.result(number, is_list, state),
        result_left_out: is_kept && items.completed(number) < state.completed,
        error: state.reason.as_ref().map(|reason| reason.text.clone()),
        started: step.started,
        finished: step.finished,
    }
}
