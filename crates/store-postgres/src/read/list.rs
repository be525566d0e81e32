//! Lists of jobs and dead letters, newest first. [`outlast_store_rules::list`] plans and walks them.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::query::{DeadLetterPage, JobPage, JobQuery};
use outlast_store::record::JobRecord;
use outlast_store_rules::list::{self, Dialect, Look, Tallied, Values};
use tokio_postgres::types::ToSql;

use crate::read::Reader;
use crate::read::job::listed;
use crate::read::queue::{self, ranks};
use crate::row::{self, get};

/// Jobs in a block.
const BLOCK: i64 = 1 << list::BLOCK_BITS;

type Param<'a> = &'a (dyn ToSql + Sync);

impl Look for Reader {
    const DIALECT: Dialect = Dialect {
        of_classes: "= any($1::bigint[])",
        among: "= any($10::bigint[])",
        worker: "$2::uuid",
        ids: ("$6::uuid", "$7::uuid"),
        found_by_id: "j.seq = any(array(
            select i.seq from job_row i where i.id between $6::uuid and $7::uuid))",
        created: ("$8::bigint", "$9::bigint"),
        lettered: ("$14::bigint", "$15::bigint"),
        with_keys: "not exists (select 1 from unnest($11::text[]) k
            where position(k in coalesce(j.keys, '')) = 0)",
        beside: "position($16::text in coalesce(j.extra, '')) > 0",
        with_error: |error| {
            format!(
                "(select e.v <> '' and position($12::text in lower(e.v)) > 0
            from (select {error} as v) e)"
            )
        },
        with_suffix: "right(replace(j.id::text, '-', ''), length($13::text)) = $13::text",
        range: ("$3", "$4", "$5::bigint"),
        with_job: |name| {
            format!(
                "join lateral (select r.seq, r.id, r.class, r.created, r.keys, r.extra from job_row r
                     where r.seq = {name}.seq offset 0) j on j.seq = {name}.seq"
            )
        },
        failed: "finished f",
        failed_alone: "finished",
        in_blocks: Some(|one| {
            format!(
                "select s.seq
                 from (select greatest(u.low, $3) as low, least(u.low + {BLOCK}, $4) as high
                     from unnest($10::bigint[]) u(low)) b
                 cross join lateral ({one}) s
                 order by s.seq desc limit $5::bigint"
            )
        }),
        // A value that is named nowhere has no sort.
        names_all: "($1::bigint[] is null or true) and ($2::uuid is null or true)
            and ($6::uuid is null or true) and ($7::uuid is null or true)
            and ($8::bigint is null or true) and ($9::bigint is null or true)
            and ($10::bigint[] is null or true) and ($11::text[] is null or true)
            and ($12::text is null or true) and ($13::text is null or true)
            and ($14::bigint is null or true) and ($15::bigint is null or true)
            and ($16::text is null or true)",
    };

    async fn tallied(&self, query: &JobQuery) -> Result<Tallied, StoreError> {
        let (all, classes) = tokio::try_join!(queue::sums(self), queue::tally_for(self, query))?;
        Ok(Tallied { all, classes })
    }

    async fn count_ids(&self, from: JobId, to: JobId, most: u64) -> Result<u64, StoreError> {
        let sql = "select count(*) from
            (select 1 from job_row where id between $1 and $2 limit $3::bigint) x";
        let found = self.one(sql, &[&from.0, &to.0, &row::int(most)]).await?;
        found.map_or(Ok(0), |row| row::count(&row, 0))
    }

    async fn numbers(&self, sql: &str, values: &Values) -> Result<Vec<i64>, StoreError> {
        let worker = values.worker.map(|worker| worker.0);
        let (first, last) = values.ids.map_or((None, None), |(a, b)| (Some(a.0), Some(b.0)));
        let from = values.created_from.map(|at| at.0);
        let before = values.created_before.map(|at| at.0);
        let (low, high) = values.range;
        let lettered = [values.lettered_from, values.lettered_before].map(|at| at.map(|at| at.0));
        let [lettered_from, lettered_before] = lettered;
        let values: [Param<'_>; 16] = [
            &values.classes,
            &worker,
            &low,
            &high,
            &values.limit,
            &first,
            &last,
            &from,
            &before,
            &values.among,
            &values.keys,
            &values.error,
            &values.id_suffix,
            &lettered_from,
            &lettered_before,
            &values.beside,
        ];
        column(self, sql, &values).await
    }

    async fn lower(&self, table: &str, high: i64, step: u32) -> Result<Option<i64>, StoreError> {
        let sql = format!(
            "select seq from {table} and seq < $1 order by seq desc limit 1 offset $2::bigint"
        );
        let found = column(self, &sql, &[&high, &i64::from(step)]).await?;
        Ok(found.first().copied())
    }

    async fn blocks(
        &self,
        classes: &[ClassId],
        top: i64,
        count: u32,
    ) -> Result<Vec<i64>, StoreError> {
        column(self, BLOCKS, &[&numbers_of(classes), &top, &i64::from(count)]).await
    }

    async fn newest(
        &self,
        classes: &[ClassId],
        before: i64,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        column(self, NEWEST, &[&numbers_of(classes), &before, &limit]).await
    }
}

/// The first N of each class include the first N of all. Any number of connections may
/// have noted a block: it goes from one to the next lower one.
const BLOCKS: &str = "select distinct s.block
    from unnest($1::bigint[]) c(class)
    cross join lateral (
        with recursive steps(block, n) as (
            (select b.block, 1::bigint from class_block b
             where b.class = c.class and b.block <= $2
             order by b.class desc, b.block desc limit 1)
            union all
            select (select b.block from class_block b
                    where b.class = c.class and b.block < p.block
                    order by b.class desc, b.block desc limit 1), p.n + 1
            from steps p where p.block is not null and p.n < $3::bigint)
        select p.block from steps p where p.block is not null) s
    order by s.block desc limit $3";

/// The newest claimable jobs of some classes: the lines (class and priority) whose last are
/// the newest, then the last of each of these.
const NEWEST: &str = concat!(
    "
    with lines as materialized (
        select c.class, k.rank, n.seq
        from unnest($1::bigint[]) c(class)",
    ranks!(),
    "
        cross join lateral (
            select r.seq from ready r
            where r.class = c.class and r.rank = k.rank and r.seq < $2
            order by r.class desc, r.rank desc, r.seq desc limit 1) n
        order by n.seq desc limit $3)
    select s.seq
    from lines l
    cross join lateral (
        select r.seq from ready r
        where r.class = l.class and r.rank = l.rank and r.seq < $2
        order by r.class desc, r.rank desc, r.seq desc limit $3) s
    order by s.seq desc limit $3"
);

fn numbers_of(classes: &[ClassId]) -> Vec<i64> {
    classes.iter().map(|class| class.0).collect()
}

async fn column(reader: &Reader, sql: &str, values: &[Param<'_>]) -> Result<Vec<i64>, StoreError> {
    reader.all(sql, values).await?.iter().map(|row| get(row, 0)).collect()
}

/// Lists jobs. Jobs of several states are read as of one moment, since each state has a table of its own:
/// one that goes from one table to another while they are read would be in neither.
pub(crate) async fn jobs(reader: &Reader, query: &JobQuery) -> Result<JobPage, StoreError> {
    match query.states.len() {
        0 | 1 => page_of(reader, query).await,
        _ => reader.at_one_moment(page_of(reader, query)).await,
    }
}

async fn page_of(reader: &Reader, query: &JobQuery) -> Result<JobPage, StoreError> {
    let numbers = list::find(reader, query).await?;
    let has_error = |job: &JobRecord| query.has_error(job);
    let mut found = listed(reader, &numbers.seqs, has_error).await?;
    // One that was pruned meanwhile is not there any more.
    list::filled(query, numbers, |seq| Ok(found.remove(&seq)))
}

pub(crate) async fn dead_letters(
    reader: &Reader,
    query: &JobQuery,
) -> Result<DeadLetterPage, StoreError> {
    let numbers = list::find(reader, query).await?;
    let has_error = |job: &JobRecord| query.has_error(job);
    let mut found = listed(reader, &numbers.seqs, has_error).await?;
    list::dead_letters(query, numbers, |seq| Ok(found.remove(&seq)))
}
