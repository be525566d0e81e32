//! Connections that read, and who uses them.
//!
//! One that did not answer its last question, or is not trusted, is not used again: what comes next
//! on it would wait for that answer. A question whose asker has gone is cancelled, so that slow ones
//! do not add up.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use outlast_store::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::connect::{Address, OpenConnection, Plans};
use crate::failure::Failure;
use crate::silence::{ConnectionId, Silence};

/// Longest that a query waits for a free connection.
const WAIT_LIMIT: Duration = Duration::from_secs(5);
/// Longest that cancelling may take.
const CANCEL_LIMIT: Duration = Duration::from_secs(3);
/// Most statements whose text is kept; there are far fewer.
const ASKED_MAX: usize = 500;

/// A value of a query.
pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// How many connections there are, how long each answer is waited for, and how statements are planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSize {
    pub(crate) connections: usize,
    pub(crate) answer: Duration,
    pub(crate) plans: Plans,
}

/// Connections that read. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: Address,
    silence: Arc<Silence>,
    /// Longest that an answer is waited for.
    limit: Duration,
    plans: Plans,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Open>>,
    asked: Mutex<BTreeSet<String>>,
}

/// An open connection.
struct Open {
    client: Client,
    /// Ends the task that reads from the connection.
    reader: AbortHandle,
    line: ConnectionId,
    statements: Mutex<HashMap<String, Statement>>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.line.fmt(f)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// A connection in use.
pub(crate) struct Reader {
    open: Option<Open>,
    inner: Arc<Inner>,
    place: Option<OwnedSemaphorePermit>,
    /// How many questions have no answer yet, and transactions no end.
    unanswered: AtomicUsize,
}

impl Readers {
    pub(crate) fn new(address: &Address, silence: &Arc<Silence>, size: PoolSize) -> Self {
        let inner = Inner {
            address: address.clone(),
            silence: Arc::clone(silence),
            limit: size.answer,
            plans: size.plans,
            places: Arc::new(Semaphore::new(size.connections)),
            idle: Mutex::default(),
            asked: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) async fn get(&self) -> Result<Reader, StoreError> {
        let inner = Arc::clone(&self.inner);
        let waiting = Arc::clone(&inner.places).acquire_owned();
        let place = tokio::time::timeout(WAIT_LIMIT, waiting).await.map_err(|_elapsed| {
            let seconds = WAIT_LIMIT.as_secs();
            StoreError::Unavailable(format!("no connection became free within {seconds} s"))
        })?;
        let place = place.map_err(|_closed| StoreError::Closed)?;
        let open = match inner.idle_one() {
            Some(open) => open,
            None => inner.address.reader(inner.plans).await.map_err(StoreError::from)?.into(),
        };
        Ok(Reader { open: Some(open), inner, place: Some(place), unanswered: AtomicUsize::new(0) })
    }

    /// Returns every statement that was asked so far.
    pub(crate) fn statements(&self) -> Vec<String> {
        self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(crate) fn close(&self) {
        self.inner.places.close();
        self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl From<(OpenConnection, ConnectionId)> for Open {
    fn from((link, line): (OpenConnection, ConnectionId)) -> Self {
        Self { client: link.client, reader: link.reader, line, statements: Mutex::default() }
    }
}

impl Inner {
    fn idle_one(&self) -> Option<Open> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(open) = idle.pop() {
            if self.is_usable(&open) {
                return Some(open);
            }
        }
        None
    }

    fn is_usable(&self, open: &Open) -> bool {
        !open.client.is_closed() && !self.silence.distrusts(open.line)
    }

    /// Remembers a statement, so that its plan can be looked at.
    fn note(&self, sql: &str) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < ASKED_MAX && !asked.contains(sql) {
            asked.insert(sql.to_owned());
        }
    }
}

impl Open {
    async fn query(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let statement = self.statement(sql).await?;
        self.client.query(&statement, values).await
    }

    /// Passes the rows on as they come, until one is the last that is wanted.
    async fn each(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut take: impl FnMut(&Row) -> Result<bool, StoreError>,
    ) -> Result<Result<(), StoreError>, tokio_postgres::Error> {
        let statement = self.statement(sql).await?;
        let rows = self.client.query_raw(&statement, values.iter().copied()).await?;
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = rows.try_next().await? {
            match take(&row) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    async fn statement(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        let known = self.statements().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, HashMap<String, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    pub(crate) async fn all(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let open = self.open.as_ref().ok_or(StoreError::Closed)?;
        self.inner.note(sql);
        self.answer(open.line, open.query(sql, values)).await
    }

    /// Sends what returns no rows, such as `begin`. Who begins a transaction ends it.
    pub(crate) async fn say(&self, sql: &str) -> Result<(), StoreError> {
        let open = self.open.as_ref().ok_or(StoreError::Closed)?;
        self.answer(open.line, open.client.batch_execute(sql)).await
    }

    /// Reads as of one moment: what is asked meanwhile sees no commit that came after the first question.
    pub(super) async fn at_one_moment<T>(
        &self,
        reading: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        // If its asker goes meanwhile, the connection is not used again: its transaction is open.
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.say("begin isolation level repeatable read, read only").await?;
        let found = reading.await;
        self.say(if found.is_ok() { "commit" } else { "rollback" }).await?;
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
        found
    }

    async fn answer<T>(
        &self,
        line: ConnectionId,
        asking: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, StoreError> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let asking = Box::pin(asking);
        let answer = self.inner.silence.answer(line, self.inner.limit, asking).await;
        let answer = answer.ok_or_else(|| StoreError::Unavailable("no answer in time".into()))?;
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
        answer.map_err(|error| Failure::from(error).into())
    }

    /// Passes the rows to `take` one by one as they come, until it returns that it wants no more: what
    /// is held in memory is bounded, however much is found.
    pub(super) async fn each(
        &self,
        sql: &str,
        values: &[Value<'_>],
        take: impl FnMut(&Row) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let open = self.open.as_ref().ok_or(StoreError::Closed)?;
        self.inner.note(sql);
        self.answer(open.line, open.each(sql, values, take)).await?
    }

    pub(crate) async fn one(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, values).await?.into_iter().next())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        if *self.unanswered.get_mut() == 0 {
            if !self.inner.places.is_closed() && self.inner.is_usable(&open) {
                self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner).push(open);
            }
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (cancel, tls) = (open.client.cancel_token(), self.inner.address.connector());
        // Its place is taken until nothing runs any more.
        let place = self.place.take();
        runtime.spawn(async move {
            // What cannot be cancelled ends by its own limit.
            drop(tokio::time::timeout(CANCEL_LIMIT, cancel.cancel_query(tls)).await);
            drop((open, place));
        });
    }
}
