//! What jobs of a list must be, as SQL. The stores' dialects differ in how values are named.

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::command::ClassId;
use outlast_store::query::{JobQuery, LetterFilter};
use outlast_store::schedule::mark;
use outlast_store::workflow;

use super::{Plan, Source};

/// How a store's SQL names the values of [`Values`].
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// A column is one of the classes.
    pub of_classes: &'static str,
    /// A column is one of the numbers in `among`.
    pub among: &'static str,
    /// The worker.
    pub worker: &'static str,
    /// The first and the last id.
    pub ids: (&'static str, &'static str),
    /// The number of a job `j` is one of those in the range of ids: these are found first.
    pub found_by_id: &'static str,
    /// The time from which on jobs were made, and the time before which they were.
    pub created: (&'static str, &'static str),
    /// The time from which on dead letters became so, and the time before which they did.
    pub lettered: (&'static str, &'static str),
    /// A text in the keys, each of which a column must contain.
    pub with_keys: &'static str,
    /// A column contains the text by which jobs of a schedule or workflow are found.
    pub beside: &'static str,
    /// A part of the text of an error, in lower case; `{}` is what must contain it.
    pub with_error: fn(&str) -> String,
    /// The last digits of an id `j.id`.
    pub with_suffix: &'static str,
    /// The first number, the number after the last, and how many rows.
    pub range: (&'static str, &'static str, &'static str),
    /// Joins each row of a table, by the name that is given, with its job `j`. The table is read
    /// first: in the other order, the jobs of all newer numbers may be.
    pub with_job: fn(&str) -> String,
    /// The table of ended jobs, read by the index of those that did not complete; it is `f`.
    pub failed: &'static str,
    /// The same without a name.
    pub failed_alone: &'static str,
    /// Makes of a statement that looks for jobs from `b.low` to below `b.high` one that looks in
    /// each block that begins with one of the numbers in `among`; without it, the statement is
    /// run for each. A block gives no more rows than are wanted in all.
    pub in_blocks: Option<fn(&str) -> String>,
    /// A condition that is true and names every value.
    pub names_all: &'static str,
}

/// What a statement of a list is given.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// The classes.
    pub classes: Vec<i64>,
    /// The worker.
    pub worker: Option<WorkerId>,
    /// The first and the last id.
    pub ids: Option<(JobId, JobId)>,
    /// Made at this time or later.
    pub created_from: Option<Timestamp>,
    /// Made before this time.
    pub created_before: Option<Timestamp>,
    /// Dead-lettered at this time or later.
    pub lettered_from: Option<Timestamp>,
    /// Dead-lettered before this time.
    pub lettered_before: Option<Timestamp>,
    /// What each of the keys is in the text of all.
    pub keys: Vec<String>,
    /// What is beside each job of a schedule or workflow.
    pub beside: Option<String>,
    /// What an error contains.
    pub error: Option<String>,
    /// What an id ends with.
    pub id_suffix: Option<String>,
    /// Numbers that the jobs are among.
    pub among: Vec<i64>,
    /// The first number, and the number after the last.
    pub range: (i64, i64),
    /// How many rows.
    pub limit: i64,
}

impl Values {
    /// Those of a query that are the same in each statement.
    pub(super) fn of(query: &JobQuery, classes: Option<&[ClassId]>) -> Self {
        Self {
            classes: classes.unwrap_or_default().iter().map(|class| class.0).collect(),
            worker: query.worker,
            ids: query.ids,
            created_from: query.created_from,
            created_before: query.created_before,
            lettered_from: query.letters.and_then(|letters| letters.from),
            lettered_before: query.letters.and_then(|letters| letters.before),
            keys: query.keys.iter().filter_map(|(name, value)| pair(name, value)).collect(),
            beside: query
                .schedule
                .as_ref()
                .map(mark)
                .or_else(|| query.workflow.map(workflow::mark)),
            error: query.error.as_deref().map(plain_part),
            id_suffix: query.id_suffix.clone(),
            ..Self::default()
        }
    }
}

/// A key and its value as they are in the text of all keys. No value contains such a text by chance:
/// its quotation marks would be escaped.
fn pair(name: &str, value: &str) -> Option<String> {
    let text = |text: &str| serde_json::to_string(text).ok();
    Some(format!("{}:{}", text(name)?, text(value)?))
}

/// The longest part of a text that is written the same in any JSON, in lower case.
fn plain_part(text: &str) -> String {
    let is_plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\' | '/');
    let parts = text.split(|c| !is_plain(c));
    parts.max_by_key(|part| part.len()).unwrap_or_default().to_lowercase()
}

/// Conditions on a job `j`.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    dialect: Dialect,
    wheres: Vec<String>,
}

/// The job's state, wherever its moving part is.
const STATE: &str = "coalesce((select f.state from finished f where f.seq = j.seq),
    (select 'active' from active a where a.seq = j.seq),
    (select w.state from waiting w where w.seq = j.seq), 'available')";

const ATTEMPTS: &str = "attempt_row";

const LETTER: &str = "exists (select 1 from dead_letter_row d
    where d.seq = j.seq and d.reason <> 'exhausted')";

const TIMED_OUT: &str = "coalesce((select t.outcome = 'timeout' from attempt_row t
    where t.seq = j.seq order by t.epoch desc limit 1), false)";

/// The latest error of whatever life, and none of a job that completed.
const ERROR: &str = "coalesce((select case when f.state = 'completed' then '' else f.error end
        from finished f where f.seq = j.seq),
    (select t.error from attempt_row t where t.seq = j.seq and t.error is not null
     order by t.epoch desc limit 1), '')";

const STARTED: &str = "exists (select 1 from active a where a.seq = j.seq and a.started is not null
    and not a.cancelled)";

impl Filter {
    /// Those conditions that do not depend on the table that is walked.
    pub(super) fn of(query: &JobQuery, plan: &Plan, dialect: Dialect) -> Self {
        let mut all = Self { dialect, wheres: Vec::new() };
        if plan.classes.is_some() {
            all.add(format!("j.class {}", dialect.of_classes));
        }
        if query.ids.is_some() {
            all.add(format!("j.id between {} and {}", dialect.ids.0, dialect.ids.1));
        }
        all.wheres.extend(Self::of_times(query, dialect).wheres);
        if query.worker.is_some() {
            all.add(format!(
                "case when exists (select 1 from active a where a.seq = j.seq)
                    then (select a.worker from active a where a.seq = j.seq)
                    else (select t.worker from attempt_row t where t.seq = j.seq
                        order by t.epoch desc limit 1) end = {}",
                dialect.worker
            ));
        }
        all.flag(query.abandoned, LETTER);
        all.flag(query.timed_out, TIMED_OUT);
        all.flag(query.started, STARTED);
        if let Some(letters) = query.letters {
            all.add(of_letters(letters, dialect));
        }
        all.look_inside(query);
        all
    }

    /// What only the job itself tells.
    fn look_inside(&mut self, query: &JobQuery) {
        if !query.statuses.is_empty() {
            let each = query.statuses.iter().map(|status| {
                let mut one = Self { dialect: self.dialect, wheres: Vec::new() };
                one.add(format!("{STATE} in ({})", names(&status.states, &State::ALL)));
                one.flag(status.abandoned, LETTER);
                one.flag(status.timed_out, TIMED_OUT);
                one.flag(status.started, STARTED);
                format!("({})", one.wheres.join(" and "))
            });
            let any = each.collect::<Vec<_>>().join(" or ");
            self.add(format!("({any})"));
        }
        if !query.keys.is_empty() {
            self.add(self.dialect.with_keys.to_owned());
        }
        if query.schedule.is_some() || query.workflow.is_some() {
            self.add(self.dialect.beside.to_owned());
        }
        if query.error.is_some() {
            self.add((self.dialect.with_error)(ERROR));
        }
        if query.id_suffix.is_some() {
            self.add(self.dialect.with_suffix.to_owned());
        }
    }

    /// Only when they were made.
    pub(super) fn of_times(query: &JobQuery, dialect: Dialect) -> Self {
        let mut times = Self { dialect, wheres: Vec::new() };
        if query.created_from.is_some() {
            times.add(format!("j.created >= {}", dialect.created.0));
        }
        if query.created_before.is_some() {
            times.add(format!("j.created < {}", dialect.created.1));
        }
        times
    }

    fn add(&mut self, condition: String) {
        self.wheres.push(condition);
    }

    fn flag(&mut self, wanted: Option<bool>, condition: &str) {
        match wanted {
            Some(true) => self.add(condition.to_owned()),
            Some(false) => self.add(format!("not {condition}")),
            None => {}
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.wheres.is_empty()
    }

    /// In one of these states, wherever the job is.
    pub(super) fn in_states(mut self, states: &[State]) -> Self {
        if !states.is_empty() {
            self.add(format!("{STATE} in ({})", names(states, &State::ALL)));
        }
        self
    }

    /// One of the numbers that the statement is given.
    pub(super) fn among(mut self) -> Self {
        self.add(format!("j.seq {}", self.dialect.among));
        self
    }

    /// In a table, of which those rows are wanted that say one of the states.
    pub(super) fn of_source(mut self, source: Source, states: &[State]) -> Self {
        let resting = [State::Scheduled, State::Pending, State::Retryable];
        let dialect = self.dialect;
        self.add(match source {
            Source::Ready | Source::Waiting => {
                format!("w.state in ({})", names(states, &resting))
            }
            Source::Active => "not x.cancelled".into(),
            Source::Ended => format!("f.state in ({})", names(states, &State::ALL)),
            Source::Failed => {
                format!("f.state <> 'completed' and f.state in ({})", names(states, &State::ALL))
            }
            Source::Held => format!("x.worker = {}", dialect.worker),
            Source::Attempts => format!("t.worker = {}", dialect.worker),
            // What is asked of dead letters is asked of the job.
            Source::Letters | Source::Jobs => "true".into(),
            Source::Ids => dialect.found_by_id.into(),
        });
        match source {
            Source::Held | Source::Attempts | Source::Letters | Source::Ids => {
                self.in_states(states)
            }
            _ => self,
        }
    }

    /// Whether a condition is about the job itself, and not only about the row that is walked.
    fn names_job(&self) -> bool {
        self.wheres.iter().any(|condition| condition.contains("j."))
    }

    /// Returns the statement that finds the numbers of matching jobs of a range, highest first.
    pub(super) fn select(&self, from: &str) -> String {
        let (low, high, _) = self.dialect.range;
        self.between(from, low, high)
    }

    /// Returns the statement that does so in each of some blocks, if a store has one.
    pub(super) fn select_in_blocks(&self) -> Option<String> {
        let in_blocks = self.dialect.in_blocks?;
        Some(in_blocks(&self.between("job_row j", "b.low", "b.high")))
    }

    fn between(&self, from: &str, low: &str, high: &str) -> String {
        // The walked table's own number: it is read in this order, backwards.
        let seq = from.split_whitespace().nth(1).unwrap_or("j");
        let limit = self.dialect.range.2;
        let all = self.dialect.names_all;
        let wheres = self.wheres.iter().map(|condition| format!("{condition} and "));
        let wheres: String = wheres.collect();
        // A worker may have had several attempts of a job.
        let distinct = if from.starts_with(ATTEMPTS) { "distinct" } else { "" };
        format!(
            "select {distinct} {seq}.seq from {from} where {wheres}{seq}.seq >= {low} and {seq}.seq < {high}
                 and {all} order by {seq}.seq desc limit {limit}"
        )
    }

    /// A table to walk: with the job if a condition is about it, and by itself.
    pub(super) fn tables(&self, source: Source) -> (String, String) {
        let dialect = &self.dialect;
        let joined = |table: &str, name: &str| {
            let job = if self.names_job() { (dialect.with_job)(name) } else { String::new() };
            format!("{table} {job}")
        };
        let both = |table: &str, name: &str| {
            (joined(&format!("{table} {name}"), name), format!("{table} where true"))
        };
        match source {
            Source::Ready | Source::Waiting => both("waiting", "w"),
            Source::Active | Source::Held => both("active", "x"),
            Source::Ended => both("finished", "f"),
            Source::Failed => (
                joined(dialect.failed, "f"),
                format!("{} where state <> 'completed'", dialect.failed_alone),
            ),
            Source::Attempts => both(ATTEMPTS, "t"),
            Source::Letters => both("dead_letter_row", "l"),
            Source::Jobs | Source::Ids => ("job_row j".into(), "job_row where true".into()),
        }
    }
}

/// Returns the statement that finds the number below which every job was made before the time of
/// `created_from`, as long as times rise with the numbers. It halves what is left at each step,
/// so it looks at few jobs however many there are.
pub(super) fn first_made_at(dialect: &Dialect) -> String {
    let (low, high, limit) = dialect.range;
    let (from, all) = (dialect.created.0, dialect.names_all);
    let is_before = format!(
        "(select j.created from job_row j where j.seq >= (b.low + b.high) / 2
            order by j.seq limit 1) < {from}"
    );
    format!(
        "with recursive b(low, high) as (
             select (select min(seq) from job_row), (select max(seq) + 1 from job_row)
             union all
             select case when {is_before} then (b.low + b.high) / 2 + 1 else b.low end,
                    case when {is_before} then b.high else (b.low + b.high) / 2 end
             from b where b.low < b.high)
         select b.low from b
         where b.low >= b.high and b.low >= {low} and b.low < {high} and {all} limit {limit}"
    )
}

/// That a job is one of some dead letters.
fn of_letters(letters: LetterFilter, dialect: Dialect) -> String {
    let reason = letters.reason.map(|reason| format!(" and d.reason = '{}'", reason.as_str()));
    let from = letters.from.map(|_| format!(" and d.at >= {}", dialect.lettered.0));
    let before = letters.before.map(|_| format!(" and d.at < {}", dialect.lettered.1));
    let more: String = [reason, from, before].into_iter().flatten().collect();
    format!("exists (select 1 from dead_letter_row d where d.seq = j.seq{more})")
}

fn names(states: &[State], among: &[State]) -> String {
    let both = states.iter().filter(|state| among.contains(state));
    both.map(|state| format!("'{state}'")).collect::<Vec<_>>().join(", ")
}
