//! Workflows.

use outlast_core::id::JobId;
use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_store::workflow::{
    DueWorkflows, ENDS_BYTES_MAX, ENDS_MAX, ItemEnd, ItemHappened, ItemQuery, ItemRecord,
    ItemState, NewWorkflow, Runs, StepRecord, UntakenEnd, WorkflowCounts, WorkflowItemRun,
    WorkflowLook, WorkflowQuery, WorkflowRecord, WorkflowState,
};
use outlast_store::{StoreError, workflow_columns};
use rusqlite::{Connection, Params, Row};

use crate::row::{self, failed};

/// Reads a workflow from [`workflow_columns`] and its definition.
fn record_of(row: &Row<'_>) -> rusqlite::Result<WorkflowRecord> {
    let parent = match row::uuid_opt(row, 7)? {
        None => None,
        Some(id) => Some(WorkflowItem {
            workflow: WorkflowId(id),
            step: row.get(8)?,
            item: row.get(9)?,
            keeps_result: row.get(10)?,
        }),
    };
    Ok(WorkflowRecord {
        id: WorkflowId(row::uuid(row, 0)?),
        revision: row.get(1)?,
        new: NewWorkflow {
            name: row.get(5)?,
            tenant: row.get(6)?,
            definition: row.get(14)?,
            parent,
        },
        state: WorkflowState {
            status: row.get(2)?,
            due: row::time_opt(row, 3)?,
            finished: row::time_opt(row, 4)?,
            progress: row.get(13)?,
        },
        created: row::time(row, 11)?,
        updated: row::time(row, 12)?,
    })
}

fn all<T>(
    db: &Connection,
    sql: &'static str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let rows = select.query_map(values, read).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

pub(crate) fn one(
    db: &Connection,
    id: WorkflowId,
    with_definition: bool,
) -> Result<Option<WorkflowRecord>, StoreError> {
    let sql = concat!(
        "select ",
        workflow_columns!(),
        ", iif(?2, definition, '') from workflow where id = ?1"
    );
    Ok(all(db, sql, (bytes(id), with_definition), record_of)?.pop())
}

const fn bytes(id: WorkflowId) -> [u8; 16] {
    *id.0.as_bytes()
}

pub(crate) fn page(
    db: &Connection,
    query: &WorkflowQuery,
) -> Result<Vec<WorkflowRecord>, StoreError> {
    let sql = concat!(
        "select ",
        workflow_columns!(),
        ", '' from workflow
         where (?1 is null or status = ?1) and (?2 is null or name = ?2)
             and (?3 is null or tenant = ?3)
             and (?4 is null or (created, id) < (?4, ?5))
         order by created desc, id desc limit ?6"
    );
    let (at, id) = query.after.map_or((None, None), |(at, id)| (Some(at.0), Some(bytes(id))));
    all(db, sql, (&query.status, &query.name, &query.tenant, at, id, query.limit), record_of)
}

pub(crate) fn look(
    db: &Connection,
    id: WorkflowId,
    with_definition: bool,
) -> Result<WorkflowLook, StoreError> {
    let record = one(db, id, with_definition)?;
    let sql = "select step, state from workflow_step where workflow = ? order by step";
    let read = |row: &Row<'_>| Ok(StepRecord { step: row.get(0)?, state: row.get(1)? });
    let steps = all(db, sql, [bytes(id)], read)?;
    let (ends, more) = ends(db, id)?;
    Ok(WorkflowLook { record, steps, ends, more })
}

/// Reads the next ends, and says whether there are more.
fn ends(db: &Connection, id: WorkflowId) -> Result<(Vec<UntakenEnd>, bool), StoreError> {
    let mut select = db
        .prepare_cached(
            "select e.number, e.step, e.item, e.keeps, e.job, e.child, e.what, e.error, e.result,
                 i.state, i.job, i.child
             from workflow_end e
             left join workflow_item i
                 on i.workflow = e.workflow and i.step = e.step and i.item = e.item
             where e.workflow = ? order by e.number",
        )
        .map_err(failed)?;
    let mut rows = select.query([bytes(id)]).map_err(failed)?;
    let (mut found, mut size) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(failed)? {
        let end = end_of(id, row).map_err(failed)?;
        size += end.end.result.as_ref().map_or(0, String::len);
        if found.len() >= usize::try_from(ENDS_MAX).unwrap_or(usize::MAX)
            || (size > ENDS_BYTES_MAX && !found.is_empty())
        {
            return Ok((found, true));
        }
        found.push(end);
    }
    Ok((found, false))
}

fn end_of(workflow: WorkflowId, row: &Row<'_>) -> rusqlite::Result<UntakenEnd> {
    let of =
        WorkflowItem { workflow, step: row.get(1)?, item: row.get(2)?, keeps_result: row.get(3)? };
    let wrong = || rusqlite::Error::InvalidColumnType(4, "job".into(), rusqlite::types::Type::Null);
    let end = ItemEnd {
        of,
        runs: runs(row, 4)?.ok_or_else(wrong)?,
        what: row::parsed(row, 6, ItemHappened::parse)?,
        error: row.get(7)?,
        result: row.get(8)?,
    };
    let item = match row::parsed_opt(row, 9, ItemState::parse)? {
        None => None,
        Some(state) => Some((state, runs(row, 10)?)),
    };
    Ok(UntakenEnd { number: row.get(0)?, end, item })
}

/// Reads what carries out an item, from two columns.
fn runs(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Runs>> {
    let job = row::uuid_opt(row, at)?.map(|id| Runs::Job(JobId(id)));
    let child = row::uuid_opt(row, at + 1)?.map(|id| Runs::Workflow(WorkflowId(id)));
    Ok(job.or(child))
}

pub(crate) fn items(db: &Connection, query: &ItemQuery) -> Result<Vec<ItemRecord>, StoreError> {
    let place = match query.step {
        Some(_) => "step = ?3 and item > ?4",
        None => "(step, item) > (?3, ?4)",
    };
    let sql = format!(
        "select step, item, state, job, child, iif(?1, input, null), iif(?1, result, null)
         from workflow_item where workflow = ?2 and {place} and {} order by step, item limit ?5",
        query.which.condition()
    );
    let read = |row: &Row<'_>| {
        Ok(ItemRecord {
            step: row.get(0)?,
            item: row.get(1)?,
            state: row::parsed(row, 2, ItemState::parse)?,
            runs: runs(row, 3)?,
            input: row.get(5)?,
            result: row.get(6)?,
        })
    };
    let (step, item) = query.begins_after();
    let mut select = db.prepare_cached(&sql).map_err(failed)?;
    let values = (query.with_values, bytes(query.workflow), step, item, query.limit);
    let mut rows = select.query(values).map_err(failed)?;
    let (mut found, mut size) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(failed)? {
        let item: ItemRecord = read(row).map_err(failed)?;
        let before = size;
        size += item.value_bytes();
        if before > 0 && size > query.bytes {
            break;
        }
        found.push(item);
    }
    Ok(found)
}

pub(crate) fn due(
    db: &Connection,
    DueWorkflows { until, ends_from, max }: DueWorkflows,
) -> Result<Vec<WorkflowId>, StoreError> {
    let read = |row: &Row<'_>| row::uuid(row, 0).map(WorkflowId);
    let due = "select id from workflow where due is not null and due <= ?1 order by due limit ?2";
    let mut found = all(db, due, (until.0, max), read)?;
    let ended = "select distinct workflow from workflow_end where at between ?1 and ?2 limit ?3";
    found.extend(all(db, ended, (ends_from.0, until.0, max), read)?);
    found.sort_unstable();
    found.dedup();
    found.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    Ok(found)
}

pub(crate) fn unnoted(db: &Connection, max: u32) -> Result<Vec<WorkflowItemRun>, StoreError> {
    let sql = "select i.workflow, i.step, i.item, i.job, i.child from workflow_item i
         where i.state = 'running'
             and not exists (select 1 from workflow_end e where e.workflow = i.workflow
                 and e.step = i.step and e.item = i.item)
             and case when i.job is not null then not exists (
                     select 1 from job_row j where j.id = i.job and not exists (
                         select 1 from finished f where f.seq = j.seq))
                 else not exists (
                     select 1 from workflow w where w.id = i.child and w.finished is null) end
         limit ?";
    let read = |row: &Row<'_>| {
        let workflow = WorkflowId(row::uuid(row, 0)?);
        let found = runs(row, 3)?;
        Ok(found.map(|runs| (workflow, runs, row.get(1), row.get(2))))
    };
    let mut found = Vec::new();
    for (workflow, runs, step, item) in all(db, sql, [max], read)?.into_iter().flatten() {
        let (step, item) = (step.map_err(failed)?, item.map_err(failed)?);
        found.push(WorkflowItemRun { workflow, step, item, runs });
    }
    Ok(found)
}

pub(crate) fn counts(db: &Connection) -> Result<WorkflowCounts, StoreError> {
    let sql = "select (select count(*) from workflow where status = 'running'),
                      (select min(at) from workflow_end)";
    let read = |row: &Row<'_>| {
        Ok(WorkflowCounts { running: row.get(0)?, oldest_end: row::time_opt(row, 1)? })
    };
    Ok(all(db, sql, (), read)?.pop().unwrap_or_default())
}
