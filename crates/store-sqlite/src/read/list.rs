//! Lists of jobs and dead letters, newest first. How they are found is planned in
//! [`outlast_store::list`].

use outlast_core::id::JobId;
use outlast_core::job::{DeadLetterReason, State};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::list::{self, BLOCK_BITS, BLOCK_STEPS, Found, Plan, STEPS, Source, Total, Way};
use outlast_store::query::{DeadLetter, DeadLetterPage, JobPage, JobQuery, Page};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use crate::read::job::by_seq;
use crate::read::queue;
use crate::row::{self, failed, int};

/// What jobs of a list must be, in SQL, with the values.
#[derive(Clone, Debug, Default)]
struct Conditions {
    wheres: Vec<String>,
    values: Vec<Value>,
}

/// The job's state, wherever its moving part is.
const STATE: &str = "coalesce((select f.state from finished f where f.seq = j.seq),
    (select 'active' from active a where a.seq = j.seq),
    (select w.state from waiting w where w.seq = j.seq), 'available')";

/// The job's id is in a range; found by the ids, not by the numbers.
const IN_RANGE: &str = "j.seq in (select i.seq from job_row i where i.id between ? and ?)";

impl Conditions {
    /// Those that do not depend on the table that is walked.
    fn of(query: &JobQuery, plan: &Plan) -> Self {
        let mut all = Self::default();
        if let Some(classes) = &plan.classes {
            let ids: Vec<i64> = classes.iter().map(|class| class.0).collect();
            let ids = serde_json::to_string(&ids).unwrap_or_default();
            all.add("j.class in (select value from json_each(?))", ids);
        }
        if let Some((from, to)) = query.ids {
            all.wheres.push("j.id between ? and ?".into());
            all.values.extend(range(from, to));
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
        all
    }

    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.wheres.push(condition.to_owned());
        self.values.push(value.into());
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

    /// Returns the numbers of the jobs from `low` to below `high` that match, newest first.
    fn between(
        &self,
        db: &Connection,
        from: &str,
        (low, high): (i64, i64),
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let mut wheres = self.wheres.clone();
        // The walked table's own number: it is read in this order, backwards.
        let seq = from.split_whitespace().nth(1).unwrap_or("j");
        wheres.push(format!("{seq}.seq >= ? and {seq}.seq < ?"));
        let wheres = wheres.join(" and ");
        let sql =
            format!("select {seq}.seq from {from} where {wheres} order by {seq}.seq desc limit ?");
        let mut values = self.values.clone();
        values.extend([low.into(), high.into(), long(limit).into()]);
        column(db, &sql, values)
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
    db: &'a Connection,
    query: &'a JobQuery,
    plan: &'a Plan,
    before: i64,
    /// How many are wanted.
    limit: usize,
}

impl Walk<'_> {
    fn find(&self) -> Result<Vec<Found>, StoreError> {
        let conditions = Conditions::of(self.query, self.plan);
        Ok(match &self.plan.way {
            Way::Nothing => Vec::new(),
            Way::Blocks => vec![self.in_blocks(&self.by_state(conditions))?],
            Way::Sources(sources) => {
                let mut found = Vec::with_capacity(sources.len());
                for (source, at_once) in sources {
                    found.push(match source {
                        Source::Ready => self.among_ready(&conditions)?,
                        other => self.in_source(*other, *at_once, &conditions)?,
                    });
                }
                found
            }
        })
    }

    fn by_state(&self, conditions: Conditions) -> Conditions {
        if self.query.states.is_empty() {
            return conditions;
        }
        conditions.and(format!("{STATE} in ({})", names(&self.query.states, &State::ALL)))
    }

    /// Walks the blocks in which the classes have jobs.
    fn in_blocks(&self, conditions: &Conditions) -> Result<Found, StoreError> {
        let mut found = Found::default();
        let mut high = self.before;
        for step in BLOCK_STEPS {
            let top = high.saturating_sub(1) >> BLOCK_BITS;
            let blocks = self.blocks(top, step)?;
            for block in &blocks {
                let low = block << BLOCK_BITS;
                let end = (low + (1 << BLOCK_BITS)).min(self.before);
                let wanted = self.limit - found.seqs.len();
                found.seqs.extend(conditions.between(self.db, "job_row j", (low, end), wanted)?);
                high = low;
                if found.seqs.len() >= self.limit {
                    return Ok(Found { down_to: Some(low), ..found });
                }
            }
            if blocks.len() < usize::try_from(step).unwrap_or(usize::MAX) {
                return Ok(Found { down_to: None, ..found });
            }
        }
        Ok(Found { down_to: Some(high), ..found })
    }

    /// Returns the highest `step` blocks up to `top` that the classes are in.
    fn blocks(&self, top: i64, step: u32) -> Result<Vec<i64>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select block from class_block where class = ? and block <= ?
                 order by block desc limit ?",
            )
            .map_err(failed)?;
        let mut blocks: Vec<i64> = Vec::new();
        for class in self.plan.classes.iter().flatten() {
            let rows = select.query_map((class.0, top, step), |row| row.get(0)).map_err(failed)?;
            for row in rows {
                blocks.push(row.map_err(failed)?);
            }
        }
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        blocks.dedup();
        blocks.truncate(usize::try_from(step).unwrap_or(usize::MAX));
        Ok(blocks)
    }

    /// Walks a table, more rows at each step.
    fn in_source(
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
                "finished f indexed by finished_failed join job_row j on j.seq = f.seq",
                format!("f.state <> 'completed' and f.state in ({})", names(states, &State::ALL)),
                "finished indexed by finished_failed where state <> 'completed'",
            ),
            Source::Held => (
                "active x join job_row j on j.seq = x.seq",
                format!("x.worker = {}", self.worker()),
                "active where true",
            ),
            Source::Attempts => (
                "attempt_row t join job_row j on j.seq = t.seq",
                format!("t.worker = {}", self.worker()),
                "attempt_row where true",
            ),
            Source::Jobs => ("job_row j", "true".into(), "job_row where true"),
            Source::Ids => ("job_row j", IN_RANGE.into(), "job_row where true"),
        };
        let mut conditions = conditions.clone().and(more);
        if let (Source::Ids, Some((from, to))) = (source, self.query.ids) {
            conditions.values.extend(range(from, to));
        }
        if matches!(source, Source::Held | Source::Attempts | Source::Ids) {
            conditions = self.by_state(conditions);
        }
        let mut found = Found::default();
        let mut high = self.before;
        let steps = if at_once { &[u32::MAX][..] } else { &STEPS[..] };
        for step in steps {
            let low = if at_once { None } else { self.lower(table, high, *step)? };
            let wanted = self.limit - found.seqs.len();
            let between = (low.unwrap_or(i64::MIN), high);
            found.seqs.extend(conditions.between(self.db, from, between, wanted)?);
            let Some(low) = low else { return Ok(Found { down_to: None, ..found }) };
            high = low;
            if found.seqs.len() >= self.limit {
                break;
            }
        }
        Ok(Found { down_to: Some(high), ..found })
    }

    /// Returns the number that is `step` rows further down a table, if it has so many.
    fn lower(&self, table: &str, high: i64, step: u32) -> Result<Option<i64>, StoreError> {
        let sql = format!("select seq from {table} and seq < ? order by seq desc limit 1 offset ?");
        let found = column(self.db, &sql, vec![high.into(), step.into()])?;
        Ok(found.first().copied())
    }

    fn worker(&self) -> String {
        let bytes = self.query.worker.map_or([0; 16], |worker| *worker.0.as_bytes());
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("x'{hex}'")
    }

    /// The newest of each class and priority are each at the end of a line; only lines whose
    /// last is among the newest can have more of them.
    fn among_ready(&self, conditions: &Conditions) -> Result<Found, StoreError> {
        let mut lines = self.lines()?;
        lines.sort_unstable_by(|a, b| b.cmp(a));
        // What else is wanted may leave out some of them.
        let wanted = if conditions.wheres.is_empty() { self.limit } else { self.limit.max(2_000) };
        lines.truncate(wanted);
        let mut line = self
            .db
            .prepare_cached(
                "select seq from ready where class = ? and rank = ? and seq < ?
                 order by seq desc limit ?",
            )
            .map_err(failed)?;
        let mut seqs: Vec<i64> = Vec::new();
        for (_, class, rank) in &lines {
            let rows = line
                .query_map((class, rank, self.before, long(wanted)), |row| row.get(0))
                .map_err(failed)?;
            for row in rows {
                seqs.push(row.map_err(failed)?);
            }
            // Enough of the newest make room for what the next line has.
            if seqs.len() > 4 * wanted {
                seqs.sort_unstable_by(|a, b| b.cmp(a));
                seqs.truncate(wanted);
            }
        }
        seqs.sort_unstable_by(|a, b| b.cmp(a));
        let all = seqs.len() < wanted;
        seqs.truncate(wanted);
        let down_to = if all { None } else { seqs.last().copied() };
        if conditions.wheres.is_empty() {
            return Ok(Found { seqs, down_to });
        }
        let ids = serde_json::to_string(&seqs).unwrap_or_default();
        let mut conditions = conditions.clone();
        conditions.add("j.seq in (select value from json_each(?))", ids);
        let all = (i64::MIN, self.before);
        let mut seqs = conditions.between(self.db, "job_row j", all, self.limit + 1)?;
        let down_to = if seqs.len() > self.limit { seqs.pop().map(|seq| seq + 1) } else { down_to };
        Ok(Found { seqs, down_to })
    }

    /// The newest of each class and priority, with both.
    fn lines(&self) -> Result<Vec<(i64, i64, i64)>, StoreError> {
        let mut next = self
            .db
            .prepare_cached(
                "select rank from ready where class = ? and rank > ? order by rank limit 1",
            )
            .map_err(failed)?;
        let mut last = self
            .db
            .prepare_cached("select max(seq) from ready where class = ? and rank = ? and seq < ?")
            .map_err(failed)?;
        let mut lines = Vec::new();
        for class in &self.plan.ready {
            let mut rank = i64::MIN;
            let mut step = |after: i64| next.query_row((class.0, after), |row| row.get(0));
            while let Some(found) = step(rank).optional().map_err(failed)? {
                rank = found;
                let newest: Option<i64> = last
                    .query_row((class.0, rank, self.before), |row| row.get(0))
                    .map_err(failed)?;
                lines.extend(newest.map(|seq| (seq, class.0, rank)));
            }
        }
        Ok(lines)
    }
}

pub(crate) fn jobs(db: &Connection, query: &JobQuery) -> Result<JobPage, StoreError> {
    let plan = Plan::of(query, &queue::tally(db)?, within(db, query)?);
    let limit = usize::try_from(query.page.limit).unwrap_or(usize::MAX);
    let walk = |before, limit| Walk { db, query, plan: &plan, before, limit }.find();
    let (seqs, next) =
        list::page(walk(cursor(&query.page)?, limit.saturating_add(1))?, query.page.limit);
    let total = match plan.total() {
        Total::Known(total) => Some(total),
        Total::ToCount(most) => list::counted(walk(i64::MAX, most)?),
        Total::Unknown => None,
    };
    let jobs = seqs.into_iter().map(|seq| by_seq(db, seq)).collect::<Result<_, _>>()?;
    Ok(JobPage { jobs, next: next.map(|seq| seq.to_string()), total })
}

fn range(from: JobId, to: JobId) -> [Value; 2] {
    [from, to].map(|id| Value::from(id.0.as_bytes().to_vec()))
}

/// Returns how many jobs there are in the range of ids that is asked for, as far as it matters.
fn within(db: &Connection, query: &JobQuery) -> Result<u64, StoreError> {
    let Some((from, to)) = query.ids else { return Ok(0) };
    let sql = format!(
        "select count(*) from (select 1 from job_row where id between ? and ? limit {})",
        list::IDS_MAX + 1
    );
    let found = column(db, &sql, range(from, to).into())?;
    Ok(found.first().map_or(0, |count| count.unsigned_abs()))
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
        .map(|(seq, reason, at)| {
            Ok(DeadLetter { job: by_seq(db, seq)?, reason, at, cursor: seq.to_string() })
        })
        .collect::<Result<_, StoreError>>()?;
    let total =
        column(db, "select coalesce(sum(exhausted + abandoned), 0) from tally", Vec::new())?;
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
