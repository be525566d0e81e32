//! One connection: its prepared statements, and pipelining.
//!
//! Statements are sent in order without waiting for the answers of those before; the
//! first that fails ends the transaction, and PostgreSQL refuses the rest.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement as Prepared};

use crate::failure::Failure;
use crate::silence::ConnectionId;

/// A value of a statement.
pub(crate) type Value = Box<dyn ToSql + Sync + Send>;

/// A statement with its values.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) sql: &'static str,
    pub(crate) values: Vec<Value>,
}

impl Statement {
    pub(crate) const fn new(sql: &'static str, values: Vec<Value>) -> Self {
        Self { sql, values }
    }

    /// A statement without values.
    pub(crate) const fn plain(sql: &'static str) -> Self {
        Self { sql, values: Vec::new() }
    }
}

/// Boxes the values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as $crate::connection::Value),*] };
}
pub(crate) use values;

/// A connection in use by one caller.
pub(crate) struct Connection {
    client: Client,
    statements: HashMap<&'static str, Prepared>,
    /// Ends the task that reads from the connection.
    reader: AbortHandle,
    line: ConnectionId,
    /// The timeline of the primary that it leads to; 0 if that was not asked.
    timeline: u32,
    /// When each of the latest statements was answered.
    answered: Vec<Instant>,
    /// How often statements were sent and waited for.
    round_trips: u64,
    /// How many statements were sent.
    sent: u64,
    /// Whether a transaction was begun that has not ended for sure.
    in_transaction: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("closed", &self.client.is_closed())
            .finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The next user must not finish a half-sent transaction.
        self.reader.abort();
    }
}

impl Connection {
    pub(crate) fn new(client: Client, reader: AbortHandle, line: ConnectionId) -> Self {
        Self {
            client,
            statements: HashMap::new(),
            reader,
            line,
            timeline: 0,
            answered: Vec::new(),
            round_trips: 0,
            sent: 0,
            in_transaction: false,
        }
    }

    /// Notes the timeline of the primary that it leads to.
    pub(crate) fn on_timeline(mut self, timeline: u32) -> Self {
        self.timeline = timeline;
        self
    }

    /// Returns the timeline of the primary that it leads to.
    pub(crate) const fn timeline(&self) -> u32 {
        self.timeline
    }

    pub(crate) const fn line(&self) -> ConnectionId {
        self.line
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns every statement that was prepared.
    pub(crate) fn statements(&self) -> Vec<&'static str> {
        self.statements.keys().copied().collect()
    }

    /// Returns how often statements were sent and waited for.
    pub(crate) const fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Returns how many statements were sent.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether a transaction was begun that has not ended for sure.
    pub(crate) const fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sends statements in order and returns the rows of each.
    pub(crate) async fn run(&mut self, statements: &[Statement]) -> Result<Vec<Vec<Row>>, Failure> {
        self.prepare(statements).await?;
        let calls = statements.iter().filter_map(|statement| {
            let prepared = self.statements.get(statement.sql)?;
            let values: Vec<&(dyn ToSql + Sync)> =
                statement.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
            let client = &self.client;
            Some(Box::pin(async move { client.query(prepared, &values).await }) as Call<'_>)
        });
        self.answered.clear();
        self.round_trips += 1;
        self.sent += u64::try_from(statements.len()).unwrap_or(u64::MAX);
        self.in_transaction |= statements.iter().any(|statement| statement.sql == "begin");
        let rows = in_order(calls.collect(), &mut self.answered).await?;
        let ends = |statement: &Statement| ["commit", "rollback"].contains(&statement.sql);
        self.in_transaction &= !statements.last().is_some_and(ends);
        Ok(rows)
    }

    /// Returns when a statement of the latest run was answered.
    pub(crate) fn answered(&self, at: usize) -> Instant {
        self.answered.get(at).copied().unwrap_or_else(Instant::now)
    }

    async fn prepare(&mut self, statements: &[Statement]) -> Result<(), Failure> {
        for statement in statements {
            if !self.statements.contains_key(statement.sql) {
                let prepared = self.client.prepare(statement.sql).await?;
                self.statements.insert(statement.sql, prepared);
            }
        }
        Ok(())
    }
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'a>>;

/// Polls calls in order until all are done, so that they are sent in order; returns what
/// they gave, or the error of the first that failed: those after it only say that one did.
async fn in_order(
    mut calls: Vec<Call<'_>>,
    answered: &mut Vec<Instant>,
) -> Result<Vec<Vec<Row>>, Failure> {
    let mut open: Vec<Option<Result<Vec<Row>, tokio_postgres::Error>>> = Vec::new();
    open.resize_with(calls.len(), || None);
    let mut given = Vec::with_capacity(calls.len());
    poll_fn(move |context| {
        for (call, place) in calls.iter_mut().zip(open.iter_mut()).skip(given.len()) {
            if place.is_none()
                && let Poll::Ready(result) = call.as_mut().poll(context)
            {
                let failed = result.is_err();
                *place = Some(result);
                // One that could not even be sent must not be followed by a commit.
                if failed {
                    break;
                }
            }
        }
        while let Some(result) = open.get_mut(given.len()).and_then(Option::take) {
            match result {
                Ok(rows) => {
                    answered.push(Instant::now());
                    given.push(rows);
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        if given.len() < open.len() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(std::mem::take(&mut given)))
    })
    .await
}
