//! A connection that writes: a transaction a batch, commands in order.
//!
//! ```text
//! begin, mark, time, workers, jobs     one round trip: everything locked in one order
//!   ─▶ each command: decide, note what it writes (claims and sweeps look for themselves)
//!   ─▶ writes by table, the batch's events, commit               one round trip
//! ```
//!
//! The optimistic path skips the first: it decides with what this server remembers of the attempts
//! that it gave out ([`AttemptCache`]) and sends its opening with its first statement. The
//! compare-and-set of each row validates what was remembered. If that was stale, the batch is
//! rolled back and tried again with locks.
//!
//! A batch that only stores claimable jobs is one statement, which is its transaction.
//!
//! - [`prefetch`]: what a batch needs, loaded and locked ahead
//! - [`attempt_cache`]: what is remembered of attempts that were given out
//! - [`write_set`]: what a batch writes, by table
//! - [`seen`]: what a batch has read, by which it decides
//! - [`load`]: loading a job where it is; [`transition`]: moving it
//! - [`backend`]: the transaction as [`outlast_store_rules::backend`] sees it
//! - [`enqueue`], [`unique`], [`idempotency`], [`arrival`], [`claim`], [`extend`], [`workers`], [`sweep`],
//!   [`log`], [`prune`], [`retire`], [`schedule`], [`workflow`], [`browser_session`], [`operation`],
//!   [`leadership`]: SQL of the
//!   commands
//! - [`limit`]: limits; [`lanes`]: claims of jobs that limits may hold back
//! - [`depth`]: how full bounded queues are
//! - [`outcome`]: what became of a batch whose commit was not confirmed
//! - [`patience`]: how long locks and statements are waited for; [`blocker`]: whose locks these are
//! - [`commit`]: the end of a batch; [`tally`]: the live counts that it changes
//! - [`slots`]: how rows that every batch changes stay cheap
//! - [`classes`]: what is known of classes without asking
//!
//! Locks are taken in one order (workers by id, then jobs by number; claims and sweeps pass
//! over what is locked), so that servers do not wait for each other in a ring. A batch that
//! collides all the same is rolled back and tried again whole. No batch takes effect twice,
//! also not one that PostgreSQL carries out long after it was given up: the row in
//! `batch_slot` that each one changes first refuses it.

mod arrival;
mod attempt_cache;
mod backend;
mod blocker;
mod browser_session;
mod claim;
mod classes;
mod commit;
mod deal;
mod depth;
mod enqueue;
mod extend;
mod fitting;
mod idempotency;
mod lanes;
mod leadership;
mod limit;
mod load;
mod log;
mod operation;
mod outcome;
mod patience;
mod prefetch;
mod prune;
mod ranges;
mod retire;
mod schedule;
mod seen;
mod slots;
mod sweep;
mod tally;
mod time;
mod transition;
mod unique;
mod workers;
mod workflow;
mod write_set;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::time::Timestamp;
use outlast_store::error::ChosenJob;
use outlast_store::{Applied, Batch, BatchId, Clock, StoreError};
use outlast_store_rules::apply::batch::BatchState;
use outlast_store_rules::apply::claim::fair::Shares;
use outlast_store_rules::apply::claim::gates::Gates;
use outlast_store_rules::apply::claim::lane_cache::LaneCache;
use outlast_store_rules::apply::claim::scan_budget::ScanBudget;
use outlast_store_rules::backend::execute_all;
use outlast_store_rules::prune::PruneCursors;
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::Address;
use crate::connection::{Connection, Statement, Value};
use crate::failure::{Conflict, Failure};
use crate::floors::hold::AllHolds;
use crate::floors::look::AllFloors;
use crate::silence::{ConnectionId, Silence};
use attempt_cache::AttemptCache;
use blocker::Blocker;
use classes::Classes;
use commit::Done;
use depth::{Bounds, KnownBounds};
use fitting::ClaimLength;
use lanes::Claiming;
use limit::LimitCache;
use outcome::{Miss, Unresolved, the_only};
use patience::Patience;
pub(crate) use patience::STATEMENT_LIMIT;
use prefetch::Take;
use seen::Seen;
use slots::Slots;
pub(crate) use time::Time;
use write_set::WriteSet;

/// How often a batch that collides with other transactions is tried.
const TRIES: u32 = 8;
/// Pause before the second try; each later one doubles it.
const PAUSE: Duration = Duration::from_millis(5);
/// How often it is tried while an earlier batch of the server is under way: each try waits for it.
const TRIES_BEHIND: u32 = 3;
/// Longest that rolling back, or looking a batch up may take.
const SHORT_LIMIT: Duration = Duration::from_secs(3);

/// What writes. One caller at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    address: Address,
    clock: Option<Arc<dyn Clock>>,
    connection: Option<Connection>,
    cache: Cache,
    /// Which queues are bounded; `None` to ask.
    known_bounds: Option<Arc<KnownBounds>>,
    cursors: PruneCursors,
    time: Arc<Time>,
    floors: AllFloors,
    /// What a batch did if its commit, which was sent, took effect. It outlives the try, so
    /// that one which is given up for silence is known to be unconfirmed.
    unconfirmed: Option<Done>,
    unresolved: Option<Unresolved>,
    silence: Arc<Silence>,
    /// How long it waits for locks and statements.
    patience: Patience,
    blocker: Blocker,
    /// How many tries of batches failed.
    tried_again: u64,
    /// Servers that are known to have their row and a lane.
    marked: HashSet<Uuid>,
}

/// What the writer remembers from batch to batch. A batch changes it as it goes.
#[derive(Debug, Default)]
struct Cache {
    classes: Classes,
    limits: LimitCache,
    lane_cache: LaneCache,
    /// What shares of queues have had, as far as this server gave it out.
    shares: Shares,
    attempt_cache: AttemptCache,
    slots: Slots,
    claim_length: ClaimLength,
    /// The jobs that claims of the present try have chosen.
    chosen: Vec<ChosenJob>,
}

impl Writer {
    pub(crate) fn new(
        address: Address,
        clock: Option<Arc<dyn Clock>>,
        time: Arc<Time>,
        silence: Arc<Silence>,
        reach: ScanBudget,
    ) -> Self {
        let patience = Patience::new(address.statement_limit());
        Self {
            address,
            clock,
            connection: None,
            cache: Cache { lane_cache: LaneCache::new(reach), ..Cache::default() },
            known_bounds: None,
            cursors: PruneCursors::default(),
            time,
            floors: AllFloors::new(),
            unconfirmed: None,
            unresolved: None,
            silence,
            patience,
            blocker: Blocker::default(),
            tried_again: 0,
            marked: HashSet::new(),
        }
    }

    /// Uses the floors that the process's writers and readers share.
    pub(crate) fn sharing(mut self, floors: AllFloors) -> Self {
        self.floors = floors;
        self
    }

    /// Applies a batch: once, whatever becomes of connections on the way.
    pub(crate) async fn apply(&mut self, batch: &Batch) -> Result<Applied, StoreError> {
        let mut sent = Vec::new();
        self.unresolved = None;
        let applied = match self.apply_once(batch, &mut sent).await {
            // It was not there when it was looked for, but PostgreSQL may have the whole of it
            // yet to read.
            Err(StoreError::Unavailable(words) | StoreError::Locked(words)) if !sent.is_empty() => {
                Err(StoreError::Ambiguous(words))
            }
            Err(StoreError::Slow(slow)) if !sent.is_empty() => {
                Err(StoreError::Ambiguous(slow.words))
            }
            applied => applied,
        };
        if matches!(applied, Err(StoreError::Ambiguous(_))) {
            self.unresolved = Some(Unresolved { id: batch.id, sent, number_spent: false });
        }
        applied
    }

    /// Tries until the outcome of the batch is known. `sent` is what earlier tries did, if the
    /// commit of one takes effect after it was looked for.
    async fn apply_once(
        &mut self,
        batch: &Batch,
        sent: &mut Vec<Done>,
    ) -> Result<Applied, StoreError> {
        let end = Instant::now() + self.patience.of_batch();
        let mut locked = false;
        let mut last = String::new();
        for try_number in 0..TRIES {
            if try_number > 0 {
                tokio::time::sleep(PAUSE * 2_u32.saturating_pow(try_number - 1)).await;
            }
            if Instant::now() >= end {
                return Err(StoreError::Unavailable(format!("no answer in time: {last}")));
            }
            // The connection is only put back when it is clean, so a future that is dropped
            // half-way leaves no half transaction behind.
            let reused = self.usable();
            let fresh = reused.is_none();
            let mut connection = self.ready(reused, batch.id).await?;
            let (brief, began) = (self.patience.brief(batch), Instant::now());
            let miss = match self.attempt_until(end, &mut connection, batch, locked).await {
                Ok(applied) => {
                    self.patience.went_through(batch, began.elapsed());
                    self.connection = Some(connection);
                    return Ok(applied);
                }
                Err(miss) => miss,
            };
            // What is remembered of other attempts is as true as before.
            self.tried_again += 1;
            match miss {
                Miss::Failed(Failure::Again(conflict, words)) => {
                    locked |= matches!(conflict, Conflict::Key | Conflict::Stale);
                    last = self.collided(batch.id, conflict, words, connection.line());
                    // What this try has locked must be free for the next one: claims pass over it.
                    self.roll_back(connection).await;
                    self.look_again(conflict);
                    if conflict == Conflict::Slot && try_number + 1 >= TRIES_BEHIND {
                        return Err(StoreError::Unavailable(last));
                    }
                }
                Miss::Failed(Failure::Locked(words)) => {
                    last = self.blocker.met(&self.address, connection.line(), &words);
                    self.roll_back(connection).await;
                    if self.patience.was_locked() {
                        return Err(StoreError::Locked(last));
                    }
                }
                Miss::Failed(Failure::Slow(words)) => {
                    self.roll_back(connection).await;
                    return Err(self.was_slow(batch, brief, words));
                }
                Miss::Failed(Failure::Applied(words)) => {
                    self.roll_back(connection).await;
                    return Ok(the_only(sent, words)?.applied);
                }
                // An idle connection may have died unnoticed: a new one tells.
                Miss::Failed(Failure::Broken(words)) if !fresh => last = words,
                Miss::Failed(Failure::Broken(words)) => return Err(StoreError::Unavailable(words)),
                Miss::Failed(Failure::Certain(error)) => {
                    // A new connection may lead to another host.
                    if !matches!(error, StoreError::ReadOnly(_)) {
                        self.roll_back(connection).await;
                    }
                    return Err(error);
                }
                Miss::Unconfirmed(done, words) => {
                    drop(connection);
                    sent.push(*done);
                    if self.took_effect(batch.id, &words).await? {
                        return Ok(self.committed(batch.id, the_only(sent, words)?));
                    }
                    last = words;
                }
            }
        }
        Err(StoreError::Unavailable(format!("batch collided {TRIES} times: {last}")))
    }

    /// Connects again after another server has closed the lane, which may say that this one must look at
    /// the generation.
    fn look_again(&mut self, conflict: Conflict) {
        if conflict == Conflict::Lane {
            self.connection = None;
        }
    }

    /// Notes with what a batch collided; returns the words, with the session that it waits for.
    fn collided(
        &mut self,
        id: BatchId,
        conflict: Conflict,
        words: String,
        line: ConnectionId,
    ) -> String {
        tracing::debug!(error = words, "batch collided, trying again");
        match conflict {
            Conflict::Slot => return self.blocker.met(&self.address, line, &words),
            Conflict::Lane => drop(self.marked.remove(&id.server)),
            _ => {}
        }
        words
    }

    /// Takes the connection if it may be used again.
    fn usable(&mut self) -> Option<Connection> {
        self.connection.take().filter(|connection| {
            // Another one may lead to a primary that has taken this one's place.
            let is_of_latest = connection.timeline() >= self.address.timeline();
            is_of_latest && !connection.is_closed() && !self.silence.distrusts(connection.line())
        })
    }

    /// Opens a connection unless there is one, and makes sure that the server has its row.
    async fn ready(
        &mut self,
        connection: Option<Connection>,
        id: BatchId,
    ) -> Result<Connection, StoreError> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        if !self.marked.contains(&id.server) {
            slots::mark(&mut connection, id).await?;
            self.marked.insert(id.server);
            self.cache.slots.forget(id.server);
        }
        Ok(connection)
    }

    /// Tries a batch once, and drops the connection when it does not answer.
    async fn attempt_until(
        &mut self,
        end: Instant,
        connection: &mut Connection,
        batch: &Batch,
        locked: bool,
    ) -> Result<Applied, Miss> {
        self.unconfirmed = None;
        self.cache.classes.forget_unneeded();
        self.cache.chosen.clear();
        let limit = self.patience.of_try().min(end.saturating_duration_since(Instant::now()));
        let (silence, line) = (Arc::clone(&self.silence), connection.line());
        let trying = Box::pin(self.attempt(connection, batch, locked));
        let tried = match silence.answer(line, limit, trying).await {
            Some(tried) => tried,
            None => {
                let words = "no answer in time".to_owned();
                Err(match self.unconfirmed.take() {
                    Some(done) => Miss::Unconfirmed(Box::new(done), words),
                    None => Miss::Failed(Failure::Broken(words)),
                })
            }
        };
        self.keep_known(&tried);
        tried
    }

    /// Keeps of the known classes and limits what is true after a try; after a failure that says
    /// little, none: the store may have been emptied.
    fn keep_known<T>(&mut self, tried: &Result<T, Miss>) {
        match tried {
            Ok(_) => {
                self.cache.classes.keep_made();
                self.cache.limits.keep();
            }
            Err(Miss::Failed(Failure::Again(Conflict::Class, _))) => {
                self.cache.classes = Classes::default();
                self.cache.limits.roll_back();
            }
            Err(Miss::Failed(Failure::Locked(_) | Failure::Slow(_) | Failure::Again(..))) => {
                self.cache.classes.forget_made();
                self.cache.limits.roll_back();
            }
            Err(Miss::Failed(_) | Miss::Unconfirmed(..)) => {
                self.cache.classes = Classes::default();
                self.cache.limits = LimitCache::default();
            }
        }
    }

    /// Returns how often the present connection was asked.
    pub(crate) fn round_trips(&self) -> u64 {
        self.connection.as_ref().map_or(0, Connection::round_trips)
    }

    /// Returns how many statements the present connection was sent.
    pub(crate) fn statements_sent(&self) -> u64 {
        self.connection.as_ref().map_or(0, Connection::sent)
    }

    /// Returns how many tries of batches failed.
    pub(crate) const fn tried_again(&self) -> u64 {
        self.tried_again
    }

    async fn connect(&self) -> Result<Connection, StoreError> {
        Ok(self.address.writer().await?)
    }

    async fn roll_back(&mut self, mut connection: Connection) {
        if !connection.in_transaction() {
            self.connection = Some(connection);
            return;
        }
        let ended =
            tokio::time::timeout(SHORT_LIMIT, connection.run(&[Statement::plain("rollback")]))
                .await;
        if matches!(ended, Ok(Ok(_))) {
            self.connection = Some(connection);
        }
    }

    async fn attempt(
        &mut self,
        connection: &mut Connection,
        batch: &Batch,
        locked: bool,
    ) -> Result<Applied, Miss> {
        let brief = self.patience.brief(batch);
        self.cache.shares.begin_batch();
        self.cache.lane_cache.begin_batch();
        let slot = self.cache.slots.of(batch.id);
        let mut tx = Tx {
            connection,
            locks: Locks { come_first: locked, brief, patience: &mut self.patience },
            cache: &mut self.cache,
            bounds: Bounds::of(self.known_bounds.take()),
            gates: Gates::default(),
            claiming: Claiming::default(),
            clock: StoreClock { own: self.clock.as_deref(), time: &self.time },
            batch: BatchState::begin(batch, self.time.latest(), self.cursors),
            server: batch.id.server,
            slot,
            write_set: WriteSet::default(),
            opening: Opening::default(),
            seen: Seen::default(),
            holds: AllHolds::new(&self.floors),
        };
        tx.begin(batch).await?;
        let replies = execute_all(&mut tx, &batch.commands).await?;
        let effects = tx.batch.take_effects();
        let applied = Applied {
            at: effects.at,
            replies,
            freed: effects.freed,
            workflows: effects.workflows.clone(),
        };
        let done = Done { applied, effects };
        let done = tx.commit(batch.id, done, &mut self.unconfirmed).await?;
        self.known_bounds = tx.bounds.known;
        Ok(self.committed(batch.id, done))
    }

    /// Remembers what a batch did that has taken effect.
    fn committed(&mut self, id: BatchId, Done { applied, effects }: Done) -> Applied {
        self.cache.slots.applied(id);
        self.cursors = effects.cursors;
        effects.committed(&mut self.cache.lane_cache, &mut self.cache.shares);
        applied
    }

    /// Returns every statement that the present connection was asked to run.
    pub(crate) fn statements(&self) -> Vec<&'static str> {
        self.connection.as_ref().map(Connection::statements).unwrap_or_default()
    }

    pub(crate) fn close(&mut self) {
        self.connection = None;
    }
}

/// The store's time in milliseconds.
pub(crate) const NOW: &str = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";

/// A batch in progress.
struct Tx<'a> {
    connection: &'a mut Connection,
    locks: Locks<'a>,
    cache: &'a mut Cache,
    bounds: Bounds,
    /// The gates that the batch has locked.
    gates: Gates,
    /// The claim by limits that is under way.
    claiming: Claiming,
    clock: StoreClock<'a>,
    batch: BatchState,
    /// The server whose batch it is.
    server: Uuid,
    /// Its slot.
    slot: i64,
    /// What has yet to be written.
    write_set: WriteSet,
    opening: Opening,
    seen: Seen,
    /// Where the batch puts rows below floors.
    holds: AllHolds,
}

/// Which locks a batch takes before it decides, and how long it waits for them.
struct Locks<'a> {
    /// Whether nothing is taken for true without looking: `seen.stored` was read, and jobs and
    /// workers are locked before anything is decided.
    come_first: bool,
    /// How long its statements may take, if that is less than usual.
    brief: Option<Duration>,
    /// How long it waits for locks.
    patience: &'a mut Patience,
}

impl Locks<'_> {
    /// Whether something was locked or took too long a while ago.
    fn is_hasty(&self) -> bool {
        self.brief.is_some() || self.patience.hurries()
    }
}

/// What tells the store's time.
struct StoreClock<'a> {
    /// The clock that is read in place of PostgreSQL's, if there is one.
    own: Option<&'a dyn Clock>,
    time: &'a Time,
}

/// What opens the transaction.
#[derive(Default)]
struct Opening {
    /// What was not sent yet, with what its answers are for.
    statements: Vec<(Take, Statement)>,
    /// The time that PostgreSQL answered, once it has.
    server_time: Option<Timestamp>,
}

impl Tx<'_> {
    /// Writes what has been noted, then asks; one round trip.
    async fn query(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Row>, Failure> {
        let mut all = self.query_all(vec![Statement::new(sql, values)]).await?;
        Ok(all.pop().unwrap_or_default())
    }

    /// Writes what has been noted, then asks all; one round trip.
    async fn query_all(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>, Failure> {
        let (takes, mut all) = self.noted();
        let before = all.len();
        all.extend(statements);
        let mut rows = self.connection.run(&all).await?;
        let asked = rows.split_off(before.min(rows.len()));
        for (at, (take, rows)) in takes.into_iter().zip(rows).enumerate() {
            self.take_in(take, at, &rows)?;
        }
        Ok(asked)
    }

    /// Takes what has yet to be sent: the opening, with what its answers are for, and what
    /// has been noted.
    fn noted(&mut self) -> (Vec<Take>, Vec<Statement>) {
        let (takes, mut statements): (Vec<Take>, Vec<Statement>) =
            std::mem::take(&mut self.opening.statements).into_iter().unzip();
        statements.append(&mut self.write_set.take());
        (takes, statements)
    }

    /// Notes a statement to be written with the rest.
    fn write(&mut self, sql: &'static str, values: Vec<Value>) {
        self.write_set.others.push(Statement::new(sql, values));
    }
}
