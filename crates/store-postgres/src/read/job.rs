//! Jobs with everything about them.

use std::collections::HashMap;
use std::sync::Arc;

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{DeadLetterReason, State};
use outlast_core::limits::LISTED_BYTES_MAX;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{ClassKey, LetterKey};
use outlast_store::query::UnhandledLetter;
use outlast_store::record::{HolderRecord, JobRecord, Omitted};
use outlast_store_rules::list::Fit;
use tokio_postgres::Row;

use crate::read::Reader;
use crate::row::{self, STORED, get, stored_columns};

/// A job wherever its moving part is, its holder or latest attempt, its latest error and
/// its dead letter: one statement, so one moment. Claimable jobs are looked for one by one, and
/// only where the job is nowhere else: joined as a whole, all of them would be read. Arguments and
/// results that are longer than `$2` bytes are left out: their lengths are shown.
macro_rules! select_record {
    ($where:literal) => {
        concat!(
            "select ",
            stored_columns!(
                "case when octet_length(j.args) <= $2::bigint then j.args else '[]' end",
                "j.meta",
                "j.extra"
            ),
            ",
                k.queue, k.job_type, k.route, k.tenant, k.isolated, k.keyed,
                case when f.seq is not null then f.state when a.seq is not null then 'active'
                     when w.seq is not null then w.state
                     when r.seq is not null then 'available' end,
                coalesce(f.epoch, a.epoch, w.epoch, r.epoch),
                coalesce(f.life, a.life, w.life, r.life),
                coalesce(f.failures, a.failures, w.failures, r.failures),
                coalesce(f.losses, a.losses, w.losses, r.losses),
                coalesce(f.interruptions, a.interruptions, w.interruptions, r.interruptions),
                coalesce(f.isolated, a.isolated, w.isolated, r.isolated),
                f.at, f.attempt, f.shown,
                case when octet_length(f.result) <= $2 then f.result end, f.error, f.ended_by,
                w.due, coalesce(w.since, r.since),
                a.worker, a.plain, a.claimed, a.started, a.visible_until,
                t.worker, t.plain, t.claimed, t.started,
                e.error, d.reason, n.name,
                case when octet_length(j.args) > $2 then octet_length(j.args)::bigint end,
                case when octet_length(f.result) > $2 then octet_length(f.result)::bigint end
             from job_row j
             join class k on k.id = j.class
             left join finished f on f.seq = j.seq
             left join active a on a.seq = j.seq
             left join waiting w on w.seq = j.seq
             left join lateral (
                 select r.*, c.isolated from class c
                 join ready r on r.class = c.id and r.seq = j.seq
                     and r.rank = any(array[-2 * j.priority::bigint, -2 * j.priority::bigint - 1])
                 where f.seq is null and a.seq is null and w.seq is null
                     and c.queue = k.queue and c.job_type = k.job_type and c.route = k.route
                     and c.tenant = k.tenant and c.keyed = k.keyed
                 offset 0
             ) r on true
             left join lateral (
                 select t.* from attempt_row t where t.seq = j.seq order by t.epoch desc limit 1
             ) t on a.seq is null
             left join lateral (
                 select t.error from attempt_row t
                 where t.seq = j.seq and t.life = coalesce(f.life, a.life, w.life, r.life)
                     and t.error is not null
                 order by t.epoch desc limit 1
             ) e on true
             left join dead_letter_row d on d.seq = j.seq
             left join worker n on n.id = coalesce(a.worker, t.worker) ",
            $where
        )
    };
}

/// Returns the job of that id.
pub(crate) async fn by_id(reader: &Reader, id: JobId) -> Result<Option<JobRecord>, StoreError> {
    let found = reader.one(select_record!("where j.id = $1"), &[&id.0, &i64::MAX]).await?;
    found.map(|row| record(&row)).transpose()
}

/// How many jobs are asked for at once. If a page has no room for the first of them, the rest
/// was sent in vain.
const AT_ONCE: usize = 200;

/// Returns the jobs of these numbers that are wanted as lists show them, by number: in this order,
/// as many as there is room for on a page, and the first one that has none.
pub(crate) async fn listed(
    reader: &Reader,
    seqs: &[i64],
    is_wanted: impl Fn(&JobRecord) -> bool,
) -> Result<HashMap<i64, JobRecord>, StoreError> {
    let longest = i64::try_from(LISTED_BYTES_MAX).unwrap_or(i64::MAX);
    let (mut found, mut fit) = (HashMap::with_capacity(seqs.len()), Fit::default());
    for seqs in seqs.chunks(AT_ONCE) {
        let mut is_full = false;
        let sql = select_record!("where j.seq = any($1) order by j.seq desc");
        reader
            .each(sql, &[&seqs, &longest], |row| {
                let job = record(row)?;
                if is_wanted(&job) {
                    is_full = !fit.takes(job.bytes());
                    found.insert(get(row, 0)?, job);
                }
                Ok(!is_full)
            })
            .await?;
        if is_full {
            break;
        }
    }
    Ok(found)
}

const CLASS: usize = STORED;
const MOVING: usize = CLASS + 6;
const FINISHED: usize = MOVING + 7;
const WAITING: usize = FINISHED + 6;
const HOLDER: usize = WAITING + 2;
const LATEST: usize = HOLDER + 5;
const REST: usize = LATEST + 4;
const OMITTED: usize = REST + 3;

fn key(row: &Row) -> Result<Arc<ClassKey>, StoreError> {
    let tenant: String = get(row, CLASS + 3)?;
    let (route, placement) = outlast_store_rules::codec::route_of(get(row, CLASS + 2)?)?;
    Ok(Arc::new(ClassKey {
        queue: get(row, CLASS)?,
        job_type: get(row, CLASS + 1)?,
        route,
        tenant: (!tenant.is_empty()).then_some(tenant),
        isolated: get(row, CLASS + 4)?,
        keyed: get(row, CLASS + 5)?,
        placement,
    }))
}

fn record(row: &Row) -> Result<JobRecord, StoreError> {
    let (_, job) = row::stored(row, |_class| key(row))?;
    let state: Option<&str> = get(row, MOVING)?;
    let state = state.ok_or_else(|| StoreError::Corrupt(format!("job {} is nowhere", job.id)))?;
    let state =
        State::parse(state).ok_or_else(|| StoreError::Corrupt(format!("no state `{state}`")))?;
    let length =
        |at: usize| Ok::<_, StoreError>(get::<Option<i64>>(row, at)?.map(i64::unsigned_abs));
    let mut record = JobRecord {
        omitted: Omitted { args: length(OMITTED)?, result: length(OMITTED + 1)? },
        epoch: row::epoch(row, MOVING + 1)?,
        life: row::life(row, MOVING + 2)?,
        isolated: get(row, MOVING + 6)?,
        since: row::time_opt(row, WAITING + 1)?.unwrap_or(Timestamp(0)),
        due: row::time_opt(row, WAITING)?,
        ..JobRecord::new(Arc::new(job), state, row::spent(row, MOVING + 3)?)
    };
    if state.is_terminal() {
        let at = row::time(row, FINISHED)?;
        let shown: bool = get(row, FINISHED + 2)?;
        record.since = at;
        record.attempt = row::small(row, FINISHED + 1)?;
        record.finished = shown.then_some(at);
        record.result = get(row, FINISHED + 3)?;
        record.error = get(row, FINISHED + 4)?;
        record.ended_by = get(row, FINISHED + 5)?;
    }
    add_holder(row, &mut record)?;
    if record.error.is_none() && state != State::Completed {
        record.error = get(row, REST)?;
    }
    if state == State::Discarded {
        let reason: Option<&str> = get(row, REST + 1)?;
        record.dead_letter = reason.and_then(DeadLetterReason::parse);
    }
    Ok(record)
}

/// Adds who holds the attempt, or who held the latest.
fn add_holder(row: &Row, record: &mut JobRecord) -> Result<(), StoreError> {
    let name: Option<String> = get(row, REST + 2)?;
    let active: Option<Timestamp> = row::time_opt(row, HOLDER + 2)?;
    let at = if active.is_some() { HOLDER } else { LATEST };
    let Some(claimed) = row::time_opt(row, at + 2)? else { return Ok(()) };
    if record.epoch == Epoch::ZERO {
        return Ok(());
    }
    if record.state == State::Active {
        record.since = claimed;
        record.attempt = record.spent.failures.saturating_add(1);
    }
    let worker = row::worker_opt(row, at)?;
    let name = if worker.is_some() { name } else { get(row, at + 1)? };
    let latest = HolderRecord { worker, name, visible_until: None };
    (record.claimed, record.started) = (Some(claimed), row::time_opt(row, at + 3)?);
    if active.is_some() {
        let visible_until = row::time_opt(row, HOLDER + 4)?;
        record.holder = Some(HolderRecord { visible_until, ..latest.clone() });
    }
    record.last_holder = Some(latest);
    Ok(())
}

/// Returns dead letters that no server has handled yet, those of the oldest jobs first.
pub(crate) async fn unhandled_letters(
    reader: &Reader,
    max: u32,
) -> Result<Vec<UnhandledLetter>, StoreError> {
    let sql = "select j.id, f.life, c.queue, c.job_type, d.reason, d.at
         from dead_letter_row d join job_row j on j.seq = d.seq
         join finished f on f.seq = d.seq join class c on c.id = j.class
         where d.unhandled order by d.seq limit $1";
    let rows = reader.all(sql, &[&i64::from(max)]).await?;
    let letter = |row: &Row| {
        Ok(UnhandledLetter {
            key: LetterKey { job: row::job_id(row, 0)?, life: row::life(row, 1)? },
            queue: get(row, 2)?,
            job_type: get(row, 3)?,
            reason: row::parsed(row, 4, DeadLetterReason::parse)?,
            at: row::time(row, 5)?,
        })
    };
    rows.iter().map(letter).collect()
}
