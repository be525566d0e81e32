//! Jobs stored in a transaction of your own by `tokio-postgres`: there if and only if it
//! commits.
//!
//! ```no_run
//! # use outlast_sdk::{BoxError, NewJob, postgres};
//! # async fn order(client: &mut tokio_postgres::Client) -> Result<(), BoxError> {
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into orders (id) values ($1)", &[&7_i64]).await?;
//! postgres::enqueue(&transaction, NewJob::new("order.confirm", 7)).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! An error ends the transaction, as every error in PostgreSQL does: roll it back, or set a
//! savepoint before.

use outlast_core::id::JobId;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, GenericClient};
use uuid::Uuid;

use crate::client::{ClientError, NewJob};
use crate::sql;

/// Why a job was not stored in a transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// It cannot be written as JSON; nothing was sent.
    #[error(transparent)]
    Job(#[from] ClientError),
    /// It is not valid.
    #[error("job was refused: {0}")]
    Invalid(String),
    /// A job with its id exists.
    #[error("{0}")]
    Exists(String),
    /// The database holds no Outlast store, or one of an older version.
    #[error("{0}: let a server of version {version} start on this database first", version = env!("CARGO_PKG_VERSION"))]
    NoStore(String),
    /// The role may not store jobs.
    #[error(
        "{0}: grant it `usage on schema outlast` and `execute on function outlast.enqueue_all`"
    )]
    NotGranted(String),
    /// Any other error of PostgreSQL or the connection.
    #[error(transparent)]
    Postgres(Error),
}

impl From<Error> for EnqueueError {
    fn from(error: Error) -> Self {
        let Some(said) = error.as_db_error() else { return Self::Postgres(error) };
        let (code, words) = (said.code(), said.message().to_owned());
        match code.code() {
            sql::INVALID => Self::Invalid(words),
            sql::EXISTS => Self::Exists(words),
            _ if *code == SqlState::UNDEFINED_FUNCTION
                || *code == SqlState::INVALID_SCHEMA_NAME =>
            {
                Self::NoStore(words)
            }
            _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::NotGranted(words),
            _ => Self::Postgres(error),
        }
    }
}

/// Stores a job in the transaction that `client` is, and returns its id. Given a connection
/// outside of a transaction, it is one of its own.
///
/// # Errors
/// Returns why it is not stored.
pub async fn enqueue(client: &impl GenericClient, job: NewJob) -> Result<JobId, EnqueueError> {
    let parameter = sql::parameter([job])?;
    let row = client.query_one(sql::ENQUEUE, &[&parameter]).await?;
    Ok(JobId(row.try_get::<_, Uuid>(0)?))
}

/// Stores several jobs in the transaction that `client` is; returns their ids in order.
///
/// # Errors
/// Returns why none of them is stored.
pub async fn enqueue_all(
    client: &impl GenericClient,
    jobs: impl IntoIterator<Item = NewJob>,
) -> Result<Vec<JobId>, EnqueueError> {
    let parameter = sql::parameter(jobs)?;
    let rows = client.query(sql::ENQUEUE, &[&parameter]).await?;
    let ids = rows.iter().map(|row| row.try_get::<_, Uuid>(0).map(JobId));
    ids.collect::<Result<_, _>>().map_err(EnqueueError::Postgres)
}
