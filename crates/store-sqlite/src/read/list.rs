//! Lists of jobs and dead letters, newest first.

use outlast_core::job::{DeadLetterReason, State};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::query::{DeadLetter, DeadLetterPage, JobPage, JobQuery, Page};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::read::job::by_seq;
use crate::row::{self, failed, int};

/// Counting matches stops here.
const COUNT_MAX: u32 = 10_000;
/// With more claimable jobs than this, walking all jobs from the newest meets a page of
/// them soon; with fewer, it could walk past a million that have ended.
const READY_FEW: u32 = 20_000;

/// A query's conditions in SQL, with their values.
struct Conditions {
    from: &'static str,
    wheres: Vec<String>,
    values: Vec<Value>,
}

/// The job's state, wherever its moving part is.
const STATE: &str = "coalesce((select f.state from finished f where f.seq = j.seq),
    (select 'active' from active a where a.seq = j.seq),
    (select w.state from waiting w where w.seq = j.seq), 'available')";

impl Conditions {
    fn of(db: &Connection, query: &JobQuery) -> Result<Self, StoreError> {
        let mut all = Self {
            from: "job_row j join class c on c.id = j.class",
            wheres: Vec::new(),
            values: Vec::new(),
        };
        all.states(db, &query.states)?;
        if let Some(queue) = &query.queue {
            all.add("c.queue = ?", queue.clone());
        }
        if let Some(job_type) = &query.job_type {
            all.add("c.job_type = ?", job_type.clone());
        }
        if let Some(tenant) = &query.tenant {
            all.add("c.tenant = ?", tenant.clone());
        }
        if let Some((from, to)) = query.ids {
            all.wheres
                .push("j.seq in (select i.seq from job_row i where i.id between ? and ?)".into());
            all.values.extend([from, to].map(|id| Value::from(id.0.as_bytes().to_vec())));
        }
        if let Some(from) = query.created_from {
            all.add("j.created >= ?", from.0);
        }
        if let Some(before) = query.created_before {
            all.add("j.created < ?", before.0);
        }
        if let Some(worker) = query.worker {
            all.add(
                "case when exists (select 1 from active a where a.seq = j.seq)
                    then (select a.worker from active a where a.seq = j.seq)
                    else (select t.worker from attempt_row t where t.seq = j.seq
                        order by t.epoch desc limit 1) end = ?",
                worker.0.as_bytes().to_vec(),
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
                order by t.epoch desc limit 1), 0)",
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
    fn states(&mut self, db: &Connection, states: &[State]) -> Result<(), StoreError> {
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
        } else if !states.iter().any(|state| state.is_terminal()) && few_ready(db)? {
            self.wheres.push(among_live(states, &names));
        } else {
            self.wheres.push(format!("{STATE} in ({names})"));
        }
        Ok(())
    }

    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.wheres.push(condition.to_owned());
        self.values.push(value.into());
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
        let wheres = if all.is_empty() { "1".to_owned() } else { all.join(" and ") };
        format!("select {select} from {} where {wheres} {more}", self.from)
    }
}

/// Returns whether collecting the claimable jobs is cheaper than looking for them among all.
fn few_ready(db: &Connection) -> Result<bool, StoreError> {
    let sql = format!("select count(*) from (select 1 from ready limit {})", READY_FEW + 1);
    let count = column(db, &sql, Vec::new())?;
    Ok(count.first().is_some_and(|count| *count <= i64::from(READY_FEW)))
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

pub(crate) fn jobs(db: &Connection, query: &JobQuery) -> Result<JobPage, StoreError> {
    let conditions = Conditions::of(db, query)?;
    let before = cursor(&query.page)?;
    let sql = conditions.sql("j.seq", "and j.seq < ? order by j.seq desc limit ?");
    let mut values = conditions.values.clone();
    values.push(before.into());
    values.push((i64::from(query.page.limit) + 1).into());
    let mut seqs = column(db, &sql, values)?;
    let more = seqs.len() > usize::try_from(query.page.limit).unwrap_or(usize::MAX);
    if more {
        seqs.pop();
    }
    let next = seqs.last().filter(|_| more).map(ToString::to_string);
    let count = conditions.sql("1", &format!("limit {COUNT_MAX}"));
    let count = format!("select count(*) from ({count})");
    let total = column(db, &count, conditions.values)?.first().copied().unwrap_or(0);
    let jobs = seqs.into_iter().map(|seq| by_seq(db, seq)).collect::<Result<_, _>>()?;
    Ok(JobPage { jobs, next, total: u64::try_from(total).unwrap_or(0) })
}

pub(crate) fn dead_letters(db: &Connection, page: &Page) -> Result<DeadLetterPage, StoreError> {
    let limit = u64::from(page.limit);
    let mut select = db
        .prepare_cached(
            "select seq, reason, at from dead_letter_row where seq < ? order by seq desc limit ?",
        )
        .map_err(failed)?;
    let rows = select
        .query_map((cursor(page)?, int(limit + 1)), |row| {
            let reason = row::parsed(row, 1, DeadLetterReason::parse)?;
            Ok((row.get::<_, i64>(0)?, reason, row::time(row, 2)?))
        })
        .map_err(failed)?;
    let mut found: Vec<(i64, DeadLetterReason, Timestamp)> =
        rows.collect::<Result<_, _>>().map_err(failed)?;
    let more = found.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    if more {
        found.pop();
    }
    let next = found.last().filter(|_| more).map(|(seq, ..)| seq.to_string());
    let letters = found
        .into_iter()
        .map(|(seq, reason, at)| Ok(DeadLetter { job: by_seq(db, seq)?, reason, at }))
        .collect::<Result<_, StoreError>>()?;
    let total = column(db, "select count(*) from dead_letter_row", Vec::new())?;
    let total = total.first().copied().unwrap_or(0);
    Ok(DeadLetterPage { letters, next, total: u64::try_from(total).unwrap_or(0) })
}

fn cursor(page: &Page) -> Result<i64, StoreError> {
    page.cursor.as_ref().map_or(Ok(i64::MAX), |text| {
        text.parse()
            .map_err(|_not_a_number| StoreError::Rejected(format!("`{text}` is not a cursor")))
    })
}

fn column(db: &Connection, sql: &str, values: Vec<Value>) -> Result<Vec<i64>, StoreError> {
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let rows = select.query_map(params_from_iter(values), |row| row.get(0)).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}
