//! Loading a job where it is, locked.
//!
//! A job is in exactly one of ready, waiting, active, finished; a cancelled one whose
//! process tree is awaited is in active and finished. Each statement sees what is committed
//! when it begins, so a job that another server moves meanwhile may be seen nowhere: then
//! it is looked for again.
//!
//! Tables are joined and sorted so that no index is read as a whole: see
//! [`crate::connect::Address::writer_settings`].

use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::job::{DeadLetterReason, Holder, Job, State};
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store_rules::apply::loaded::{ActiveAttempt, Loaded, Location};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::{Conflict, Failure};
use crate::row::{self, STORED, get, moving_columns};
use crate::writer::Tx;

/// How often a job that moves under our eyes is looked for.
const LOOKS: u32 = 20;

/// Columns after the immutable part: whether there is a checkpoint, then epoch, life, the
/// budgets, and whether it must run alone. The checkpoint is looked for by a subquery that
/// no plan can turn into one read of all checkpoints, as `exists` was.
macro_rules! moving {
    ($alias:literal) => {
        concat!(
            moving_columns!(),
            ", coalesce((select true from checkpoint k where k.seq = j.seq), false), ",
            $alias,
            ".epoch, ",
            $alias,
            ".life, ",
            $alias,
            ".failures, ",
            $alias,
            ".losses, ",
            $alias,
            ".interruptions, "
        )
    };
}

/// Columns of held jobs after those of [`moving`].
macro_rules! of_active {
    () => {
        "a.isolated, a.worker, a.plain, a.claimed, a.started, a.visibility_ms, a.cancelled,
             a.pack_digest, a.gates"
    };
}

/// Selects held jobs; a condition, an order and a lock follow.
macro_rules! select_active {
    ($rest:expr) => {
        concat!(
            "select ",
            moving!("a"),
            of_active!(),
            " from active a join job_row j on j.seq = any(array[a.seq]) ",
            $rest
        )
    };
}
pub(super) use of_active;
pub(super) use select_active;

/// Selects waiting jobs.
macro_rules! select_waiting {
    ($rest:expr) => {
        concat!(
            "select ",
            moving!("w"),
            "w.isolated, w.state
             from waiting w join job_row j on j.seq = any(array[w.seq]) ",
            $rest
        )
    };
}
pub(super) use select_waiting;

/// Selects claimable jobs.
macro_rules! select_ready {
    ($rest:expr) => {
        concat!(
            "select ",
            moving!("r"),
            "c.isolated, r.class, r.rank, r.since
             from ready r join class c on c.id = any(array[r.class])
                 join job_row j on j.seq = any(array[r.seq]) ",
            $rest
        )
    };
}
pub(super) use moving;
pub(super) use select_ready;

macro_rules! active_by_id {
    ($how:literal) => {
        concat!(
            "select ",
            moving!("a"),
            of_active!(),
            " from job_row j join active a on a.seq = any(array[j.seq])
             where j.id = any($1::uuid[]) order by a.seq + 0 for update of a",
            $how
        )
    };
}

macro_rules! waiting_by_id {
    ($how:literal) => {
        concat!(
            "select ",
            moving!("w"),
            "w.isolated, w.state
             from job_row j join waiting w on w.seq = any(array[j.seq])
             where j.id = any($1::uuid[]) order by w.seq + 0 for update of w",
            $how
        )
    };
}

macro_rules! finished_by_id {
    ($how:literal) => {
        concat!(
            "select ",
            moving!("f"),
            "f.isolated, f.state,
                 (select d.reason from dead_letter_row d where d.seq = f.seq)
             from job_row j join finished f on f.seq = any(array[j.seq])
             where j.id = any($1::uuid[])
                 and not exists (select 1 from active a where a.seq = any(array[f.seq]))
             order by f.seq + 0 for update of f",
            $how
        )
    };
}

/// A claimable job is at one of four places: in its class or the isolated twin, in order or
/// at the front. Each place is a range of one row: with a list of ranks, a plan that was made before
/// there were statistics read all of the class, and with one rank the whole index.
macro_rules! ready_by_id {
    ($how:literal) => {
        concat!(
            "select ",
            moving!("r"),
            "c.isolated, r.class, r.rank, r.since
             from job_row j
             join class b on b.id = any(array[j.class])
             join class c on c.queue = any(array[b.queue]) and c.job_type = b.job_type
                 and c.route = b.route and c.tenant = b.tenant and c.keyed = b.keyed
             cross join lateral (values (0), (1)) front(by)
             join ready r on (r.class, r.rank, r.seq)
                     >= (c.id, -2 * j.priority::bigint - front.by, j.seq)
                 and (r.class, r.rank, r.seq)
                     <= (c.id, -2 * j.priority::bigint - front.by, j.seq)
             where j.id = any($1::uuid[]) order by r.seq + 0 for update of r",
            $how
        )
    };
}

/// Reads a job that was found in some table.
pub(super) type Of<W> = fn(&W, &Row) -> Result<Loaded, StoreError>;

const EPOCH: usize = STORED + 1;
const MORE: usize = EPOCH + 6;

impl Tx<'_> {
    /// Reads a row of [`select_active`].
    pub(super) fn of_active(&self, row: &Row) -> Result<Loaded, StoreError> {
        let attempt = ActiveAttempt {
            worker: row::worker_opt(row, MORE)?,
            plain: get(row, MORE + 1)?,
            claimed: row::time(row, MORE + 2)?,
            started: row::time_opt(row, MORE + 3)?,
            visibility: row::span_opt(row, MORE + 4)?,
            cancelled: get(row, MORE + 5)?,
            pack_digest: get::<Option<&str>>(row, MORE + 6)?.map(Into::into),
            gates: row::gates(row, MORE + 7)?,
        };
        let state = if attempt.cancelled { State::Cancelled } else { State::Active };
        let holder = Some(Holder { worker: attempt.worker, started: attempt.started });
        self.live(row, state, holder, Location::Active(attempt))
    }

    /// Reads a row of [`select_waiting`].
    pub(super) fn of_waiting(&self, row: &Row) -> Result<Loaded, StoreError> {
        self.live(row, row::state(row, MORE)?, None, Location::Waiting)
    }

    /// Reads a row of [`select_ready`].
    pub(super) fn of_ready(&self, row: &Row) -> Result<Loaded, StoreError> {
        let location = Location::Ready {
            class: ClassId(get(row, MORE)?),
            rank: get(row, MORE + 1)?,
            since: row::time(row, MORE + 2)?,
        };
        self.live(row, State::Available, None, location)
    }

    fn of_finished(&self, row: &Row) -> Result<Loaded, StoreError> {
        let letter = row::parsed_opt(row, MORE + 1, DeadLetterReason::parse)?;
        self.live(row, row::state(row, MORE)?, None, Location::Finished(letter))
    }

    fn live(
        &self,
        row: &Row,
        state: State,
        holder: Option<Holder>,
        location: Location,
    ) -> Result<Loaded, StoreError> {
        let (seq, stored) = row::stored(row, |class| self.cache.classes.key(class).cloned())?;
        let job = Job {
            state,
            epoch: row::epoch(row, EPOCH)?,
            life: row::life(row, EPOCH + 1)?,
            spent: row::spent(row, EPOCH + 2)?,
            isolated: get(row, EPOCH + 5)?,
            holder,
            rules: stored.rules.clone(),
        };
        let checkpoint = get(row, STORED)?;
        Ok(Loaded { seq, stored: Arc::new(stored), job, location, checkpoint })
    }

    /// Reads rows of jobs that were found in one table.
    pub(super) async fn load_rows(
        &mut self,
        rows: &[Row],
        of: Of<Self>,
    ) -> Result<Vec<Loaded>, Failure> {
        self.learn_classes_of(rows).await?;
        let mut loaded = Vec::with_capacity(rows.len());
        for row in rows {
            loaded.push(of(self, row)?);
        }
        Ok(loaded)
    }

    /// Makes sure that the classes of these rows are known.
    pub(super) async fn learn_classes_of(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            ids.push(ClassId(get(row, 2)?));
        }
        self.learn_classes(ids).await
    }

    /// Takes a job by its id, locked; `None` when there is none.
    pub(super) async fn take_loaded(&mut self, id: JobId) -> Result<Option<Loaded>, Failure> {
        if let Some(live) = self.seen.jobs.remove(&id) {
            return Ok(Some(live));
        }
        if self.seen.absent.contains(&id) {
            return Ok(None);
        }
        self.look_for(vec![id.0]).await?;
        Ok(self.seen.jobs.remove(&id))
    }

    /// Loads and locks jobs wherever they are.
    pub(super) async fn look_for(&mut self, mut ids: Vec<Uuid>) -> Result<(), Failure> {
        let statements = vec![active_by_id(ids.clone())];
        let found = self.query_all(statements).await?;
        self.take_active(&found.concat(), &mut ids).await?;
        for _ in 0..LOOKS {
            if ids.is_empty() {
                return Ok(());
            }
            self.look_elsewhere(&mut ids).await?;
        }
        let words = format!("{} jobs changed concurrently", ids.len());
        Err(Failure::Again(Conflict::Locks, words))
    }

    /// Keeps held jobs that were found, and takes their ids off the list.
    pub(super) async fn take_active(
        &mut self,
        rows: &[Row],
        ids: &mut Vec<Uuid>,
    ) -> Result<(), Failure> {
        self.learn_classes_of(rows).await?;
        for row in rows {
            let live = self.of_active(row)?;
            self.seen.jobs.insert(live.stored.id, live);
        }
        ids.retain(|id| !self.seen.jobs.contains_key(&JobId(*id)));
        Ok(())
    }

    /// Loads and locks those of these jobs that are not locked; returns the others.
    pub(super) async fn look_for_free(&mut self, ids: Vec<Uuid>) -> Result<Vec<Uuid>, Failure> {
        let mut ids = ids;
        // One that moved while it was looked for is looked for again.
        for _ in 0..2 {
            if !ids.is_empty() {
                self.look_everywhere(&mut ids, &FREE).await?;
            }
        }
        Ok(ids)
    }

    async fn look_elsewhere(&mut self, ids: &mut Vec<Uuid>) -> Result<(), Failure> {
        self.look_everywhere(ids, &LOCKED).await
    }

    async fn look_everywhere(
        &mut self,
        ids: &mut Vec<Uuid>,
        places: &[&'static str; 4],
    ) -> Result<(), Failure> {
        let exist = Statement::new(
            "select id from job_row where id = any($1::uuid[])",
            values![ids.clone()],
        );
        let places = places.iter().map(|sql| Statement::new(sql, values![ids.clone()]));
        let found = self.query_all(std::iter::once(exist).chain(places).collect()).await?;
        for rows in found.iter().skip(1) {
            self.learn_classes_of(rows).await?;
        }
        let [exist, finished, waiting, ready, active] = found.as_slice() else {
            return Err(StoreError::Corrupt("answers are missing".into()).into());
        };
        let mut there = std::collections::HashSet::new();
        for row in exist {
            there.insert(get::<Uuid>(row, 0)?);
        }
        let read: [(&Vec<Row>, Of<Self>); 4] = [
            (finished, Self::of_finished),
            (waiting, Self::of_waiting),
            (ready, Self::of_ready),
            (active, Self::of_active),
        ];
        for (rows, of) in read {
            for row in rows {
                let live = of(self, row)?;
                self.seen.jobs.insert(live.stored.id, live);
            }
        }
        for id in ids.iter().filter(|id| !there.contains(*id)) {
            self.seen.absent.insert(JobId(*id));
        }
        ids.retain(|id| there.contains(id) && !self.seen.jobs.contains_key(&JobId(*id)));
        Ok(())
    }
}

/// Selects and locks the held ones of these jobs.
pub(super) fn active_by_id(ids: Vec<Uuid>) -> Statement {
    Statement::new(active_by_id!(""), values![ids])
}

/// Where a job may be, in the order of [`Tx::look_everywhere`]: waiting for a
/// transaction that has locked it.
const LOCKED: [&str; 4] =
    [finished_by_id!(""), waiting_by_id!(""), ready_by_id!(""), active_by_id!("")];

/// The same, but passing over what is locked.
const FREE: [&str; 4] = [
    finished_by_id!(" skip locked"),
    waiting_by_id!(" skip locked"),
    ready_by_id!(" skip locked"),
    active_by_id!(" skip locked"),
];
