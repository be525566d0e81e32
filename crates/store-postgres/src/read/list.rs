//! Lists of jobs and dead letters, newest first.

use outlast_core::job::{DeadLetterReason, State};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::query::{DeadLetter, DeadLetterPage, JobPage, JobQuery, Page};
use tokio_postgres::types::ToSql;

use crate::read::Reader;
use crate::read::job::by_seqs;
use crate::row::{self, get, int, text};

/// Counting matches stops here.
const COUNT_MAX: u32 = 10_000;
/// With more claimable jobs than this, walking all jobs from the newest meets a page of
/// them soon; with fewer, it could walk past a million that have ended.
const READY_FEW: i64 = 20_000;

/// A query's conditions in SQL, with their values.
struct Conditions {
    from: &'static str,
    wheres: Vec<String>,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
}

/// The job's state, wherever its moving part is.
const STATE: &str = "coalesce((select f.state from finished f where f.seq = j.seq),
    (select 'active' from active a where a.seq = j.seq),
    (select w.state from waiting w where w.seq = j.seq), 'available')";

impl Conditions {
    async fn of(reader: &Reader, query: &JobQuery) -> Result<Self, StoreError> {
        let mut all = Self {
            from: "job_row j join class c on c.id = j.class",
            wheres: Vec::new(),
            values: Vec::new(),
        };
        all.states(reader, &query.states).await?;
        if let Some(queue) = &query.queue {
            all.add("c.queue =", text(queue));
        }
        if let Some(job_type) = &query.job_type {
            all.add("c.job_type =", text(job_type));
        }
        if let Some(tenant) = &query.tenant {
            all.add("c.tenant =", text(tenant));
        }
        if let Some((from, to)) = query.ids {
            all.values.push(Box::new(from.0));
            all.values.push(Box::new(to.0));
            let last = all.values.len();
            all.wheres.push(format!(
                "j.seq = any (array(select i.seq from job_row i where i.id between ${} and ${last}
                     limit {COUNT_MAX}))",
                last - 1
            ));
        }
        if let Some(from) = query.created_from {
            all.add("j.created >=", from.0);
        }
        if let Some(before) = query.created_before {
            all.add("j.created <", before.0);
        }
        if let Some(worker) = query.worker {
            all.add(
                "case when exists (select 1 from active a where a.seq = j.seq)
                    then (select a.worker from active a where a.seq = j.seq)
                    else (select t.worker from attempt_row t where t.seq = j.seq
                        order by t.epoch desc limit 1) end =",
                worker.0,
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
        Ok(all)
    }

    /// Drives the query from the tables that hold just the wanted states, where they are
    /// the smaller ones.
    async fn states(&mut self, reader: &Reader, states: &[State]) -> Result<(), StoreError> {
        if states.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = states.iter().map(|state| format!("'{state}'")).collect();
        let names = names.join(", ");
        let resting =
            |state: &State| matches!(state, State::Scheduled | State::Pending | State::Retryable);
        if states.iter().all(|state| state.is_terminal()) {
            self.from = "finished f join job_row j on j.seq = f.seq join class c on c.id = j.class";
            self.wheres.push(format!("f.state in ({names})"));
        } else if states == [State::Active] {
            self.from = "active x join job_row j on j.seq = x.seq join class c on c.id = j.class";
            self.wheres.push("not x.cancelled".into());
        } else if states.iter().all(resting) {
            self.from = "waiting w join job_row j on j.seq = w.seq join class c on c.id = j.class";
            self.wheres.push(format!("w.state in ({names})"));
        } else if !states.iter().any(|state| state.is_terminal()) && few_ready(reader).await? {
            self.wheres.push(among_live(states, &names));
        } else {
            self.wheres.push(format!("{STATE} in ({names})"));
        }
        Ok(())
    }

    /// Adds a condition that ends where its value comes.
    fn add(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'static) {
        self.values.push(Box::new(value));
        self.wheres.push(format!("{condition} ${}", self.values.len()));
    }

    fn flag(&mut self, wanted: Option<bool>, condition: &str) {
        match wanted {
            Some(true) => self.wheres.push(condition.to_owned()),
            Some(false) => self.wheres.push(format!("not {condition}")),
            None => {}
        }
    }

    fn sql(&self, select: &str, more: &str) -> String {
        let all: Vec<&str> = self.wheres.iter().map(String::as_str).collect();
        let wheres = if all.is_empty() { "true".to_owned() } else { all.join(" and ") };
        format!("select {select} from {} where {wheres} {more}", self.from)
    }

    /// Returns the first column of what a query of these conditions gives.
    async fn column(
        &self,
        reader: &Reader,
        sql: &str,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<i64>, StoreError> {
        let mut values: Vec<&(dyn ToSql + Sync)> =
            self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        values.extend(more);
        reader.all(sql, &values).await?.iter().map(|row| get(row, 0)).collect()
    }
}

/// Returns whether collecting the claimable jobs is cheaper than looking for them among all.
async fn few_ready(reader: &Reader) -> Result<bool, StoreError> {
    let sql = "select count(*) from (select 1 from ready limit $1) r";
    let row = reader.one(sql, &[&(READY_FEW + 1)]).await?;
    row.map_or(Ok(true), |row| Ok(get::<i64>(&row, 0)? <= READY_FEW))
}

/// Returns the condition that a job is in one of the live states, whose names are given.
fn among_live(states: &[State], names: &str) -> String {
    let mut seqs = vec![format!("select seq from waiting where state in ({names})")];
    if states.contains(&State::Available) {
        seqs.push("select seq from ready".into());
    }
    if states.contains(&State::Active) {
        seqs.push("select seq from active where not cancelled".into());
    }
    format!("j.seq in ({})", seqs.join(" union all "))
}

pub(crate) async fn jobs(reader: &Reader, query: &JobQuery) -> Result<JobPage, StoreError> {
    let conditions = Conditions::of(reader, query).await?;
    let before = cursor(&query.page)?;
    let n = conditions.values.len();
    let order = format!("and j.seq < ${} order by j.seq desc limit ${}::bigint", n + 1, n + 2);
    let sql = conditions.sql("j.seq", &order);
    let limit = i64::from(query.page.limit) + 1;
    let mut seqs = conditions.column(reader, &sql, &[&before, &limit]).await?;
    let more = seqs.len() > usize::try_from(query.page.limit).unwrap_or(usize::MAX);
    if more {
        seqs.pop();
    }
    let next = seqs.last().filter(|_| more).map(ToString::to_string);
    let count = conditions.sql("1", &format!("limit {COUNT_MAX}"));
    let count = format!("select count(*) from ({count}) x");
    let total = conditions.column(reader, &count, &[]).await?.first().copied().unwrap_or(0);
    let mut found = by_seqs(reader, &seqs).await?;
    // One that was pruned meanwhile is not there any more.
    let jobs = seqs.iter().filter_map(|seq| found.remove(seq)).collect();
    Ok(JobPage { jobs, next, total: u64::try_from(total).unwrap_or(0) })
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
        .filter_map(|(seq, reason, at)| Some(DeadLetter { job: jobs.remove(&seq)?, reason, at }))
        .collect();
    let total = reader.one("select count(*) from dead_letter_row", &[]).await?;
    let total = total.map_or(Ok(0), |row| row::count(&row, 0))?;
    Ok(DeadLetterPage { letters, next, total })
}

fn cursor(page: &Page) -> Result<i64, StoreError> {
    page.cursor.as_ref().map_or(Ok(i64::MAX), |text| {
        text.parse()
            .map_err(|_not_a_number| StoreError::Rejected(format!("`{text}` is not a cursor")))
    })
}
