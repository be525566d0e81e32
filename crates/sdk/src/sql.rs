//! Jobs stored in a transaction of your own, in the PostgreSQL that the servers use: there if
//! and only if it commits. For any driver: the statement, and what to give it.
//!
//! ```
//! # use outlast_sdk::{NewJob, sql};
//! # fn main() -> Result<(), outlast_sdk::ClientError> {
//! let parameter = sql::parameter([NewJob::new("email.send", "a@b.example")])?;
//! // With sqlx: sqlx::query_scalar(sql::ENQUEUE).bind(parameter).fetch_all(&mut *transaction)
//! // With diesel: diesel::sql_query(sql::ENQUEUE).bind::<Text, _>(parameter)
//! # assert!(parameter.starts_with("[{") && sql::ENQUEUE.contains("$1"));
//! # Ok(())
//! # }
//! ```
//!
//! Errors of the statement carry a code of their own: [`INVALID`] and [`EXISTS`].

use outlast_core::limits::BULK_JOBS_MAX;

use crate::client::{ClientError, NewJob};

/// Stores all jobs of [`parameter`], which is `$1`, a text; returns their ids in order, a row
/// each, as `id uuid`. Needs `usage` of the schema `outlast` and `execute` of
/// `outlast.enqueue_all`, and no right to any table.
pub const ENQUEUE: &str = "select id from outlast.enqueue_all($1::text::jsonb) as id";

/// SQLSTATE of a job that is not valid. The message says what is wrong.
pub const INVALID: &str = "OL002";

/// SQLSTATE of a job whose id is taken.
pub const EXISTS: &str = "OL003";

/// Returns what [`ENQUEUE`] is given to store these jobs: at least one, and at most 10,000.
///
/// # Errors
/// When arguments are no JSON, there is no job or there are too many, or a job brings an
/// idempotency key or is to be unique: what must not be stored twice is a row of the same transaction.
pub fn parameter(jobs: impl IntoIterator<Item = NewJob>) -> Result<String, ClientError> {
    let mut envelopes = Vec::new();
    for job in jobs {
        let (envelope, key) = job.into_parts()?;
        if let Some(key) = key {
            let problem = format!("a job of a transaction has the idempotency key {key:?}");
            let remedy = "leave it out: keep a unique row of your own in the same transaction";
            return Err(ClientError::usage(problem, remedy));
        }
        if !envelope["options"]["unique"].is_null() {
            let problem = "a job of a transaction is to be unique".to_owned();
            let remedy = "leave it out: keep a unique row of your own in the same transaction";
            return Err(ClientError::usage(problem, remedy));
        }
        envelopes.push(envelope);
    }
    if envelopes.is_empty() || envelopes.len() > BULK_JOBS_MAX {
        let problem = format!("{} jobs are stored at once", envelopes.len());
        return Err(ClientError::usage(problem, "store 1 to 10,000 jobs at once"));
    }
    serde_json::to_string(&envelopes).map_err(|source| ClientError::encode("jobs", source))
}
