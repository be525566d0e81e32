//! Workflows, their steps and items, and the ends of items.

use outlast_core::workflow::WorkflowId;
use outlast_store::StoreError;
use outlast_store::command::Prune;
use outlast_store::workflow::{ItemEnd, ItemRecord, Runs, StepRecord, WorkflowRecord};

use outlast_store_rules::prune::{WORKFLOWS_MAX, found_of};

use crate::row::{failed, int};
use crate::writer::Tx;

impl Tx<'_> {
    /// Stores a workflow, unless one of its id is there.
    pub(super) fn insert_workflow(&self, record: &WorkflowRecord) -> Result<(), StoreError> {
        let (new, state) = (&record.new, &record.state);
        let parent = new.parent.as_ref();
        self.execute(
            "insert or ignore into workflow
                 (id, revision, status, due, finished, name, tenant, parent, parent_step,
                  parent_item, parent_keeps, created, updated, progress, definition)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                record.id.0.as_bytes().as_slice(),
                int(record.revision),
                state.status,
                state.due.map(|at| at.0),
                state.finished.map(|at| at.0),
                new.name,
                new.tenant,
                parent.map(|it| it.workflow.0.as_bytes().as_slice()),
                parent.map(|it| it.step),
                parent.map(|it| it.item),
                parent.map(|it| it.keeps_result),
                record.created.0,
                record.updated.0,
                state.progress,
                new.definition,
            ],
        )?;
        Ok(())
    }

    pub(super) fn update_workflow(&self, record: &WorkflowRecord) -> Result<(), StoreError> {
        let state = &record.state;
        self.execute(
            "update workflow set revision = ?, status = ?, due = ?, finished = ?, updated = ?,
                 progress = ?
             where id = ?",
            (
                int(record.revision),
                &state.status,
                state.due.map(|at| at.0),
                state.finished.map(|at| at.0),
                record.updated.0,
                &state.progress,
                record.id.0.as_bytes().as_slice(),
            ),
        )?;
        Ok(())
    }

    pub(super) fn put_step(&self, id: WorkflowId, step: &StepRecord) -> Result<(), StoreError> {
        self.execute(
            "insert or replace into workflow_step (workflow, step, state) values (?, ?, ?)",
            (id.0.as_bytes().as_slice(), step.step, &step.state),
        )?;
        Ok(())
    }

    pub(super) fn put_item(&self, id: WorkflowId, item: &ItemRecord) -> Result<(), StoreError> {
        let (job, child) = columns(item.runs);
        self.execute(
            "insert or replace into workflow_item
                 (workflow, step, item, state, job, child, input, result)
             values (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                id.0.as_bytes().as_slice(),
                item.step,
                item.item,
                item.state.as_str(),
                job,
                child,
                &item.input,
                &item.result,
            ),
        )?;
        Ok(())
    }

    pub(super) fn delete_end(&self, id: WorkflowId, number: i64) -> Result<(), StoreError> {
        self.execute(
            "delete from workflow_end where number = ? and workflow = ?",
            (number, id.0.as_bytes().as_slice()),
        )?;
        Ok(())
    }

    /// Deletes workflows that ended long ago, a few at a time: each may have many items. Returns how many
    /// it found, as the prune counts.
    pub(super) fn prune_workflows(&self, prune: &Prune) -> Result<usize, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select id from workflow where finished is not null and finished < ?
                 order by finished, id limit ?",
            )
            .map_err(failed)?;
        let old: Vec<[u8; 16]> = select
            .query_map((prune.finished_before.0, WORKFLOWS_MAX), |row| row.get(0))
            .and_then(Iterator::collect)
            .map_err(failed)?;
        for id in &old {
            for sql in [
                "delete from workflow_end where workflow = ?",
                "delete from workflow_item where workflow = ?",
                "delete from workflow_step where workflow = ?",
                "delete from workflow where id = ?",
            ] {
                self.execute(sql, [id])?;
            }
        }
        Ok(found_of(old.len(), prune))
    }

    /// Notes what happened to items in the batch.
    pub(super) fn keep_item_ends(&mut self) -> Result<(), StoreError> {
        let ends = std::mem::take(&mut self.batch.outbox.item_ends);
        ends.iter().try_for_each(|end| self.insert_end(end))
    }

    fn insert_end(&self, end: &ItemEnd) -> Result<(), StoreError> {
        let (job, child) = columns(Some(end.runs));
        self.execute(
            "insert into workflow_end
                 (workflow, step, item, keeps, job, child, what, error, result, at)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                end.of.workflow.0.as_bytes().as_slice(),
                end.of.step,
                end.of.item,
                end.of.keeps_result,
                job,
                child,
                end.what.as_str(),
                &end.error,
                &end.result,
                self.batch.context.now.0,
            ),
        )?;
        Ok(())
    }
}

/// Returns the columns `job` and `child`.
fn columns(runs: Option<Runs>) -> (Option<[u8; 16]>, Option<[u8; 16]>) {
    let job = runs.and_then(Runs::job).map(|job| *job.0.as_bytes());
    let child = runs.and_then(Runs::workflow).map(|child| *child.0.as_bytes());
    (job, child)
}
