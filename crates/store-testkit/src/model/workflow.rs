//! Workflows.

use std::collections::BTreeMap;

use outlast_core::time::Timestamp;
use outlast_core::workflow::WorkflowId;
use outlast_store::command::{Prune, WriteWorkflow};
use outlast_store::job::EnqueueRefusal;
use outlast_store::workflow::{
    DueWorkflows, ENDS_BYTES_MAX, ENDS_MAX, ItemEnd, ItemQuery, ItemRecord, ItemState, NewWorkflow,
    Runs, StartedWorkflow, StepRecord, UntakenEnd, WorkflowCounts, WorkflowItemRun, WorkflowLook,
    WorkflowQuery, WorkflowRecord, WorkflowRefusal, WorkflowWritten,
};
use outlast_store_rules::apply::schedule::first_revision;
use outlast_store_rules::apply::workflow::{refused, running};
use outlast_store_rules::prune::{WORKFLOWS_MAX, found_of};
use outlast_store_rules::rules::workflow_event;

use crate::model::tables::Tables;
use crate::model::tx::Tx;

/// Everything that is stored of workflows.
#[derive(Debug, Default)]
pub(super) struct Workflows {
    rows: BTreeMap<WorkflowId, WorkflowRecord>,
    steps: BTreeMap<(WorkflowId, u32), String>,
    items: BTreeMap<(WorkflowId, u32, u32), ItemRecord>,
    ends: BTreeMap<i64, (Timestamp, ItemEnd)>,
    latest_end: i64,
}

impl Workflows {
    fn start(&mut self, record: WorkflowRecord) {
        self.rows.entry(record.id).or_insert(record);
    }

    fn note(&mut self, at: Timestamp, end: ItemEnd) {
        self.latest_end += 1;
        self.ends.insert(self.latest_end, (at, end));
    }

    /// Forgets workflows that ended long ago, oldest first; returns how many.
    pub(super) fn prune(&mut self, prune: &Prune) -> usize {
        let before = prune.finished_before;
        let ended =
            |it: &WorkflowRecord| Some((it.state.finished.filter(|at| *at < before)?, it.id));
        let mut old: Vec<_> = self.rows.values().filter_map(ended).collect();
        old.sort_unstable();
        old.truncate(usize::try_from(WORKFLOWS_MAX).unwrap_or(usize::MAX));
        for (_, id) in &old {
            self.rows.remove(id);
            self.steps.retain(|(of, _), _| of != id);
            self.items.retain(|(of, _, _), _| of != id);
            self.ends.retain(|_, (_, end)| end.of.workflow != *id);
        }
        found_of(old.len(), prune)
    }
}

impl Tx<'_> {
    pub(super) fn write_workflow(
        &mut self,
        write: &WriteWorkflow,
    ) -> Result<WorkflowWritten, WorkflowRefusal> {
        let now = self.now();
        let found = self.tables.workflows.rows.get(&write.id).cloned();
        if found.as_ref().map(|found| found.revision) != write.expected {
            return Err(WorkflowRefusal::Changed);
        }
        let revision = match &found {
            Some(found) => found.revision + 1,
            None => first_revision(&self.bench),
        };
        let new = found.as_ref().map(|found| found.new.clone()).or_else(|| write.new.clone());
        if let (Some(state), Some(new)) = (&write.to, new) {
            let record = WorkflowRecord {
                id: write.id,
                revision,
                new,
                state: state.clone(),
                created: found.map_or(now, |found| found.created),
                updated: now,
            };
            self.tables.workflows.rows.insert(write.id, record);
            for step in &write.steps {
                self.tables.workflows.steps.insert((write.id, step.step), step.state.clone());
            }
            let running = write
                .jobs
                .iter()
                .filter_map(|job| Some(running(job.rules.workflow?, Runs::Job(job.id))));
            for item in write.items.iter().cloned().chain(running) {
                self.tables.workflows.items.insert((write.id, item.step, item.item), item);
            }
        }
        let mut jobs = Vec::new();
        for job in &write.jobs {
            let refusal: Option<EnqueueRefusal> = match self.enqueue(job) {
                Ok(stored) if stored.is_old() => None,
                Ok(stored) => {
                    jobs.push(stored);
                    continue;
                }
                Err(refusal) => Some(refusal),
            };
            let end = job.rules.workflow.map(|of| refused(of, job.id, refusal.as_ref()));
            self.item_ends.extend(end);
        }
        write.started.iter().for_each(|child| self.start_workflow(child));
        for number in &write.taken {
            let of = |end: &ItemEnd| end.of.workflow;
            if self.tables.workflows.ends.get(number).is_some_and(|(_, end)| of(end) == write.id) {
                self.tables.workflows.ends.remove(number);
            }
        }
        self.item_ends.extend(write.ends.iter().cloned());
        for event in &write.events {
            self.log_event(workflow_event(write.id, event, now, &write.by));
        }
        Ok(WorkflowWritten { revision, jobs })
    }

    /// Stores a workflow, unless one of its id is there.
    pub(super) fn start_workflow(&mut self, started: &StartedWorkflow) {
        let (now, revision) = (self.now(), first_revision(&self.bench));
        self.tables.workflows.start(WorkflowRecord {
            id: started.id,
            revision,
            new: started.new.clone(),
            state: started.state.clone(),
            created: now,
            updated: now,
        });
    }

    /// Notes what happened to items in the batch; returns their workflows, each once.
    pub(super) fn note_item_ends(&mut self) -> Vec<WorkflowId> {
        let now = self.now();
        let ends = std::mem::take(&mut self.item_ends);
        let mut workflows: Vec<WorkflowId> = ends.iter().map(|end| end.of.workflow).collect();
        workflows.sort_unstable();
        workflows.dedup();
        for end in ends {
            self.tables.workflows.note(now, end);
        }
        workflows
    }
}

impl Tables {
    pub(super) fn workflows_of(&self, query: &WorkflowQuery) -> Vec<WorkflowRecord> {
        let mut all: Vec<WorkflowRecord> = self
            .workflows
            .rows
            .values()
            .filter(|it| query.status.as_ref().is_none_or(|status| it.state.status == *status))
            .filter(|it| query.name.as_ref().is_none_or(|name| it.new.name == *name))
            .filter(|it| query.tenant.as_ref().is_none_or(|tenant| it.new.tenant == *tenant))
            .filter(|it| query.after.is_none_or(|after| (it.created, it.id) < after))
            .map(without_definition)
            .collect();
        all.sort_by_key(|it| std::cmp::Reverse((it.created, it.id)));
        all.truncate(usize::try_from(query.limit).unwrap_or(usize::MAX));
        all
    }

    pub(super) fn workflow(&self, id: WorkflowId) -> Option<WorkflowRecord> {
        self.workflows.rows.get(&id).map(without_definition)
    }

    pub(super) fn unnoted_ends(&self, max: u32) -> Vec<WorkflowItemRun> {
        let is_noted = |run: &WorkflowItemRun| {
            let of = (run.workflow, run.step, run.item);
            let ends = self.workflows.ends.values();
            ends.map(|(_, end)| (end.of.workflow, end.of.step, end.of.item)).any(|end| end == of)
        };
        let goes_on = |runs: Runs| match runs {
            Runs::Job(job) => self.job(job).is_some_and(|job| !job.state.is_terminal()),
            Runs::Workflow(child) => {
                let child = self.workflows.rows.get(&child);
                child.is_some_and(|child| child.state.finished.is_none())
            }
        };
        let running = self.workflows.items.iter().filter(|(_, it)| it.state == ItemState::Running);
        let running = running.filter_map(|((workflow, step, item), it)| {
            Some(WorkflowItemRun { workflow: *workflow, step: *step, item: *item, runs: it.runs? })
        });
        let unnoted = running.filter(|run| !goes_on(run.runs) && !is_noted(run));
        unnoted.take(usize::try_from(max).unwrap_or(usize::MAX)).collect()
    }

    pub(super) fn look_at_workflow(&self, id: WorkflowId, with_definition: bool) -> WorkflowLook {
        let found = self.workflows.rows.get(&id);
        let record =
            found.map(|it| if with_definition { it.clone() } else { without_definition(it) });
        let steps = self.workflows.steps.range((id, 0)..=(id, u32::MAX));
        let steps =
            steps.map(|((_, step), state)| StepRecord { step: *step, state: state.clone() });
        let (mut ends, mut size, mut more) = (Vec::new(), 0, false);
        let of = self.workflows.ends.iter().filter(|(_, (_, end))| end.of.workflow == id);
        for (number, (_, end)) in of {
            size += end.result.as_ref().map_or(0, String::len);
            let is_full = ends.len() >= usize::try_from(ENDS_MAX).unwrap_or(usize::MAX);
            if is_full || (size > ENDS_BYTES_MAX && !ends.is_empty()) {
                more = true;
                break;
            }
            let item = self.workflows.items.get(&(id, end.of.step, end.of.item));
            let item = item.map(|item| (item.state, item.runs));
            ends.push(UntakenEnd { number: *number, end: end.clone(), item });
        }
        WorkflowLook { record, steps: steps.collect(), ends, more }
    }

    pub(super) fn items_of(&self, query: &ItemQuery) -> Vec<ItemRecord> {
        let id = query.workflow;
        let all = self.workflows.items.range((id, 0, 0)..=(id, u32::MAX, u32::MAX));
        let values = |item: &ItemRecord| match query.with_values {
            true => item.clone(),
            false => ItemRecord { input: None, result: None, ..item.clone() },
        };
        let mut size = 0;
        all.map(|(_, item)| item)
            .filter(|item| query.after.is_none_or(|after| (item.step, item.item) > after))
            .filter(|item| query.step.is_none_or(|step| item.step == step))
            .filter(|item| query.which.contains(item.state))
            .take(usize::try_from(query.limit).unwrap_or(usize::MAX))
            .map(values)
            .take_while(|item| {
                let (before, texts) = (size, [&item.input, &item.result]);
                size += texts.into_iter().flatten().map(String::len).sum::<usize>();
                before == 0 || size <= query.bytes
            })
            .collect()
    }

    pub(super) fn due_workflows(
        &self,
        DueWorkflows { until, ends_from, max }: DueWorkflows,
    ) -> Vec<WorkflowId> {
        let due = |it: &&WorkflowRecord| it.state.due.is_some_and(|due| due <= until);
        let due = self.workflows.rows.values().filter(due).map(|it| it.id);
        let noted = |at: Timestamp| ends_from <= at && at <= until;
        let ended = self.workflows.ends.values().filter(|(at, _)| noted(*at));
        let mut all: Vec<_> = due.chain(ended.map(|(_, end)| end.of.workflow)).collect();
        all.sort_unstable();
        all.dedup();
        all.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        all
    }

    pub(super) fn workflow_counts(&self) -> WorkflowCounts {
        let running = self.workflows.rows.values().filter(|it| it.state.status == "running");
        WorkflowCounts {
            running: u64::try_from(running.count()).unwrap_or(u64::MAX),
            oldest_end: self.workflows.ends.values().map(|(at, _)| *at).min(),
        }
    }
}

fn without_definition(record: &WorkflowRecord) -> WorkflowRecord {
    let new = NewWorkflow { definition: String::new(), ..record.new.clone() };
    WorkflowRecord { new, ..record.clone() }
}
