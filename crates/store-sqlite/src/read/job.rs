//! One job with everything about it.

use std::sync::Arc;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, State};
use outlast_core::limits::LISTED_BYTES_MAX;
use outlast_store::StoreError;
use outlast_store::command::{ClassId, ClassKey, LetterKey};
use outlast_store::query::UnhandledLetter;
use outlast_store::record::{HolderRecord, JobRecord, Omitted, StoredJob};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::row::{self, failed, int};
use crate::writer::{class_of, rank_of, stored};

/// Returns the job of that id.
pub(crate) fn by_id(db: &Connection, id: JobId) -> Result<Option<JobRecord>, StoreError> {
    seq_of(db, id)?.map(|seq| by_seq(db, seq, i64::MAX)).transpose()
}

pub(crate) fn seq_of(db: &Connection, id: JobId) -> Result<Option<i64>, StoreError> {
    let mut select = db.prepare_cached("select seq from job_row where id = ?").map_err(failed)?;
    select.query_row([id.0.as_bytes().as_slice()], |row| row.get(0)).optional().map_err(failed)
}

/// Returns the class of that number.
pub(crate) fn class_key(db: &Connection, class: ClassId) -> Result<Arc<ClassKey>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select id, queue, job_type, route, tenant, isolated, keyed from class where id = ?",
        )
        .map_err(failed)?;
    let mut rows = select.query([class.0]).map_err(failed)?;
    let Some(row) = rows.next().map_err(failed)? else {
        return Err(StoreError::Corrupt(format!("no class {}", class.0)));
    };
    Ok(Arc::new(class_of(row)?.1))
}

/// Returns the job of that number as lists show it: long values are not even read.
pub(crate) fn listed(db: &Connection, seq: i64) -> Result<JobRecord, StoreError> {
    by_seq(db, seq, int(u64::try_from(LISTED_BYTES_MAX).unwrap_or(u64::MAX)))
}

/// Returns the job of that number, without values that are longer than `longest` bytes.
fn by_seq(db: &Connection, seq: i64, longest: i64) -> Result<JobRecord, StoreError> {
    let mut select = db
        .prepare_cached(
            "select seq, id, class, priority,
                    case when octet_length(args) <= ?2 then args else ?3 end, meta, extra, rules,
                    timeout_ms, visibility_ms, strand_ms, origin, created, scheduled_for, keys,
                    case when octet_length(args) > ?2 then octet_length(args) end
             from job_row where seq = ?1",
        )
        .map_err(failed)?;
    let mut rows = select.query((seq, longest, Omitted::ARGS)).map_err(failed)?;
    let Some(found) = rows.next().map_err(failed)? else {
        return Err(StoreError::Corrupt(format!("no job row {seq}")));
    };
    let (_, job) = stored(found, |class| class_key(db, class))?;
    let args = found.get(OMITTED).map_err(failed)?;
    let job = Arc::new(job);
    let mut record = moving(db, seq, longest, &job)?;
    record.omitted.args = args;
    complete(db, seq, &mut record)?;
    Ok(record)
}

/// The column with the length of arguments that were left out.
const OMITTED: usize = 15;

/// Reads the moving part, wherever it is.
fn moving(
    db: &Connection,
    seq: i64,
    longest: i64,
    job: &Arc<StoredJob>,
) -> Result<JobRecord, StoreError> {
    let found = match finished(db, seq, longest, job)? {
        Some(record) => Some(record),
        None => match active(db, seq, job)? {
            Some(record) => Some(record),
            None => match waiting(db, seq, job)? {
                Some(record) => Some(record),
                None => ready(db, seq, job)?,
            },
        },
    };
    found.ok_or_else(|| StoreError::Corrupt(format!("job {} is nowhere", job.id)))
}

/// Reads epoch, life, failures, losses, interruptions, isolated from column `at` on.
fn base(
    row: &Row<'_>,
    at: usize,
    job: &Arc<StoredJob>,
    state: State,
) -> rusqlite::Result<JobRecord> {
    Ok(JobRecord {
        epoch: row::epoch(row, at)?,
        life: row::life(row, at + 1)?,
        isolated: row.get(at + 5)?,
        ..JobRecord::new(Arc::clone(job), state, row::spent(row, at + 2)?)
    })
}

fn finished(
    db: &Connection,
    seq: i64,
    longest: i64,
    job: &Arc<StoredJob>,
) -> Result<Option<JobRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select epoch, life, failures, losses, interruptions, isolated, state, at, attempt,
                    shown, case when octet_length(result) <= ?2 then result end, error, ended_by,
                    case when octet_length(result) > ?2 then octet_length(result) end
             from finished where seq = ?1",
        )
        .map_err(failed)?;
    select
        .query_row((seq, longest), |row| {
            let at = row::time(row, 7)?;
            let shown: bool = row.get(9)?;
            Ok(JobRecord {
                since: at,
                attempt: row.get(8)?,
                finished: shown.then_some(at),
                result: row.get(10)?,
                error: row.get(11)?,
                ended_by: row.get(12)?,
                omitted: Omitted { args: None, result: row.get(13)? },
                ..base(row, 0, job, row::state(row, 6)?)?
            })
        })
        .optional()
        .map_err(failed)
}

fn active(
    db: &Connection,
    seq: i64,
    job: &Arc<StoredJob>,
) -> Result<Option<JobRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select epoch, life, failures, losses, interruptions, isolated, claimed
             from active where seq = ?",
        )
        .map_err(failed)?;
    select
        .query_row([seq], |row| {
            let base = base(row, 0, job, State::Active)?;
            let attempt = base.spent.failures.saturating_add(1);
            Ok(JobRecord { since: row::time(row, 6)?, attempt, ..base })
        })
        .optional()
        .map_err(failed)
}

fn waiting(
    db: &Connection,
    seq: i64,
    job: &Arc<StoredJob>,
) -> Result<Option<JobRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select epoch, life, failures, losses, interruptions, isolated, state, due, since
             from waiting where seq = ?",
        )
        .map_err(failed)?;
    select
        .query_row([seq], |row| {
            Ok(JobRecord {
                due: row::time_opt(row, 7)?,
                since: row::time(row, 8)?,
                ..base(row, 0, job, row::state(row, 6)?)?
            })
        })
        .optional()
        .map_err(failed)
}

fn ready(db: &Connection, seq: i64, job: &Arc<StoredJob>) -> Result<Option<JobRecord>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select r.epoch, r.life, r.failures, r.losses, r.interruptions, c.isolated, r.since
             from class b
             join class c on c.queue = b.queue and c.job_type = b.job_type
                 and c.route = b.route and c.tenant = b.tenant
             join ready r on r.class = c.id and r.rank in (?2, ?3) and r.seq = ?4
             where b.id = ?1",
        )
        .map_err(failed)?;
    let (in_order, front) = rank_of(job.priority);
    select
        .query_row((job.class.0, in_order, front, seq), |row| {
            Ok(JobRecord { since: row::time(row, 6)?, ..base(row, 0, job, State::Available)? })
        })
        .optional()
        .map_err(failed)
}

/// Adds the holder, the latest attempt, the latest error and the dead letter.
fn complete(db: &Connection, seq: i64, record: &mut JobRecord) -> Result<(), StoreError> {
    if record.epoch > Epoch::ZERO && !add_holder(db, seq, record)? {
        add_last_attempt(db, seq, record)?;
    }
    if record.error.is_none() && record.state != State::Completed {
        record.error = last_error(db, seq, record)?;
    }
    if record.state == State::Discarded {
        let mut select = db
            .prepare_cached("select reason from dead_letter_row where seq = ?")
            .map_err(failed)?;
        record.dead_letter = select
            .query_row([seq], |row| row::parsed(row, 0, DeadLetterReason::parse))
            .optional()
            .map_err(failed)?;
    }
    Ok(())
}

fn add_holder(db: &Connection, seq: i64, record: &mut JobRecord) -> Result<bool, StoreError> {
    let mut select = db
        .prepare_cached(
            "select worker, plain, claimed, started, visible_until from active where seq = ?",
        )
        .map_err(failed)?;
    let found = select
        .query_row([seq], |row| {
            let worker = row::worker_opt(row, 0)?;
            let plain: Option<String> = row.get(1)?;
            Ok((
                HolderRecord { worker, name: plain, visible_until: row::time_opt(row, 4)? },
                row::time(row, 2)?,
                row::time_opt(row, 3)?,
            ))
        })
        .optional()
        .map_err(failed)?;
    let Some((mut holder, claimed, started)) = found else { return Ok(false) };
    if let Some(worker) = holder.worker {
        holder.name = worker_name(db, worker)?;
    }
    (record.claimed, record.started) = (Some(claimed), started);
    record.last_holder = Some(HolderRecord { visible_until: None, ..holder.clone() });
    record.holder = Some(holder);
    Ok(true)
}

fn add_last_attempt(db: &Connection, seq: i64, record: &mut JobRecord) -> Result<(), StoreError> {
    let mut select = db
        .prepare_cached(
            "select claimed, started, worker, plain from attempt_row
             where seq = ? order by epoch desc limit 1",
        )
        .map_err(failed)?;
    let found = select
        .query_row([seq], |row| {
            let worker = row::worker_opt(row, 2)?;
            let holder = HolderRecord { worker, name: row.get(3)?, visible_until: None };
            Ok((row::time(row, 0)?, row::time_opt(row, 1)?, holder))
        })
        .optional()
        .map_err(failed)?;
    if let Some((claimed, started, mut holder)) = found {
        if let Some(worker) = holder.worker {
            holder.name = worker_name(db, worker)?;
        }
        (record.claimed, record.started) = (Some(claimed), started);
        record.last_holder = Some(holder);
    }
    Ok(())
}

fn last_error(db: &Connection, seq: i64, record: &JobRecord) -> Result<Option<String>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select error from attempt_row
             where seq = ? and life = ? and error is not null order by epoch desc limit 1",
        )
        .map_err(failed)?;
    select
        .query_row((seq, int(u64::from(record.life.get()))), |row| row.get(0))
        .optional()
        .map_err(failed)
}

pub(crate) fn worker_name(db: &Connection, worker: WorkerId) -> Result<Option<String>, StoreError> {
    let mut select = db.prepare_cached("select name from worker where id = ?").map_err(failed)?;
    select.query_row([worker.to_string()], |row| row.get(0)).optional().map_err(failed)
}

/// Returns dead letters that no server has handled yet, those of the oldest jobs first.
pub(crate) fn unhandled_letters(
    db: &Connection,
    max: u32,
) -> Result<Vec<UnhandledLetter>, StoreError> {
    let mut select = db
        .prepare_cached(
            "select j.id, f.life, c.queue, c.job_type, d.reason, d.at
             from dead_letter_row d join job_row j on j.seq = d.seq
             join finished f on f.seq = d.seq join class c on c.id = j.class
             where d.unhandled = 1 order by d.seq limit ?",
        )
        .map_err(failed)?;
    let rows = select
        .query_map([max], |row| {
            Ok(UnhandledLetter {
                key: LetterKey { job: row::job_id(row, 0)?, life: row::life(row, 1)? },
                queue: row.get(2)?,
                job_type: row.get(3)?,
                reason: row::parsed(row, 4, DeadLetterReason::parse)?,
                at: row::time(row, 5)?,
            })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}
