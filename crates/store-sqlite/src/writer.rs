//! The writer thread: one transaction a batch, commands in order.
//!
//! - [`backend`]: the transaction as [`outlast_store::backend`] sees it
//! - [`load`]: loading a job where it is; [`transition`]: moving it
//! - [`enqueue`], [`idempotency`], [`claim`], [`extend`], [`workers`], [`sweep`], [`log`], [`prune`]: SQL of
//!   the commands
//! - [`tally`]: the live counts that a batch changes; [`event_log`]: its events
//! - [`classes`]: what is known of classes and queues without asking the database

mod backend;
mod claim;
mod classes;
mod enqueue;
pub(crate) mod event_log;
mod extend;
mod idempotency;
mod load;
mod log;
mod prune;
mod sweep;
mod tally;
mod transition;
mod workers;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use outlast_core::time::Timestamp;
use outlast_store::apply::Outbox;
use outlast_store::apply::loaded::rank;
use outlast_store::backend::{execute_all, run_ready};
use outlast_store::rules::Context;
use outlast_store::{Applied, Batch, Clock, StoreError};
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
) -> Result<(Sender<Request>, JoinHandle<()>), std::io::Error> {
    let (asks, receiver) = channel();
    let thread = std::thread::Builder::new()
        .name("sqlite-writer".into())
        .spawn(move || run(owned, clock.as_ref(), latest, &receiver))?;
    Ok((asks, thread))
}

fn run(mut owned: Owned, clock: &dyn Clock, mut latest: Timestamp, asks: &Receiver<Request>) {
    let mut classes = Classes::default();
    let mut log = EventLog::default();
    let mut stale = true;
    while let Ok(ask) = next(asks, &mut owned.mark) {
        match ask {
            Request::Apply(batch, reply) => {
                latest = latest.max(clock.now());
                let result = refresh(&owned.writer, &mut classes, &mut stale)
                    .and_then(|()| apply(&mut owned, &mut classes, &mut log, &batch, latest));
                // Before the reply: then the caller has the batch to itself.
                drop(batch);
                if result.is_err() {
                    stale = true;
                    log.forget();
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

/// Waits for what comes next. The mark is brought up to date while nothing waits for an answer.
fn next(asks: &Receiver<Request>, mark: &mut Mark) -> Result<Request, RecvError> {
    if !mark.is_behind() {
        return asks.recv();
    }
    match asks.recv_timeout(mark::BEHIND_MAX) {
        Ok(ask) => {
            mark.write_if_late();
            Ok(ask)
        }
        Err(RecvTimeoutError::Timeout) => {
            mark.write_if_behind();
            asks.recv()
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

fn refresh(
    connection: &Connection,
    classes: &mut Classes,
    stale: &mut bool,
) -> Result<(), StoreError> {
    if *stale {
        *classes = Classes::load(connection)?;
        *stale = false;
    }
    Ok(())
}

/// One batch under way.
pub(crate) struct Tx<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) classes: &'a mut Classes,
    pub(crate) context: Context<'a>,
    /// What it logs and counts.
    pub(crate) outbox: Outbox,
    log: &'a mut EventLog,
}

fn apply(
    owned: &mut Owned,
    classes: &mut Classes,
    log: &mut EventLog,
    batch: &Batch,
    now: Timestamp,
) -> Result<Applied, StoreError> {
    let db = &owned.writer;
    // Immediate: the writer waits for other writers (an operator's SQL) before it reads.
    // Once it has read, SQLite would not wait but fail the batch.
    let transaction =
        Transaction::new_unchecked(db, TransactionBehavior::Immediate).map_err(failed)?;
    let changes = db.total_changes();
    let mut tx = Tx {
        db,
        classes,
        context: Context { budgets: &batch.budgets, seed: batch.jitter_seed, command: 0, now },
        outbox: Outbox::default(),
        log,
    };
    let replies = run_ready(execute_all(&mut tx, &batch.commands))?;
    tx.keep_tally()?;
    if !tx.outbox.events.is_empty() {
        tx.log_events(batch.id)?;
    } else if db.total_changes() > changes {
        keep_time(db, now)?;
    }
    let changed = db.total_changes() > changes;
    transaction.commit().map_err(unconfirmed)?;
    if changed {
        owned.mark.note(now);
    }
    Ok(Applied { at: now, replies })
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
