//! Lists of jobs and dead letters, newest first. How they are found is planned in
//! [`outlast_store::list`].

use outlast_core::job::{DeadLetterReason, State};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::list::{
    self, BLOCK_BITS, BLOCK_STEPS, CLASSES_MAX, Found, Plan, STEPS, Source, Total, Way,
};
use outlast_store::query::{DeadLetter, DeadLetterPage, JobPage, JobQuery, Page};
use tokio_postgres::types::ToSql;

use crate::read::Reader;
use crate::read::job::by_seqs;
use crate::read::queue;
use crate::row::{self, get, int};

type Param<'a> = &'a (dyn ToSql + Sync);

/// What jobs of a list must be, in SQL. The values are the classes, the worker, a range of
/// numbers, how many, a range of ids, a range of times and numbers to be among: each statement
/// names them all.
#[derive(Clone, Debug, Default)]
struct Conditions {
    wheres: Vec<String>,
    among: Option<Vec<i64>>,
}

/// Every value is named somewhere, or its sort would not be known.
const NAMED: &str = "($1::bigint[] is null or true) and ($2::uuid is null or true)
    and ($6::uuid is null or true) and ($7::uuid is null or true)
    and ($8::bigint is null or true) and ($9::bigint is null or true)
    and ($10::bigint[] is null or true)";

/// The job's state, wherever its moving part is.
const STATE: &str = "coalesce((select f.state from finished f where f.seq = j.seq),
    (select 'active' from active a where a.seq = j.seq),
    (select w.state from waiting w where w.seq = j.seq), 'available')";

/// The job's id is in a range; found by the ids, not by the numbers.
const IN_RANGE: &str =
    "j.seq = any(array(select i.seq from job_row i where i.id between $6::uuid and $7::uuid))";

impl Conditions {
    /// Those that do not depend on the table that is walked.
    fn of(query: &JobQuery, plan: &Plan) -> Self {
        let mut all = Self::default();
        if plan.classes.is_some() {
            all.wheres.push("j.class = any($1::bigint[])".into());
        }
        if query.ids.is_some() {
            all.wheres.push("j.id between $6::uuid and $7::uuid".into());
        }
        if query.created_from.is_some() {
            all.wheres.push("j.created >= $8::bigint".into());
        }
        if query.created_before.is_some() {
            all.wheres.push("j.created < $9::bigint".into());
        }
        if query.worker.is_some() {
            all.wheres.push(
                "case when exists (select 1 from active a where a.seq = j.seq)
                    then (select a.worker from active a where a.seq = j.seq)
                    else (select t.worker from attempt_row t where t.seq = j.seq
                        order by t.epoch desc limit 1) end = $2::uuid"
                    .into(),
            );
        }
        all.flag(
            query.abandoned,
            "exists (select 1 from dead_letter_row d
                where d.seq = j.seq and d.reason <> 'exhausted')",
        );
        all.flag(
            query.timed_out,
            "coalesce((select t.outcome = 'timeout' from attempt_row t where t.seq = j.seq
                order by t.epoch desc limit 1), false)",
        );
        all.flag(
            query.started,
            "exists (select 1 from active a where a.seq = j.seq and a.started is not null
                and not a.cancelled)",
        );
        all
    }

    fn and(mut self, condition: String) -> Self {
        self.wheres.push(condition);
        self
    }

    fn flag(&mut self, wanted: Option<bool>, condition: &str) {
        match wanted {
            Some(true) => self.wheres.push(condition.to_owned()),
            Some(false) => self.wheres.push(format!("not {condition}")),
            None => {}
        }
    }
}

fn names(states: &[State], among: &[State]) -> String {
    let both = states.iter().filter(|state| among.contains(state));
    both.map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ")
}

fn long(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// One list under way.
struct Walk<'a> {
    reader: &'a Reader,
    query: &'a JobQuery,
    plan: &'a Plan,
    before: i64,
    /// How many are wanted.
    limit: usize,
}

impl Walk<'_> {
    async fn find(&self) -> Result<Vec<Found>, StoreError> {
        let conditions = Conditions::of(self.query, self.plan);
        Ok(match &self.plan.way {
            Way::Nothing => Vec::new(),
            Way::Blocks => vec![self.in_blocks(&self.by_state(conditions)).await?],
            Way::Sources(sources) => {
                let mut found = Vec::with_capacity(sources.len());
                for (source, at_once) in sources {
                    found.push(match source {
                        Source::Ready => self.among_ready(&conditions).await?,
                        other => self.in_source(*other, *at_once, &conditions).await?,
                    });
                }
                found
            }
        })
    }

    /// Returns the numbers of the jobs from `low` to below `high` that match, newest first.
    async fn between(
        &self,
        conditions: &Conditions,
        from: &str,
        (low, high): (i64, i64),
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let among = conditions.among.as_deref();
        // The walked table's own number: it is read in this order, backwards.
        let seq = from.split_whitespace().nth(1).unwrap_or("j");
        let mut wheres = conditions.wheres.clone();
        wheres.push(format!("{seq}.seq >= $3 and {seq}.seq < $4"));
        wheres.push(NAMED.into());
        let wheres = wheres.join(" and ");
        let sql = format!(
            "select {seq}.seq from {from} where {wheres} order by {seq}.seq desc limit $5::bigint"
        );
        let worker = self.query.worker.map(|worker| worker.0);
        let limit = long(limit);
        let (first, last) = self.query.ids.map_or((None, None), |(a, b)| (Some(a.0), Some(b.0)));
        let from = self.query.created_from.map(|at| at.0);
        let before = self.query.created_before.map(|at| at.0);
        let classes = self.classes();
        let values: [Param<'_>; 10] =
            [&classes, &worker, &low, &high, &limit, &first, &last, &from, &before, &among];
        self.column(&sql, &values).await
    }

    fn classes(&self) -> Vec<i64> {
        self.plan.classes.iter().flatten().map(|class| class.0).collect()
    }

    fn by_state(&self, conditions: Conditions) -> Conditions {
        if self.query.states.is_empty() {
            return conditions;
        }
        conditions.and(format!("{STATE} in ({})", names(&self.query.states, &State::ALL)))
    }

    /// Walks the blocks in which the classes have jobs.
    async fn in_blocks(&self, conditions: &Conditions) -> Result<Found, StoreError> {
        let classes = self.classes();
        let mut found = Found::default();
        let mut high = self.before;
        // Looking for blocks of thousands of classes takes longer than looking into them.
        let all = [BLOCK_STEPS.iter().sum()];
        let steps = if classes.len() > CLASSES_MAX { &all[..] } else { &BLOCK_STEPS[..] };
        for step in steps {
            // The first so many of each class hold the first so many of all. Any number of
            // connections may have noted a block: it goes from one to the next lower one.
            let sql = "select distinct s.block
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
            let top = high.saturating_sub(1) >> BLOCK_BITS;
            let wanted = i64::from(*step);
            let values: [Param<'_>; 3] = [&classes, &top, &wanted];
            let blocks = self.column(sql, &values).await?;
            for block in &blocks {
                let low = block << BLOCK_BITS;
                let end = (low + (1 << BLOCK_BITS)).min(self.before);
                let wanted = self.limit - found.seqs.len();
                let more = self.between(conditions, "job_row j", (low, end), wanted).await?;
                found.seqs.extend(more);
                high = low;
                if found.seqs.len() >= self.limit {
                    return Ok(Found { down_to: Some(low), ..found });
                }
            }
            if long(blocks.len()) < wanted {
                return Ok(Found { down_to: None, ..found });
            }
        }
        Ok(Found { down_to: Some(high), ..found })
    }

    /// Walks a table, more rows at each step.
    async fn in_source(
        &self,
        source: Source,
        at_once: bool,
        conditions: &Conditions,
    ) -> Result<Found, StoreError> {
        let states = &self.query.states;
        let resting = [State::Scheduled, State::Pending, State::Retryable];
        let (from, more, table) = match source {
            Source::Ready | Source::Waiting => (
                "waiting w join job_row j on j.seq = w.seq",
                format!("w.state in ({})", names(states, &resting)),
                "waiting where true",
            ),
            Source::Active => (
                "active x join job_row j on j.seq = x.seq",
                "not x.cancelled".into(),
                "active where true",
            ),
            Source::Ended => (
                "finished f join job_row j on j.seq = f.seq",
                format!("f.state in ({})", names(states, &State::ALL)),
                "finished where true",
            ),
            Source::Failed => (
                "finished f join job_row j on j.seq = f.seq",
                format!("f.state <> 'completed' and f.state in ({})", names(states, &State::ALL)),
                "finished where state <> 'completed'",
            ),
            Source::Held => (
                "active x join job_row j on j.seq = x.seq",
                "x.worker = $2::uuid".into(),
                "active where true",
            ),
            Source::Attempts => (
                "attempt_row t join job_row j on j.seq = t.seq",
                "t.worker = $2::uuid".into(),
                "attempt_row where true",
            ),
            Source::Jobs => ("job_row j", "true".into(), "job_row where true"),
            Source::Ids => ("job_row j", IN_RANGE.into(), "job_row where true"),
        };
        let mut conditions = conditions.clone().and(more);
        if matches!(source, Source::Held | Source::Attempts | Source::Ids) {
            conditions = self.by_state(conditions);
        }
        let mut found = Found::default();
        let mut high = self.before;
        let steps = if at_once { &[u32::MAX][..] } else { &STEPS[..] };
        for step in steps {
            let low = if at_once { None } else { self.lower(table, high, *step).await? };
            let wanted = self.limit - found.seqs.len();
            let range = (low.unwrap_or(i64::MIN), high);
            found.seqs.extend(self.between(&conditions, from, range, wanted).await?);
            let Some(low) = low else { return Ok(Found { down_to: None, ..found }) };
            high = low;
            if found.seqs.len() >= self.limit {
                break;
            }
        }
        Ok(Found { down_to: Some(high), ..found })
    }

    /// Returns the number that is `step` rows further down a table, if it has so many.
    async fn lower(&self, table: &str, high: i64, step: u32) -> Result<Option<i64>, StoreError> {
        let sql = format!(
            "select seq from {table} and seq < $1 order by seq desc limit 1 offset $2::bigint"
        );
        let found = self.column(&sql, &[&high, &i64::from(step)]).await?;
        Ok(found.first().copied())
    }

    /// The newest of each class and priority are each at the end of a line; only lines whose
    /// last is among the newest can have more of them.
    async fn among_ready(&self, conditions: &Conditions) -> Result<Found, StoreError> {
        let ready: Vec<i64> = self.plan.ready.iter().map(|class| class.0).collect();
        // What else is wanted may leave out some of them.
        let all = conditions.wheres.is_empty();
        let wanted = if all { self.limit } else { self.limit.max(2_000) };
        let limit = long(wanted);
        let seqs = self.column(NEWEST, &[&ready, &self.before, &limit]).await?;
        let down_to = if seqs.len() < wanted { None } else { seqs.last().copied() };
        if all {
            return Ok(Found { seqs, down_to });
        }
        let lowest = seqs.last().copied().unwrap_or(self.before);
        let mut conditions = conditions.clone().and("j.seq = any($10::bigint[])".into());
        conditions.among = Some(seqs);
        let range = (lowest, self.before);
        let mut seqs = self.between(&conditions, "job_row j", range, self.limit + 1).await?;
        let down_to = if seqs.len() > self.limit { seqs.pop().map(|seq| seq + 1) } else { down_to };
        Ok(Found { seqs, down_to })
    }

    async fn column(&self, sql: &str, values: &[Param<'_>]) -> Result<Vec<i64>, StoreError> {
        self.reader.all(sql, values).await?.iter().map(|row| get(row, 0)).collect()
    }
}

/// The newest claimable jobs of some classes: the lines (class and priority) whose last are
/// the newest, then the last of each of these.
const NEWEST: &str = "
    with lines as materialized (
        select c.class, k.rank, n.seq
        from unnest($1::bigint[]) c(class)
        cross join lateral (
            with recursive ranks(rank) as (
                (select r.rank from ready r where r.class = c.class
                 order by r.class, r.rank limit 1)
                union all
                select (select r.rank from ready r where r.class = c.class and r.rank > k.rank
                        order by r.class, r.rank limit 1)
                from ranks k where k.rank is not null)
            select k.rank from ranks k where k.rank is not null) k
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
    order by s.seq desc limit $3";

pub(crate) async fn jobs(reader: &Reader, query: &JobQuery) -> Result<JobPage, StoreError> {
    let plan = Plan::of(query, &queue::tally(reader).await?, within(reader, query).await?);
    let limit = usize::try_from(query.page.limit).unwrap_or(usize::MAX).saturating_add(1);
    let walk = |before, limit| Walk { reader, query, plan: &plan, before, limit };
    let found = walk(cursor(&query.page)?, limit).find().await?;
    let (seqs, next) = list::page(found, query.page.limit);
    let total = match plan.total() {
        Total::Known(total) => Some(total),
        Total::ToCount(most) => list::counted(walk(i64::MAX, most).find().await?),
        Total::Unknown => None,
    };
    let mut found = by_seqs(reader, &seqs).await?;
    // One that was pruned meanwhile is not there any more.
    let jobs = seqs.iter().filter_map(|seq| found.remove(seq)).collect();
    Ok(JobPage { jobs, next: next.map(|seq| seq.to_string()), total })
}

/// Returns how many jobs there are in the range of ids that is asked for, as far as it matters.
async fn within(reader: &Reader, query: &JobQuery) -> Result<u64, StoreError> {
    let Some((from, to)) = query.ids else { return Ok(0) };
    let sql = "select count(*) from
        (select 1 from job_row where id between $1 and $2 limit $3::bigint) x";
    let most = i64::try_from(list::IDS_MAX).unwrap_or(i64::MAX).saturating_add(1);
    let found = reader.one(sql, &[&from.0, &to.0, &most]).await?;
    found.map_or(Ok(0), |row| row::count(&row, 0))
}

pub(crate) async fn dead_letters(
    reader: &Reader,
    page: &Page,
) -> Result<DeadLetterPage, StoreError> {
    let limit = u64::from(page.limit);
    let rows = reader
        .all(
            "select seq, reason, at from dead_letter_row where seq < $1
             order by seq desc limit $2",
            &[&cursor(page)?, &int(limit + 1)],
        )
        .await?;
    let mut found: Vec<(i64, DeadLetterReason, Timestamp)> = Vec::with_capacity(rows.len());
    for row in &rows {
        found.push((
            get(row, 0)?,
            row::parsed(row, 1, DeadLetterReason::parse)?,
            row::time(row, 2)?,
        ));
    }
    let more = found.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    if more {
        found.pop();
    }
    let next = found.last().filter(|_| more).map(|(seq, ..)| seq.to_string());
    let seqs: Vec<i64> = found.iter().map(|(seq, ..)| *seq).collect();
    let mut jobs = by_seqs(reader, &seqs).await?;
    let letters = found
        .into_iter()
        .filter_map(|(seq, reason, at)| {
            Some(DeadLetter { job: jobs.remove(&seq)?, reason, at, cursor: seq.to_string() })
        })
        .collect();
    let total = reader
        .one("select coalesce(sum(exhausted + abandoned), 0)::bigint from tally", &[])
        .await?;
    let total = total.map_or(Ok(0), |row| row::count(&row, 0))?;
    Ok(DeadLetterPage { letters, next, total })
}

fn cursor(page: &Page) -> Result<i64, StoreError> {
    page.cursor.as_ref().map_or(Ok(i64::MAX), |text| {
        text.parse()
            .map_err(|_not_a_number| StoreError::Rejected(format!("`{text}` is not a cursor")))
    })
}
