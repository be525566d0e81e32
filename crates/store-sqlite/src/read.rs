//! Reads: on their own connections, each with a time limit, so that a slow one can
//! neither wait for the writer nor keep the write-ahead log from shrinking forever.

pub(crate) mod attempt;
pub(crate) mod browser_session;
pub(crate) mod event;
pub(crate) mod job;
pub(crate) mod limit;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod operation;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod worker;
pub(crate) mod workflow;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outlast_store::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::connection::reader;
use crate::row::failed;

/// How many reads for requests run at once; more wait.
pub(crate) const ASKED: usize = 4;
/// Reads for leases, claims and sweeps: slow lists cannot delay them.
pub(crate) const BACKGROUND: usize = 2;
/// Longest a read may take.
const READ_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// How many steps of SQLite's machine pass between two looks at the time.
const STEPS_A_LOOK: std::ffi::c_int = 10_000;

/// The read connections, made when first needed.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    turns: Arc<Semaphore>,
    closed: AtomicBool,
    /// Looks at the time during reads.
    looks: AtomicU64,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, at_once: usize) -> Self {
        let pool = Pool {
            path,
            idle: Mutex::new(Vec::new()),
            turns: Arc::new(Semaphore::new(at_once)),
            looks: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        };
        Self { pool: Arc::new(pool) }
    }

    /// Runs a read on a connection of its own thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = Arc::clone(&self.pool.turns).acquire_owned().await;
        let turn = turn.map_err(|_closed| StoreError::Closed)?;
        let pool = Arc::clone(&self.pool);
        let reading = tokio::task::spawn_blocking(move || {
            let mut connection = pool.take()?;
            let result = timed(&pool, &mut connection, query);
            pool.give_back(connection);
            drop(turn);
            result
        });
        reading.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Returns how many steps of SQLite's machine the reads so far took, about.
    pub(crate) fn steps(&self) -> u64 {
        self.pool.looks.load(Ordering::Relaxed) * u64::from(STEPS_A_LOOK.unsigned_abs())
    }

    pub(crate) fn close(&self) {
        self.pool.closed.store(true, Ordering::Release);
        self.pool.turns.close();
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Runs a read as one consistent view, cut off when it takes too long.
fn timed<T>(
    pool: &Arc<Pool>,
    connection: &mut Connection,
    query: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let pool = Arc::clone(pool);
    let looked = move || {
        pool.looks.fetch_add(1, Ordering::Relaxed);
    };
    limited(connection, READ_TIME_MAX, looked, |connection| Ok(query(connection)))
        .map_err(failed)?
}

/// The same for any length of time; says when it has looked at it.
pub(crate) fn limited<T>(
    connection: &mut Connection,
    limit: std::time::Duration,
    looked: impl Fn() + Send + 'static,
    query: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let begun = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let limit = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let late = move || {
        looked();
        rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec - begun.tv_sec > limit
    };
    connection.progress_handler(STEPS_A_LOOK, Some(late))?;
    let view = connection.unchecked_transaction()?;
    let result = query(connection);
    view.rollback()?;
    result
}

impl Pool {
    fn take(&self) -> Result<Connection, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| reader(&self.path).map_err(failed), Ok)
    }

    fn give_back(&self, connection: Connection) {
        if !self.closed.load(Ordering::Acquire) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
