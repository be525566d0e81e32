//! Workflows, their steps and items, and the ends of items. As with schedules, a batch locks the
//! workflows that it names before it reads them, and one that another transaction has locked is not there
//! for it.

use outlast_core::workflow::WorkflowId;
use outlast_store::workflow::{ItemEnd, ItemRecord, Runs, StepRecord, WorkflowRecord};
use outlast_store::{StoreError, workflow_columns};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, Value, values};
use crate::read::workflow::record_of;
use crate::row::{int, text};
use crate::writer::Tx;

pub(super) const LOCK_WORKFLOWS: &str = concat!(
    "select ",
    workflow_columns!(),
    ", '' from workflow where id = any($1::uuid[]) order by id for update skip locked"
);

impl Tx<'_> {
    pub(super) fn take_workflows(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let record = record_of(row)?;
            self.seen.workflows.insert(record.id, record);
        }
        Ok(())
    }

    /// Stores a workflow. One that another server makes meanwhile has the same key: the batch is tried
    /// again.
    pub(super) fn insert_workflow(&mut self, record: &WorkflowRecord) {
        self.write(INSERT, columns_of(record));
        self.seen.workflows.insert(record.id, record.clone());
    }

    /// Stores a workflow, unless one of its id is there.
    pub(super) fn insert_workflow_once(&mut self, record: &WorkflowRecord) {
        self.write(INSERT_ONCE, columns_of(record));
    }

    pub(super) fn update_workflow(&mut self, record: &WorkflowRecord) {
        let state = &record.state;
        let values = values![
            record.id.0,
            int(record.revision),
            text(&state.status),
            state.due.map(|at| at.0),
            state.finished.map(|at| at.0),
            record.updated.0,
            text(&state.progress),
        ];
        self.write(
            "update workflow set revision = $2, status = $3, due = $4, finished = $5, updated = $6,
                 progress = $7
             where id = $1",
            values,
        );
        self.seen.workflows.insert(record.id, record.clone());
    }

    pub(super) fn put_steps(&mut self, id: WorkflowId, steps: &[StepRecord]) {
        if steps.is_empty() {
            return;
        }
        let (numbers, states): (Vec<i64>, Vec<String>) =
            steps.iter().map(|step| (i64::from(step.step), text(&step.state))).unzip();
        self.write(
            "insert into workflow_step (workflow, step, state)
             select $1, k.step, k.state from unnest($2::bigint[], $3::text[]) k(step, state)
             on conflict (workflow, step) do update set state = excluded.state",
            values![id.0, numbers, states],
        );
    }

    pub(super) fn put_items(&mut self, id: WorkflowId, items: &[ItemRecord]) {
        if items.is_empty() {
            return;
        }
        let steps: Vec<i64> = items.iter().map(|item| i64::from(item.step)).collect();
        let numbers: Vec<i64> = items.iter().map(|item| i64::from(item.item)).collect();
        let states: Vec<&'static str> = items.iter().map(|item| item.state.as_str()).collect();
        let jobs: Vec<Option<Uuid>> = items.iter().map(|item| job_of(item.runs)).collect();
        let children: Vec<Option<Uuid>> = items.iter().map(|item| child_of(item.runs)).collect();
        let inputs: Vec<Option<String>> =
            items.iter().map(|item| item.input.as_deref().map(text)).collect();
        let results: Vec<Option<String>> =
            items.iter().map(|item| item.result.as_deref().map(text)).collect();
        self.write(
            "insert into workflow_item (workflow, step, item, state, job, child, input, result)
             select $1, k.step, k.item, k.state, k.job, k.child, k.input, k.result
             from unnest($2::bigint[], $3::bigint[], $4::text[], $5::uuid[], $6::uuid[],
                         $7::text[], $8::text[])
                 k(step, item, state, job, child, input, result)
             on conflict (workflow, step, item) do update
                 set state = excluded.state, job = excluded.job, child = excluded.child,
                     input = excluded.input, result = excluded.result",
            values![id.0, steps, numbers, states, jobs, children, inputs, results],
        );
    }

    pub(super) fn delete_ends(&mut self, id: WorkflowId, numbers: &[i64]) {
        if !numbers.is_empty() {
            self.write(
                "delete from workflow_end where number = any($2::bigint[]) and workflow = $1",
                values![id.0, numbers.to_vec()],
            );
        }
    }

    /// Notes what happened to items in the batch.
    pub(super) fn item_ends(&mut self) -> Option<Statement> {
        let ends: Vec<ItemEnd> = std::mem::take(&mut self.batch.outbox.item_ends);
        if ends.is_empty() {
            return None;
        }
        let workflows: Vec<Uuid> = ends.iter().map(|end| end.of.workflow.0).collect();
        let steps: Vec<i64> = ends.iter().map(|end| i64::from(end.of.step)).collect();
        let items: Vec<i64> = ends.iter().map(|end| i64::from(end.of.item)).collect();
        let keeps: Vec<bool> = ends.iter().map(|end| end.of.keeps_result).collect();
        let jobs: Vec<Option<Uuid>> = ends.iter().map(|end| job_of(Some(end.runs))).collect();
        let children: Vec<Option<Uuid>> = ends.iter().map(|end| child_of(Some(end.runs))).collect();
        let whats: Vec<&'static str> = ends.iter().map(|end| end.what.as_str()).collect();
        let errors: Vec<Option<String>> =
            ends.iter().map(|end| end.error.as_deref().map(text)).collect();
        let results: Vec<Option<String>> =
            ends.iter().map(|end| end.result.as_deref().map(text)).collect();
        let at = self.batch.context.now.0;
        Some(Statement::new(
            "insert into workflow_end
                 (workflow, step, item, keeps, job, child, what, error, result, at)
             select k.workflow, k.step, k.item, k.keeps, k.job, k.child, k.what, k.error, k.result,
                 $10
             from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[], $5::uuid[],
                         $6::uuid[], $7::text[], $8::text[], $9::text[])
                 k(workflow, step, item, keeps, job, child, what, error, result)",
            values![workflows, steps, items, keeps, jobs, children, whats, errors, results, at],
        ))
    }
}

const INSERT: &str = "insert into workflow
     (id, revision, status, due, finished, name, tenant, parent, parent_step, parent_item,
      parent_keeps, created, updated, progress, definition)
 values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";

const INSERT_ONCE: &str = "insert into workflow
     (id, revision, status, due, finished, name, tenant, parent, parent_step, parent_item,
      parent_keeps, created, updated, progress, definition)
 values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
 on conflict (id) do nothing";

fn columns_of(record: &WorkflowRecord) -> Vec<Value> {
    let (new, state) = (&record.new, &record.state);
    let parent = new.parent.as_ref();
    values![
        record.id.0,
        int(record.revision),
        text(&state.status),
        state.due.map(|at| at.0),
        state.finished.map(|at| at.0),
        text(&new.name),
        text(&new.tenant),
        parent.map(|it| it.workflow.0),
        parent.map(|it| i64::from(it.step)),
        parent.map(|it| i64::from(it.item)),
        parent.map(|it| it.keeps_result),
        record.created.0,
        record.updated.0,
        text(&state.progress),
        text(&new.definition),
    ]
}

fn job_of(runs: Option<Runs>) -> Option<Uuid> {
    runs.and_then(Runs::job).map(|job| job.0)
}

fn child_of(runs: Option<Runs>) -> Option<Uuid> {
    runs.and_then(Runs::workflow).map(|child| child.0)
}
