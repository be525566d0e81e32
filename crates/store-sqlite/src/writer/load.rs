//! Loading a job where it is.
//!
//! A job is in exactly one of ready, waiting, active, finished; a cancelled one whose
//! process tree is awaited is in active and finished.

use std::sync::Arc;

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, Holder, Job, State, Turn};
use outlast_store::StoreError;
use outlast_store::command::{ClassId, ClassKey, Payload};
use outlast_store::job::rank;
use outlast_store::record::StoredJob;
use outlast_store_rules::apply::loaded::{ActiveAttempt, Loaded, Location};
use outlast_store_rules::codec;
use rusqlite::{OptionalExtension as _, Row, ToSql};

use crate::row::{self, failed};
use crate::writer::Tx;

/// Reads the columns seq, id, class, priority, args, meta, extra, rules, `timeout_ms`,
/// `visibility_ms`, `strand_ms`, origin, created, `scheduled_for`, keys.
pub(crate) fn stored(
    row: &Row<'_>,
    key_of: impl FnOnce(ClassId) -> Result<Arc<ClassKey>, StoreError>,
) -> Result<(i64, StoredJob), StoreError> {
    let class = ClassId(row.get(2).map_err(failed)?);
    let key = key_of(class)?;
    let rules: Option<String> = row.get(7).map_err(failed)?;
    let rules = codec::rules_of(rules.as_deref())?;
    let keys: Option<String> = row.get(14).map_err(failed)?;
    let keys = codec::keys_of(keys.as_deref())?;
    let read = || -> rusqlite::Result<(i64, StoredJob)> {
        let job = StoredJob {
            id: row::job_id(row, 1)?,
            class,
            key,
            keys,
            priority: row.get(3)?,
            payload: Payload { args: row.get(4)?, meta: row.get(5)?, extra: row.get(6)? },
            rules,
            timeout: row::span_opt(row, 8)?,
            visibility: row::span_opt(row, 9)?,
            scheduled_timeout: row::scheduled_timeout(row.get(10)?),
            origin: row::origin_of(row.get(11)?),
            created: row::time(row, 12)?,
            scheduled_for: row::time_opt(row, 13)?,
        };
        Ok((row.get(0)?, job))
    };
    read().map_err(failed)
}

/// How many columns [`stored`] reads.
const STORED_COLUMNS: usize = 15;
/// How many columns [`active`] reads.
const ACTIVE_COLUMNS: usize = 14;

/// A job without its payload, which no move looks at, and its attempt if it is held.
macro_rules! moving {
    () => {
        "select j.seq, j.id, j.class, j.priority, '', '', '', j.rules, j.timeout_ms,
                j.visibility_ms, j.strand_ms, j.origin, j.created, j.scheduled_for, j.keys,
                a.epoch, a.life, a.failures, a.losses, a.interruptions, a.isolated, a.worker,
                a.plain, a.claimed, a.started, a.visibility_ms, a.cancelled, a.pack_digest, a.gates,
                exists (select 1 from checkpoint k where k.seq = j.seq)
         from job_row j left join active a on a.seq = j.seq "
    };
}

/// Reads the attempt under way, if there is one, from column `at` on.
fn active(
    row: &Row<'_>,
    at: usize,
    stored: &StoredJob,
) -> rusqlite::Result<Option<(Job, Location)>> {
    if row.get_ref(at)? == rusqlite::types::ValueRef::Null {
        return Ok(None);
    }
    let attempt = ActiveAttempt {
        worker: row::worker_opt(row, at + 6)?,
        plain: row.get(at + 7)?,
        claimed: row::time(row, at + 8)?,
        started: row::time_opt(row, at + 9)?,
        visibility: row::span_opt(row, at + 10)?,
        cancelled: row.get(at + 11)?,
        pack_digest: row.get(at + 12)?,
        gates: row::gates_of(row, at + 13)?,
    };
    let state = if attempt.cancelled { State::Cancelled } else { State::Active };
    let job = Job {
        state,
        epoch: row::epoch(row, at)?,
        life: row::life(row, at + 1)?,
        spent: row::spent(row, at + 2)?,
        isolated: row.get(at + 5)?,
        holder: Some(Holder { worker: attempt.worker, started: attempt.started }),
        rules: stored.rules.clone(),
    };
    Ok(Some((job, Location::Active(attempt))))
}

impl Tx<'_> {
    pub(crate) fn stored_by_seq(&self, seq: i64) -> Result<Arc<StoredJob>, StoreError> {
        const JOB: &str = "select seq, id, class, priority, args, meta, extra, rules, timeout_ms,
                                  visibility_ms, strand_ms, origin, created, scheduled_for, keys
                           from job_row where seq = ?";
        self.statements.run(JOB, |select| {
            let mut rows = select.query([seq]).map_err(failed)?;
            let Some(row) = rows.next().map_err(failed)? else {
                return Err(StoreError::Corrupt(format!("no job row {seq}")));
            };
            let (_, job) = stored(row, |class| self.cache.classes.key(class).cloned())?;
            Ok(Arc::new(job))
        })
    }

    /// Loads a job by its id; `None` when there is none.
    pub(crate) fn load_by_id(&self, id: JobId) -> Result<Option<Loaded>, StoreError> {
        self.look(concat!(moving!(), "where j.id = ?"), id.0.as_bytes().as_slice())
    }

    /// Loads a job wherever it is.
    pub(crate) fn load(&self, seq: i64) -> Result<Loaded, StoreError> {
        let found = self.look(concat!(moving!(), "where j.seq = ?"), seq)?;
        found.ok_or_else(|| StoreError::Corrupt(format!("no job row {seq}")))
    }

    /// Reports are mostly about held jobs: one statement finds the job and its attempt.
    fn look(&self, sql: &'static str, key: impl ToSql) -> Result<Option<Loaded>, StoreError> {
        self.statements.run(sql, |select| {
            let mut rows = select.query([key]).map_err(failed)?;
            rows.next().map_err(failed)?.map(|row| self.loaded(row)).transpose()
        })
    }

    fn loaded(&self, row: &Row<'_>) -> Result<Loaded, StoreError> {
        let (seq, stored) = stored(row, |class| self.cache.classes.key(class).cloned())?;
        let checkpoint = row.get(STORED_COLUMNS + ACTIVE_COLUMNS).map_err(failed)?;
        let found = match active(row, STORED_COLUMNS, &stored).map_err(failed)? {
            Some(found) => Some(found),
            None => self.load_elsewhere(seq, &stored)?,
        };
        let (job, location) =
            found.ok_or_else(|| StoreError::Corrupt(format!("job {} is nowhere", stored.id)))?;
        Ok(Loaded { seq, stored: Arc::new(stored), job, location, checkpoint })
    }

    fn load_elsewhere(
        &self,
        seq: i64,
        stored: &StoredJob,
    ) -> Result<Option<(Job, Location)>, StoreError> {
        let resting = |row: &Row<'_>, location: Location| -> rusqlite::Result<(Job, Location)> {
            let job = Job {
                state: row::state(row, 0)?,
                epoch: row::epoch(row, 1)?,
                life: row::life(row, 2)?,
                spent: row::spent(row, 3)?,
                isolated: row.get(6)?,
                holder: None,
                rules: stored.rules.clone(),
            };
            Ok((job, location))
        };
        let mut finished = self
            .db
            .prepare_cached(
                "select f.state, f.epoch, f.life, f.failures, f.losses, f.interruptions, f.isolated,
                        (select d.reason from dead_letter_row d where d.seq = f.seq)
                 from finished f where f.seq = ?",
            )
            .map_err(failed)?;
        let found = finished
            .query_row([seq], |row| {
                let letter = row::parsed_opt(row, 7, DeadLetterReason::parse)?;
                resting(row, Location::Finished(letter))
            })
            .optional()
            .map_err(failed)?;
        if found.is_some() {
            return Ok(found);
        }
        let mut waiting = self
            .db
            .prepare_cached(
                "select state, epoch, life, failures, losses, interruptions, isolated
                 from waiting where seq = ?",
            )
            .map_err(failed)?;
        let found = waiting
            .query_row([seq], |row| resting(row, Location::Waiting))
            .optional()
            .map_err(failed)?;
        if found.is_some() {
            return Ok(found);
        }
        self.load_ready(seq, stored)
    }

    /// Looks in the at most four places where a claimable job can be.
    fn load_ready(
        &self,
        seq: i64,
        stored: &StoredJob,
    ) -> Result<Option<(Job, Location)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select r.class, r.rank, r.epoch, r.life, r.failures, r.losses, r.interruptions,
                        r.since, c.isolated
                 from class base
                 join class c on c.queue = base.queue and c.job_type = base.job_type
                     and c.route = base.route and c.tenant = base.tenant
                     and c.keyed = base.keyed
                 join ready r on r.class = c.id and r.rank in (?2, ?3) and r.seq = ?4
                 where base.id = ?1",
            )
            .map_err(failed)?;
        let ranks = (rank(stored.priority, Turn::InOrder), rank(stored.priority, Turn::Front));
        select
            .query_row((stored.class.0, ranks.0, ranks.1, seq), |row| {
                let job = Job {
                    state: State::Available,
                    epoch: row::epoch(row, 2)?,
                    life: row::life(row, 3)?,
                    spent: row::spent(row, 4)?,
                    isolated: row.get(8)?,
                    holder: None,
                    rules: stored.rules.clone(),
                };
                let location = Location::Ready {
                    class: ClassId(row.get(0)?),
                    rank: row.get(1)?,
                    since: row::time(row, 7)?,
                };
                Ok((job, location))
            })
            .optional()
            .map_err(failed)
    }

    /// Counts attempts of a worker.
    pub(crate) fn count(&self, sql: &str, worker: WorkerId) -> Result<u32, StoreError> {
        let mut count = self.db.prepare_cached(sql).map_err(failed)?;
        count.query_row([worker.0.as_bytes().as_slice()], |row| row.get(0)).map_err(failed)
    }
}
