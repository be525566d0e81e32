//! Workflows.

use outlast_core::id::JobId;
use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_store::workflow::{
    DueWorkflows, ENDS_BYTES_MAX, ENDS_MAX, ItemEnd, ItemHappened, ItemQuery, ItemRecord,
    ItemState, NewWorkflow, Runs, StepRecord, UntakenEnd, WhichItems, WorkflowCounts, WorkflowLook,
    WorkflowQuery, WorkflowRecord, WorkflowState,
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

pub(crate) async fn look(
    reader: &Reader,
    id: WorkflowId,
    with_definition: bool,
) -> Result<WorkflowLook, StoreError> {
    let sql = concat!(
        "select ",
        workflow_columns!(),
        ", case when $2 then definition else '' end from workflow where id = $1"
    );
    let rows = reader.all(sql, &[&id.0, &with_definition]).await?;
    let record = rows.first().map(record_of).transpose()?;
    let sql = "select step, state from workflow_step where workflow = $1 order by step";
    let rows = reader.all(sql, &[&id.0]).await?;
    let read = |row| Ok(StepRecord { step: place(row, 0)?, state: get(row, 1)? });
    let steps = rows.iter().map(read).collect::<Result<_, StoreError>>()?;
    // What does not fit is left out by the database: it is not sent.
    let sql = "select * from (
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
    let rows = reader.all(sql, &[&id.0, &(i64::from(ENDS_MAX) + 1), &bytes]).await?;
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

pub(crate) async fn items(
    reader: &Reader,
    query: &ItemQuery,
) -> Result<Vec<ItemRecord>, StoreError> {
    let sql = "select step, item, state, job, child, case when $1 then input end,
             case when $1 then result end
         from (select *, sum(coalesce(octet_length(input), 0) + coalesce(octet_length(result), 0))
                   over (order by step, item) as size,
                   coalesce(octet_length(input), 0) + coalesce(octet_length(result), 0) as own
               from (select * from workflow_item
                     where workflow = $2 and (step, item) > ($6, $7)
                         and ($3::bigint is null or step = $3)
                         and case $4 when 'all' then true
                                     when 'held' then state = 'held'
                                     when 'running' then state = 'running'
                                     when 'completed' then state = 'completed'
                                     else state not in ('held', 'running', 'completed') end
                     order by step, item limit $5) page) k
         where not $1 or size <= $8 or size = own order by step, item";
    let which = match query.which {
        WhichItems::All => "all",
        WhichItems::Held => "held",
        WhichItems::Running => "running",
        WhichItems::Completed => "completed",
        WhichItems::Unsuccessful => "unsuccessful",
    };
    let step = query.step.map(i64::from);
    let limit = i64::from(query.limit);
    let after = query.after.map_or((-1, 0), |(step, item)| (i64::from(step), i64::from(item)));
    let bytes = i64::try_from(query.bytes).unwrap_or(i64::MAX);
    let values: [&(dyn ToSql + Sync); 8] =
        [&query.with_values, &query.workflow.0, &step, &which, &limit, &after.0, &after.1, &bytes];
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
