//! Workflows.

use outlast_core::id::JobId;
use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_store::workflow::{
    DueWorkflows, ENDS_BYTES_MAX, ENDS_MAX, ItemEnd, ItemHappened, ItemQuery, ItemRecord,
    ItemState, NewWorkflow, Runs, StepRecord, UntakenEnd, WhichItems, WorkflowCounts,
    WorkflowItemRun, WorkflowLook, WorkflowQuery, WorkflowRecord, WorkflowState,
};
use outlast_store::{StoreError, workflow_columns};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::read::Reader;
use crate::row::{count, get, time, time_opt};

/// Reads a workflow from [`workflow_columns`] and its definition.
pub(crate) fn record_of(row: &Row) -> Result<WorkflowRecord, StoreError> {
    let parent = match get::<Option<Uuid>>(row, 7)? {
        None => None,
        Some(id) => Some(WorkflowItem {
            workflow: WorkflowId(id),
            step: place(row, 8)?,
            item: place(row, 9)?,
            keeps_result: get(row, 10)?,
        }),
    };
    Ok(WorkflowRecord {
        id: WorkflowId(get(row, 0)?),
        revision: count(row, 1)?,
        new: NewWorkflow {
            name: get(row, 5)?,
            tenant: get(row, 6)?,
            definition: get(row, 14)?,
            parent,
        },
        state: WorkflowState {
            status: get(row, 2)?,
            due: time_opt(row, 3)?,
            finished: time_opt(row, 4)?,
            progress: get(row, 13)?,
        },
        created: time(row, 11)?,
        updated: time(row, 12)?,
    })
}

/// Reads the number of a step or an item.
fn place(row: &Row, at: usize) -> Result<u32, StoreError> {
    Ok(u32::try_from(get::<i64>(row, at)?).unwrap_or(u32::MAX))
}

pub(crate) async fn page(
    reader: &Reader,
    query: &WorkflowQuery,
) -> Result<Vec<WorkflowRecord>, StoreError> {
    let sql = concat!(
        "select ",
        workflow_columns!(),
        ", '' from workflow
         where ($1::text is null or status = $1) and ($2::text is null or name = $2)
             and ($3::text is null or tenant = $3)
             and ($4::bigint is null or (created, id) < ($4, $5::uuid))
         order by created desc, id desc limit $6"
    );
    let (at, id) = query.after.map_or((None, None), |(at, id)| (Some(at.0), Some(id.0)));
    let limit = i64::from(query.limit);
    let rows =
        reader.all(sql, &[&query.status, &query.name, &query.tenant, &at, &id, &limit]).await?;
    rows.iter().map(record_of).collect()
}

async fn record(
    reader: &Reader,
    id: WorkflowId,
    with_definition: bool,
) -> Result<Option<WorkflowRecord>, StoreError> {
    let sql = concat!(
        "select ",
        workflow_columns!(),
        ", case when $2 then definition else '' end from workflow where id = $1"
    );
    let rows = reader.all(sql, &[&id.0, &with_definition]).await?;
    rows.first().map(record_of).transpose()
}

pub(crate) async fn one(
    reader: &Reader,
    id: WorkflowId,
) -> Result<Option<WorkflowRecord>, StoreError> {
    record(reader, id, false).await
}

pub(crate) async fn unnoted(reader: &Reader, max: u32) -> Result<Vec<WorkflowItemRun>, StoreError> {
    let sql = "select i.workflow, i.step, i.item, i.job, i.child from workflow_item i
         where i.state = 'running'
             and not exists (select 1 from workflow_end e where e.workflow = i.workflow
                 and e.step = i.step and e.item = i.item)
             and case when i.job is not null then not exists (
                     select 1 from job_row j where j.id = i.job and not exists (
                         select 1 from finished f where f.seq = j.seq))
                 else not exists (
                     select 1 from workflow w where w.id = i.child and w.finished is null) end
         limit $1";
    let rows = reader.all(sql, &[&i64::from(max)]).await?;
    let read = |row: &Row| {
        let (workflow, step, item) = (WorkflowId(get(row, 0)?), place(row, 1)?, place(row, 2)?);
        Ok(runs(row, 3)?.map(|runs| WorkflowItemRun { workflow, step, item, runs }))
    };
    rows.iter().filter_map(|row| read(row).transpose()).collect()
}

pub(crate) async fn look(
    reader: &Reader,
    id: WorkflowId,
    with_definition: bool,
) -> Result<WorkflowLook, StoreError> {
    let of_steps = "select step, state from workflow_step where workflow = $1 order by step";
    // What does not fit is left out by the database: it is not sent.
    let of_ends = "select * from (
             select e.number, e.step, e.item, e.keeps, e.job, e.child, e.what, e.error, e.result,
                 i.state, i.job, i.child,
                 sum(coalesce(octet_length(e.result), 0)) over (order by e.number) as size,
                 row_number() over (order by e.number) as n
             from workflow_end e
             left join workflow_item i
                 on i.workflow = e.workflow and i.step = e.step and i.item = e.item
             where e.workflow = $1 order by e.number limit $2) k
         where size <= $3 or n = 1 order by number";
    let bytes = i64::try_from(ENDS_BYTES_MAX).unwrap_or(i64::MAX);
    let most = i64::from(ENDS_MAX) + 1;
    let which: [&(dyn ToSql + Sync); 1] = [&id.0];
    let which_ends: [&(dyn ToSql + Sync); 3] = [&id.0, &most, &bytes];
    // They are sent together and answered one after the other: the workflow is read first.
    let (record, steps, rows) = tokio::try_join!(
        record(reader, id, with_definition),
        reader.all(of_steps, &which),
        reader.all(of_ends, &which_ends),
    )?;
    let read = |row| Ok(StepRecord { step: place(row, 0)?, state: get(row, 1)? });
    let steps = steps.iter().map(read).collect::<Result<_, StoreError>>()?;
    let mut ends: Vec<UntakenEnd> =
        rows.iter().map(|row| end_of(id, row)).collect::<Result<_, _>>()?;
    let max = usize::try_from(ENDS_MAX).unwrap_or(usize::MAX);
    let long = rows.last().map(|row| get::<i64>(row, 12)).transpose()?.unwrap_or(0);
    // After long results there may be more; a look for nothing costs little.
    let more = ends.len() > max || long > bytes / 2;
    ends.truncate(max);
    Ok(WorkflowLook { record, steps, ends, more })
}

fn end_of(workflow: WorkflowId, row: &Row) -> Result<UntakenEnd, StoreError> {
    let damaged = || StoreError::Corrupt(format!("an end of workflow {workflow} cannot be read"));
    let of = WorkflowItem {
        workflow,
        step: place(row, 1)?,
        item: place(row, 2)?,
        keeps_result: get(row, 3)?,
    };
    let end = ItemEnd {
        of,
        runs: runs(row, 4)?.ok_or_else(damaged)?,
        what: ItemHappened::parse(get(row, 6)?).ok_or_else(damaged)?,
        error: get(row, 7)?,
        result: get(row, 8)?,
    };
    let item = match get::<Option<&str>>(row, 9)? {
        None => None,
        Some(word) => Some((ItemState::parse(word).ok_or_else(damaged)?, runs(row, 10)?)),
    };
    Ok(UntakenEnd { number: get(row, 0)?, end, item })
}

/// Reads what carries out an item, from two columns.
fn runs(row: &Row, at: usize) -> Result<Option<Runs>, StoreError> {
    let job = get::<Option<Uuid>>(row, at)?.map(|id| Runs::Job(JobId(id)));
    let child = get::<Option<Uuid>>(row, at + 1)?.map(|id| Runs::Workflow(WorkflowId(id)));
    Ok(job.or(child))
}

/// Returns a statement that reads items; those that do not fit are not sent.
macro_rules! items {
    ($place:literal, $which:literal) => {
        concat!(
            "select step, item, state, job, child, case when $1 then input end,
                 case when $1 then result end
             from (select *, coalesce(octet_length(input), 0)
                           + coalesce(octet_length(result), 0) as own,
                       sum(coalesce(octet_length(input), 0) + coalesce(octet_length(result), 0))
                           over (order by step, item) as size
                   from (select * from workflow_item where workflow = $2 and ",
            $place,
            " and ",
            $which,
            " order by step, item limit $5) page) k
             where not $1 or size <= $6 or size = own order by step, item"
        )
    };
}

/// Returns the statement for items of one step, and that for items of all.
macro_rules! items_of {
    ($query:expr, $which:literal) => {
        match $query.step {
            Some(_) => items!("step = $3 and item > $4", $which),
            None => items!("(step, item) > ($3, $4)", $which),
        }
    };
}

pub(crate) async fn items(
    reader: &Reader,
    query: &ItemQuery,
) -> Result<Vec<ItemRecord>, StoreError> {
    let sql = match query.which {
        WhichItems::All => items_of!(query, "true"),
        WhichItems::Held => items_of!(query, "state = 'held'"),
        WhichItems::Running => items_of!(query, "state = 'running'"),
        WhichItems::Completed => items_of!(query, "state = 'completed'"),
        WhichItems::Unsuccessful => {
            items_of!(query, "state not in ('held', 'running', 'completed')")
        }
    };
    let (step, item) = query.begins_after();
    let limit = i64::from(query.limit);
    let most = i64::try_from(query.bytes).unwrap_or(i64::MAX);
    let values: [&(dyn ToSql + Sync); 6] =
        [&query.with_values, &query.workflow.0, &step, &item, &limit, &most];
    let rows = reader.all(sql, &values).await?;
    let read = |row: &Row| {
        let word: &str = get(row, 2)?;
        let damaged =
            || StoreError::Corrupt(format!("an item of workflow {} is {word}", query.workflow));
        Ok(ItemRecord {
            step: place(row, 0)?,
            item: place(row, 1)?,
            state: ItemState::parse(word).ok_or_else(damaged)?,
            runs: runs(row, 3)?,
            input: get(row, 5)?,
            result: get(row, 6)?,
        })
    };
    rows.iter().map(read).collect()
}

pub(crate) async fn due(
    reader: &Reader,
    DueWorkflows { until, ends_from, max }: DueWorkflows,
) -> Result<Vec<WorkflowId>, StoreError> {
    let sql = "(select id from workflow where due is not null and due <= $2 order by due limit $3)
         union
         (select distinct workflow from workflow_end where at between $1 and $2 limit $3)";
    let rows = reader.all(sql, &[&ends_from.0, &until.0, &i64::from(max)]).await?;
    let mut found: Vec<WorkflowId> =
        rows.iter().map(|row| get(row, 0).map(WorkflowId)).collect::<Result<_, _>>()?;
    found.sort_unstable();
    found.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    Ok(found)
}

pub(crate) async fn counts(reader: &Reader) -> Result<WorkflowCounts, StoreError> {
    let sql = "select (select count(*) from workflow where status = 'running'),
                      (select min(at) from workflow_end)";
    let rows = reader.all(sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(WorkflowCounts::default()) };
    Ok(WorkflowCounts { running: count(row, 0)?, oldest_end: time_opt(row, 1)? })
}
