//! Answers to queries, on connections of their own that only read. Each answer is one
//! statement where it must be consistent in itself.
//!
//! - [`job`]: jobs with everything about them · [`list`]: lists of jobs and dead letters
//! - [`arrival`], [`attempt`], [`log`], [`worker`], [`queue`], [`limit`], [`event`]: what their names say

pub(crate) mod arrival;
pub(crate) mod attempt;
pub(crate) mod event;
pub(crate) mod job;
pub(crate) mod limit;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod queue;
pub(crate) mod worker;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connect::Address;
use crate::failure::Failure;
use crate::row;
use crate::writer::NOW;

/// Connections that read lists and jobs for requests.
pub(crate) const ASKED: usize = 4;
/// Connections for what leases, claims and sweeps read: slow lists cannot delay them.
pub(crate) const BACKGROUND: usize = 2;
/// Longest that a query waits for a free connection.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// Longest that an answer is waited for: a little longer than PostgreSQL may think, for one
/// that hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(35);

/// Most prepared statements that are kept; there are far fewer.
const ASKED_MAX: usize = 500;

/// A value of a query.
type Value<'a> = &'a (dyn ToSql + Sync);

/// Connections that read.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    pool: Pool,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

/// A connection in use.
pub(crate) struct Reader {
    client: Object,
    asked: Arc<Mutex<BTreeSet<String>>>,
}

impl Readers {
    pub(crate) fn new(address: &Address, size: usize) -> Self {
        let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(address.config().clone(), address.connector(), how);
        let set = Hook::async_fn(|client: &mut deadpool_postgres::ClientWrapper, _| {
            Box::pin(async move {
                let settings = Address::reader_settings();
                client.batch_execute(&settings).await.map_err(HookError::Backend)
            })
        });
        let building = Pool::builder(manager)
            .max_size(size)
            .runtime(deadpool_postgres::Runtime::Tokio1)
            .wait_timeout(Some(WAIT_LIMIT))
            .create_timeout(Some(WAIT_LIMIT))
            .post_create(set);
        #[expect(clippy::expect_used, reason = "fails only without a runtime, which is named")]
        let pool = building.build().expect("a pool with a runtime");
        Self { pool, asked: Arc::default() }
    }

    pub(crate) async fn get(&self) -> Result<Reader, StoreError> {
        use deadpool_postgres::PoolError;
        let client = self.pool.get().await.map_err(|error| match error {
            PoolError::Closed => StoreError::Closed,
            PoolError::Backend(error) => Failure::from(error).into(),
            other => StoreError::Unavailable(other.to_string()),
        })?;
        Ok(Reader { client, asked: Arc::clone(&self.asked) })
    }

    /// Returns every statement that was asked so far.
    pub(crate) fn statements(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }
}

/// Asks for the store's time.
pub(crate) async fn now(reader: &Reader) -> Result<Timestamp, StoreError> {
    let row = reader.one(NOW, &[]).await?;
    let row = row.ok_or_else(|| StoreError::Corrupt("PostgreSQL returned no time".into()))?;
    row::time(&row, 0)
}

impl Reader {
    async fn all(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        let asked = async {
            self.note(sql);
            let statement = self.client.prepare_cached(sql).await?;
            self.client.query(&statement, values).await
        };
        let Ok(answer) = tokio::time::timeout(ANSWER_LIMIT, asked).await else {
            return Err(StoreError::Unavailable("no answer in time".into()));
        };
        answer.map_err(|error| Failure::from(error).into())
    }

    /// Remembers a statement, so that its plan can be looked at.
    fn note(&self, sql: &str) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < ASKED_MAX && !asked.contains(sql) {
            asked.insert(sql.to_owned());
        }
    }

    async fn one(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.all(sql, values).await?.into_iter().next())
    }
}
