//! Loading a job where it is, and applying a transition to it.
//!
//! A job is in exactly one of ready, waiting, active, finished; a cancelled one whose
//! process tree is awaited is in active and finished. A transition takes it out of its
//! place by a delete that names its epoch, and must hit exactly one row.

use std::sync::Arc;

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::{EventKind, Hold, Holder, Job, Outcome, Place, State, Transition, Turn};
use outlast_core::time::{Span, Timestamp};
use outlast_store::StoreError;
use outlast_store::codec;
use outlast_store::command::{ClassId, ClassKey, EndDetail, Payload};
use outlast_store::record::StoredJob;
use outlast_store::reply::Moved;
use outlast_store::settle::{Facts, events_of};
use rusqlite::{OptionalExtension as _, Row, ToSql};

use crate::row::{self, failed, int};
use crate::writer::Writing;

/// A job with where its row is.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) seq: i64,
    /// Its immutable part, the payload left out.
    pub(crate) stored: Arc<StoredJob>,
    pub(crate) job: Job,
    pub(crate) spot: Spot,
}

/// Where a job's moving part is.
#[derive(Debug)]
pub(crate) enum Spot {
    Ready {
        class: ClassId,
        rank: i64,
        since: Timestamp,
    },
    Waiting,
    /// Also of a cancelled job whose tree is awaited.
    Active(Held),
    Finished,
}

/// The row of an attempt under way.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) worker: Option<WorkerId>,
    pub(crate) plain: Option<String>,
    pub(crate) claimed: Timestamp,
    pub(crate) started: Option<Timestamp>,
    pub(crate) visibility: Option<Span>,
    pub(crate) cancelled: bool,
}

/// What else a transition leaves behind.
#[derive(Debug)]
pub(crate) struct Trace<'a> {
    pub(crate) kind: EventKind,
    pub(crate) by: &'a str,
    pub(crate) detail: &'a EndDetail,
    /// Why the job ended without an attempt; else empty.
    pub(crate) ended_by: &'static str,
}

/// Reads the columns seq, id, class, priority, args, meta, extra, rules, `timeout_ms`,
/// `visibility_ms`, `strand_ms`, origin, created, `scheduled_for`.
pub(crate) fn stored(
    row: &Row<'_>,
    key_of: impl FnOnce(ClassId) -> Result<Arc<ClassKey>, StoreError>,
) -> Result<(i64, StoredJob), StoreError> {
    let class = ClassId(row.get(2).map_err(failed)?);
    let key = key_of(class)?;
    let rules: Option<String> = row.get(7).map_err(failed)?;
    let rules = codec::rules_of(rules.as_deref())?;
    let read = || -> rusqlite::Result<(i64, StoredJob)> {
        let job = StoredJob {
            id: row::job_id(row, 1)?,
            class,
            key,
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
const STORED_COLUMNS: usize = 14;

/// A job without its payload, which no move looks at, and its attempt if it is held.
macro_rules! moving {
    () => {
        "select j.seq, j.id, j.class, j.priority, '', '', '', j.rules, j.timeout_ms,
                j.visibility_ms, j.strand_ms, j.origin, j.created, j.scheduled_for,
                a.epoch, a.life, a.failures, a.losses, a.interruptions, a.isolated, a.worker,
                a.plain, a.claimed, a.started, a.visibility_ms, a.cancelled
         from job_row j left join active a on a.seq = j.seq "
    };
}

/// Reads the attempt under way, if there is one, from column `at` on.
fn active(row: &Row<'_>, at: usize, stored: &StoredJob) -> rusqlite::Result<Option<(Job, Spot)>> {
    if row.get_ref(at)? == rusqlite::types::ValueRef::Null {
        return Ok(None);
    }
    let held = Held {
        worker: row::worker_opt(row, at + 6)?,
        plain: row.get(at + 7)?,
        claimed: row::time(row, at + 8)?,
        started: row::time_opt(row, at + 9)?,
        visibility: row::span_opt(row, at + 10)?,
        cancelled: row.get(at + 11)?,
    };
    let state = if held.cancelled { State::Cancelled } else { State::Active };
    let job = Job {
        state,
        epoch: row::epoch(row, at)?,
        life: row::life(row, at + 1)?,
        spent: row::spent(row, at + 2)?,
        isolated: row.get(at + 5)?,
        holder: Some(Holder { worker: held.worker, started: held.started }),
        rules: stored.rules.clone(),
    };
    Ok(Some((job, Spot::Active(held))))
}

/// Returns the rank of a job in its class: ascending rank is the order of claiming.
pub(crate) fn rank(priority: i8, turn: Turn) -> i64 {
    -2 * i64::from(priority) - i64::from(turn == Turn::Front)
}

impl Writing<'_> {
    pub(crate) fn stored_by_seq(&self, seq: i64) -> Result<Arc<StoredJob>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select seq, id, class, priority, args, meta, extra, rules, timeout_ms,
                        visibility_ms, strand_ms, origin, created, scheduled_for
                 from job_row where seq = ?",
            )
            .map_err(failed)?;
        let mut rows = select.query([seq]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else {
            return Err(StoreError::Corrupt(format!("no job row {seq}")));
        };
        let (_, job) = stored(row, |class| self.classes.key(class).cloned())?;
        Ok(Arc::new(job))
    }

    /// Loads a job by its id; `None` when there is none.
    pub(crate) fn find(&self, id: JobId) -> Result<Option<Live>, StoreError> {
        self.look(concat!(moving!(), "where j.id = ?"), id.0.as_bytes().as_slice())
    }

    /// Loads a job wherever it is.
    pub(crate) fn load(&self, seq: i64) -> Result<Live, StoreError> {
        let found = self.look(concat!(moving!(), "where j.seq = ?"), seq)?;
        found.ok_or_else(|| StoreError::Corrupt(format!("no job row {seq}")))
    }

    /// Reports are mostly about held jobs: one statement finds the job and its attempt.
    fn look(&self, sql: &str, key: impl ToSql) -> Result<Option<Live>, StoreError> {
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let mut rows = select.query([key]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
        let (seq, stored) = stored(row, |class| self.classes.key(class).cloned())?;
        let found = match active(row, STORED_COLUMNS, &stored).map_err(failed)? {
            Some(found) => Some(found),
            None => self.load_elsewhere(seq, &stored)?,
        };
        let (job, spot) =
            found.ok_or_else(|| StoreError::Corrupt(format!("job {} is nowhere", stored.id)))?;
        Ok(Some(Live { seq, stored: Arc::new(stored), job, spot }))
    }

    fn load_elsewhere(
        &self,
        seq: i64,
        stored: &StoredJob,
    ) -> Result<Option<(Job, Spot)>, StoreError> {
        let resting = |row: &Row<'_>, spot: Spot| -> rusqlite::Result<(Job, Spot)> {
            let job = Job {
                state: row::state(row, 0)?,
                epoch: row::epoch(row, 1)?,
                life: row::life(row, 2)?,
                spent: row::spent(row, 3)?,
                isolated: row.get(6)?,
                holder: None,
                rules: stored.rules.clone(),
            };
            Ok((job, spot))
        };
        let mut finished = self
            .db
            .prepare_cached(
                "select state, epoch, life, failures, losses, interruptions, isolated
                 from finished where seq = ?",
            )
            .map_err(failed)?;
        let found = finished
            .query_row([seq], |row| resting(row, Spot::Finished))
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
            .query_row([seq], |row| resting(row, Spot::Waiting))
            .optional()
            .map_err(failed)?;
        if found.is_some() {
            return Ok(found);
        }
        self.load_ready(seq, stored)
    }

    /// Looks in the at most four places where a claimable job can be.
    fn load_ready(&self, seq: i64, stored: &StoredJob) -> Result<Option<(Job, Spot)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select r.class, r.rank, r.epoch, r.life, r.failures, r.losses, r.interruptions,
                        r.since, c.isolated
                 from class base
                 join class c on c.queue = base.queue and c.job_type = base.job_type
                     and c.route = base.route and c.tenant = base.tenant
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
                let spot = Spot::Ready {
                    class: ClassId(row.get(0)?),
                    rank: row.get(1)?,
                    since: row::time(row, 7)?,
                };
                Ok((job, spot))
            })
            .optional()
            .map_err(failed)
    }

    /// Applies a transition and logs it.
    pub(crate) fn carry_out(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
    ) -> Result<Moved, StoreError> {
        let held = match &live.spot {
            Spot::Active(held) => Some(held),
            Spot::Ready { .. } | Spot::Waiting | Spot::Finished => None,
        };
        self.take_out(live, transition)?;
        let class = self.put_in(live, transition, trace)?;
        let mut outcome = None;
        if let (Hold::Drop(how), Some(held)) = (transition.hold, held) {
            outcome = Some(how);
            self.record_attempt((live, held), transition, how, trace)?;
        }
        if let Some(reason) = transition.dead_letter {
            self.execute(
                "insert or replace into dead_letter_row (seq, reason, at) values (?, ?, ?)",
                (live.seq, reason.as_str(), self.now.0),
            )?;
        }
        self.keep_checkpoint(live.seq, transition, trace.detail)?;
        if let Some(at) = live.stored.rules.expires_at
            && !transition.to.is_terminal()
        {
            self.execute("insert or ignore into expiry (at, seq) values (?, ?)", (at.0, live.seq))?;
        }
        let worker = held.and_then(|held| held.worker);
        self.tell(live, transition, trace, held);
        Ok(Moved {
            job: live.stored.id,
            class,
            from: transition.from,
            state: transition.to,
            epoch: transition.next_epoch,
            attempt: transition.attempt,
            due: match transition.place {
                Place::Timer(due) => Some(due),
                Place::Ready(_) | Place::Pending | Place::Held | Place::Ended => None,
            },
            outcome,
            holder: worker.filter(|_| outcome.is_none()),
            dead_letter: transition.dead_letter.is_some(),
            at: self.now,
        })
    }

    fn tell(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
        held: Option<&Held>,
    ) {
        let began = held.map(|held| held.started.or(trace.detail.started).unwrap_or(held.claimed));
        let facts = Facts {
            job: &live.stored,
            kind: trace.kind,
            worker: held.and_then(|held| held.worker),
            began,
            at: self.now,
            by: trace.by,
            evidence: &trace.detail.evidence,
        };
        self.events.extend(events_of(&facts, transition));
    }

    /// The compare-and-set: the row goes only if it is where and what it was read as.
    fn take_out(&self, live: &Live, transition: &Transition) -> Result<(), StoreError> {
        let epoch = int(transition.epoch.0);
        let gone = match (&live.spot, transition.hold) {
            (Spot::Ready { class, rank, .. }, _) => self.execute(
                "delete from ready where class = ? and rank = ? and seq = ? and epoch = ?",
                (class.0, rank, live.seq, epoch),
            )?,
            (Spot::Waiting, _) => self.execute(
                "delete from waiting where seq = ? and epoch = ? and state = ?",
                (live.seq, epoch, transition.from.as_str()),
            )?,
            (Spot::Active(_), Hold::Keep(holder)) => self.execute(
                "update active set started = ?, cancelled = ? where seq = ? and epoch = ?",
                (holder.started.map(|at| at.0), transition.to == State::Cancelled, live.seq, epoch),
            )?,
            (Spot::Active(_), _) => {
                self.execute("delete from active where seq = ? and epoch = ?", (live.seq, epoch))?
            }
            (Spot::Finished, _) => {
                self.execute("delete from dead_letter_row where seq = ?", [live.seq])?;
                self.execute(
                    "delete from finished where seq = ? and epoch = ? and state = ?",
                    (live.seq, epoch, transition.from.as_str()),
                )?
            }
        };
        if gone == 1 {
            Ok(())
        } else {
            let id = live.stored.id;
            Err(StoreError::Corrupt(format!("job {id} moved while the writer held it")))
        }
    }

    fn put_in(
        &mut self,
        live: &Live,
        transition: &Transition,
        trace: &Trace<'_>,
    ) -> Result<ClassId, StoreError> {
        let own = live.stored.class;
        match transition.place {
            Place::Ready(turn) => {
                let class = self.classes.twin(self.db, own, transition.isolated)?;
                self.insert_ready((live.seq, &live.stored), class, turn, transition)?;
                return Ok(class);
            }
            Place::Timer(_) | Place::Pending => self.insert_waiting(live.seq, transition)?,
            Place::Held => {}
            // A cancelled job's terminal row was made when it was cancelled.
            Place::Ended if transition.from == State::Cancelled => {}
            Place::Ended => self.insert_finished(live.seq, transition, trace)?,
        }
        Ok(own)
    }

    pub(super) fn insert_ready(
        &self,
        (seq, stored): (i64, &StoredJob),
        class: ClassId,
        turn: Turn,
        to: &Transition,
    ) -> Result<(), StoreError> {
        self.execute(
            "insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions,
                                since, strand_ms)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                class.0,
                rank(stored.priority, turn),
                seq,
                int(to.next_epoch.0),
                to.life.get(),
                to.spent.failures,
                to.spent.losses,
                to.spent.interruptions,
                self.now.0,
                row::strand_ms(stored.scheduled_timeout),
            ),
        )?;
        Ok(())
    }

    pub(super) fn insert_waiting(&self, seq: i64, to: &Transition) -> Result<(), StoreError> {
        let due = match to.place {
            Place::Timer(due) => Some(due.0),
            Place::Ready(_) | Place::Pending | Place::Held | Place::Ended => None,
        };
        self.execute(
            "insert into waiting (seq, state, due, epoch, life, failures, losses, interruptions,
                                  isolated, since)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                seq,
                to.to.as_str(),
                due,
                int(to.next_epoch.0),
                to.life.get(),
                to.spent.failures,
                to.spent.losses,
                to.spent.interruptions,
                to.isolated,
                self.now.0,
            ),
        )?;
        Ok(())
    }

    fn insert_finished(
        &self,
        seq: i64,
        to: &Transition,
        trace: &Trace<'_>,
    ) -> Result<(), StoreError> {
        let completed = to.to == State::Completed;
        let result = trace.detail.result.as_ref().filter(|_| completed);
        // An attempt's error is kept with the attempt.
        let error = trace.detail.error.as_ref().filter(|_| !matches!(to.hold, Hold::Drop(_)));
        self.execute(
            "insert into finished (seq, state, at, epoch, life, failures, losses, interruptions,
                                   isolated, attempt, shown, result, error, ended_by)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                seq,
                to.to.as_str(),
                self.now.0,
                int(to.next_epoch.0),
                to.life.get(),
                to.spent.failures,
                to.spent.losses,
                to.spent.interruptions,
                to.isolated,
                to.attempt,
                trace.ended_by != "expired",
                result,
                error,
                trace.ended_by,
            ],
        )?;
        Ok(())
    }

    fn record_attempt(
        &self,
        (live, held): (&Live, &Held),
        to: &Transition,
        outcome: Outcome,
        trace: &Trace<'_>,
    ) -> Result<(), StoreError> {
        let started = held.started.or(trace.detail.started);
        self.execute(
            "insert into attempt_row (seq, epoch, life, number, worker, plain, claimed, started,
                                      finished, outcome, next_state, error, exit_code, by, evidence)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                live.seq,
                int(to.epoch.0),
                live.job.life.get(),
                live.job.running_attempt(),
                held.worker.map(|worker| *worker.0.as_bytes()),
                held.plain,
                held.claimed.0,
                started.map(|at| at.0),
                self.now.0,
                outcome.as_str(),
                to.to.as_str(),
                trace.detail.error,
                trace.detail.exit_code,
                trace.by,
                trace.detail.evidence,
            ],
        )?;
        Ok(())
    }

    fn keep_checkpoint(
        &self,
        seq: i64,
        to: &Transition,
        detail: &EndDetail,
    ) -> Result<(), StoreError> {
        if to.to.is_terminal() {
            self.execute("delete from checkpoint where seq = ?", [seq])?;
        } else if let Some(bytes) = &detail.checkpoint {
            self.execute(
                "insert or replace into checkpoint (seq, bytes) values (?, ?)",
                (seq, bytes),
            )?;
        }
        Ok(())
    }

    /// Runs a statement; returns how many rows it changed.
    pub(crate) fn execute(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<usize, StoreError> {
        self.db.prepare_cached(sql).and_then(|mut sql| sql.execute(params)).map_err(failed)
    }

    /// Returns how many attempts a worker holds, cancelled ones included.
    pub(crate) fn count_held(&self, worker: WorkerId) -> Result<u32, StoreError> {
        let mut count = self
            .db
            .prepare_cached("select count(*) from active where worker = ?")
            .map_err(failed)?;
        count.query_row([worker.0.as_bytes().as_slice()], |row| row.get(0)).map_err(failed)
    }

    /// Returns whether a worker holds exactly one attempt of a job that is not cancelled.
    pub(crate) fn holds_one(&self, worker: Option<WorkerId>) -> Result<bool, StoreError> {
        let Some(worker) = worker else { return Ok(false) };
        let mut count = self
            .db
            .prepare_cached("select count(*) from active where worker = ? and not cancelled")
            .map_err(failed)?;
        let held: u32 =
            count.query_row([worker.0.as_bytes().as_slice()], |row| row.get(0)).map_err(failed)?;
        Ok(held == 1)
    }
}
