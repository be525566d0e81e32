//! Answers to queries, on connections of their own that only read. Each answer is one
//! statement where it must be consistent in itself.
//!
//! - [`job`]: jobs with everything about them · [`list`]: lists of jobs and dead letters
//! - [`pool`]: the connections
//! - [`arrival`], [`attempt`], [`log`], [`worker`], [`queue`], [`limit`], [`event`]: what their names say

pub(crate) mod arrival;
pub(crate) mod attempt;
pub(crate) mod browser_session;
pub(crate) mod event;
pub(crate) mod job;
pub(crate) mod limit;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod operation;
mod pool;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod worker;
pub(crate) mod workflow;

use std::time::Duration;

use outlast_core::time::Timestamp;
use outlast_store::StoreError;

use crate::connect::Plans;
use crate::row;
use crate::writer::NOW;
pub(crate) use pool::{PoolSize, Reader, Readers};

/// Connections that read lists and jobs for requests. Answers are waited for a little longer than
/// PostgreSQL may think, for one that hangs.
pub(crate) const ASKED: PoolSize =
    PoolSize { connections: 4, answer: Duration::from_secs(35), plans: Plans::ForValues };
/// The same for what leases, claims and sweeps read: slow lists cannot delay them, and they ask
/// again soon.
pub(crate) const BACKGROUND: PoolSize =
    PoolSize { connections: 2, answer: Duration::from_secs(15), plans: Plans::ForValues };
/// The same for looks where rows begin, which may walk over all that an old snapshot keeps.
pub(crate) const LOOKS: PoolSize =
    PoolSize { connections: 1, answer: Duration::from_secs(35), plans: Plans::ForValues };
/// The same for what workflows need to move on: a server looks at many side by side, and leases and
/// claims do not wait for them.
pub(crate) const WORKFLOWS: PoolSize =
    PoolSize { connections: 4, answer: Duration::from_secs(15), plans: Plans::Kept };

/// Asks for the store's time.
pub(crate) async fn now(reader: &Reader) -> Result<Timestamp, StoreError> {
    let row = reader.one(NOW, &[]).await?;
    let row = row.ok_or_else(|| StoreError::Corrupt("PostgreSQL returned no time".into()))?;
    row::time(&row, 0)
}
