//! The writer thread: one transaction a batch, commands in order.
//!
//! - [`backend`]: the transaction as [`outlast_store_rules::backend`] sees it
//! - [`load`]: loading a job where it is; [`transition`]: moving it
//! - [`enqueue`], [`unique`], [`idempotency`], [`claim`], [`extend`], [`workers`], [`sweep`], [`log`],
//!   [`prune`], [`schedule`], [`workflow`], [`browser_session`], [`operation`]: SQL of the commands
//! - [`limit`]: claims of jobs that limits hold back
//! - [`depth`]: how full bounded queues are
//! - [`tally`]: the live counts that a batch changes; [`event_log`]: its events
//! - [`classes`]: what is known of classes and queues without asking the database
//! - [`statements`]: prepared statements of a batch

mod backend;
mod browser_session;
mod claim;
mod classes;
mod depth;
mod enqueue;
pub(crate) mod event_log;
mod extend;
mod idempotency;
mod limit;
mod load;
mod log;
mod operation;
mod prune;
mod prune_bytes;
mod schedule;
mod statements;
mod sweep;
mod tally;
mod transition;
mod unique;
mod workers;
mod workflow;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use outlast_core::time::Timestamp;
use outlast_store::job::rank;
use outlast_store::{Applied, Batch, Clock, StoreError};
use outlast_store_rules::apply::batch::BatchState;
use outlast_store_rules::apply::claim::fair::Shares;
use outlast_store_rules::apply::claim::lane_cache::LaneCache;
use outlast_store_rules::apply::claim::scan_budget::ScanBudget;
use outlast_store_rules::apply::limit::Limits;
use outlast_store_rules::backend::{execute_all, run_ready};
use outlast_store_rules::prune::PruneCursors;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};
use tokio::sync::oneshot;

use crate::connection::Owned;
use crate::mark::{self, Mark};
use crate::row::failed;
use classes::Classes;
pub(crate) use classes::class_of;
use event_log::EventLog;
pub(crate) use load::stored;
use statements::Statements;

/// Returns the ranks of claimable jobs of a priority: in order, and at the front.
pub(crate) fn rank_of(priority: i8) -> (i64, i64) {
    use outlast_core::job::Turn;
    (rank(priority, Turn::InOrder), rank(priority, Turn::Front))
}

/// What the writer thread is asked.
pub(crate) enum Request {
    /// Apply a batch.
    Apply(Arc<Batch>, oneshot::Sender<Result<Applied, StoreError>>),
    /// Tell the time.
    Now(oneshot::Sender<Timestamp>),
    /// Finish and close.
    Close(oneshot::Sender<()>),
}

/// Starts the writer thread.
pub(crate) fn start(
    owned: Owned,
    clock: Arc<dyn Clock>,
    latest: Timestamp,
    budget: ScanBudget,
) -> Result<(Sender<Request>, JoinHandle<()>), std::io::Error> {
    let (requests, receiver) = channel();
    let cache = Cache { lane_cache: LaneCache::new(budget), ..Cache::default() };
    let thread = std::thread::Builder::new()
        .name("sqlite-writer".into())
        .spawn(move || run(owned, cache, clock.as_ref(), latest, &receiver))?;
    Ok((requests, thread))
}

/// What the writer remembers from batch to batch.
#[derive(Debug, Default)]
struct Cache {
    classes: Classes,
    limits: Limits,
    lane_cache: LaneCache,
    shares: Shares,
    cursors: PruneCursors,
    /// How many jobs wait in bounded queues, as far as it was asked.
    depths: HashMap<String, i64>,
    log: EventLog,
}

fn run(
    mut owned: Owned,
    mut cache: Cache,
    clock: &dyn Clock,
    mut latest: Timestamp,
    requests: &Receiver<Request>,
) {
    let mut stale = true;
    while let Ok(request) = next(requests, &mut owned.mark) {
        match request {
            Request::Apply(batch, reply) => {
                latest = latest.max(clock.now());
                let result = refresh(&owned.writer, &mut cache, &mut stale)
                    .and_then(|()| apply(&mut owned, &mut cache, &batch, latest));
                // Before the reply: then the caller has the batch to itself.
                drop(batch);
                if result.is_err() {
                    stale = true;
                    cache.log.forget();
                }
                // A caller that has gone needs no answer; the batch stands.
                let _ = reply.send(result);
            }
            Request::Now(reply) => {
                latest = latest.max(clock.now());
                let _ = reply.send(latest);
            }
            Request::Close(done) => {
                close(owned);
                let _ = done.send(());
                return;
            }
        }
    }
    close(owned);
}

/// Waits for the next request. The mark is updated while no caller waits for a reply.
fn next(requests: &Receiver<Request>, mark: &mut Mark) -> Result<Request, RecvError> {
    if !mark.is_behind() {
        return requests.recv();
    }
    match requests.recv_timeout(mark::BEHIND_MAX) {
        Ok(request) => {
            mark.write_if_late();
            Ok(request)
        }
        Err(RecvTimeoutError::Timeout) => {
            mark.write_if_behind();
            requests.recv()
        }
        Err(RecvTimeoutError::Disconnected) => Err(RecvError),
    }
}

fn close(owned: Owned) {
    let Owned { writer, path, lock, mark, migrated: _ } = owned;
    mark.close();
    if let Err((_, error)) = writer.close() {
        tracing::warn!(path = %path.display(), %error, "failed to close the store cleanly");
    }
    // Closing the file is not enough: a process that is just being started has a copy of it.
    if let Err(error) = flock(&lock, FlockOperation::Unlock) {
        tracing::warn!(path = %path.display(), %error, "failed to release the store's lock");
    }
}

fn refresh(connection: &Connection, cache: &mut Cache, stale: &mut bool) -> Result<(), StoreError> {
    if *stale {
        cache.classes = Classes::load(connection)?;
        cache.limits = limit::load(connection)?;
        cache.depths.clear();
        *stale = false;
    }
    Ok(())
}

/// One batch under way.
pub(crate) struct Tx<'a> {
    pub(crate) db: &'a Connection,
    statements: Statements<'a>,
    cache: &'a mut Cache,
    batch: BatchState,
    /// The jobs that had expired when a claim first asked.
    expired: OnceCell<HashSet<i64>>,
    /// How long the jobs of the claim under way are, in bytes.
    claimed_bytes: usize,
}

fn apply(
    owned: &mut Owned,
    cache: &mut Cache,
    batch: &Batch,
    now: Timestamp,
) -> Result<Applied, StoreError> {
    let db = &owned.writer;
    // Immediate: the writer waits for other writers (an operator's SQL) before it reads.
    // Once it has read, SQLite would not wait but fail the batch.
    let transaction =
        Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(failed)?;
    let changes = db.total_changes();
    cache.shares.begin_batch();
    cache.lane_cache.begin_batch();
    let mut tx = Tx {
        db,
        statements: Statements::new(db),
        batch: BatchState::begin(batch, now, cache.cursors),
        cache,
        expired: OnceCell::new(),
        claimed_bytes: 0,
    };
    let replies = run_ready(execute_all(&mut tx, &batch.commands))?;
    let effects = tx.batch.take_effects();
    tx.keep_depths();
    tx.keep_gates()?;
    tx.keep_tally()?;
    tx.keep_item_ends()?;
    if !tx.batch.outbox.events.is_empty() {
        tx.log_events(batch.id)?;
    } else if db.total_changes() > changes {
        keep_time(db, now)?;
    }
    drop(tx);
    let changed = db.total_changes() > changes;
    transaction.commit().map_err(unconfirmed)?;
    let (freed, workflows) = (effects.freed, effects.workflows.clone());
    cache.cursors = effects.cursors;
    effects.committed(&mut cache.lane_cache, &mut cache.shares);
    if changed {
        owned.mark.note(now);
    }
    Ok(Applied { at: now, replies, freed, workflows })
}

/// Keeps the time of a batch that logs no event, so that a store whose wall clock was set
/// back does not open in its own past.
fn keep_time(db: &Connection, now: Timestamp) -> Result<(), StoreError> {
    let mut keep = db
        .prepare_cached(
            "insert into meta (key, value) values ('time', ?1)
             on conflict (key) do update set value = ?1",
        )
        .map_err(failed)?;
    keep.execute([now.0.to_string()]).map_err(failed)?;
    Ok(())
}

/// When the disk fails a commit, the batch may already be whole in the write-ahead log: it
/// is not seen now, but would be found after a crash.
fn unconfirmed(error: rusqlite::Error) -> StoreError {
    match failed(error) {
        StoreError::Unavailable(what) => StoreError::Ambiguous(what),
        certain => certain,
    }
}

#[cfg(test)]
mod tests;
