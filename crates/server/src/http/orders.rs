//! Orders about one job, whichever API they came by.

use outlast_core::id::JobId;
use outlast_store::command::JobOrder;
use outlast_store::record::JobRecord;
use outlast_store::reply::Moved;
use outlast_store::{Command, Reply, Store};

use super::App;
use super::error::Failure;
use crate::engine::unexpected;

/// Reads a job, or says that it is not known (to this tenant).
pub(crate) async fn job<S: Store>(
    app: &App<S>,
    id: JobId,
    tenant: Option<&str>,
) -> Result<JobRecord, Failure> {
    let record = app.engine.store().job(id).await?;
    let visible = |record: &JobRecord| match tenant {
        Some(tenant) => record.job.key.tenant.as_deref() == Some(tenant),
        None => true,
    };
    record.filter(visible).ok_or_else(|| Failure::no_job(&id.to_string()))
}

/// Cancels a job and returns it.
pub(crate) async fn cancel<S: Store>(app: &App<S>, order: JobOrder) -> Result<JobRecord, Failure> {
    let id = order.job;
    moved(app, id, Command::Cancel(order)).await?;
    job(app, id, None).await
}

/// Replays a discarded job in a new life and returns it.
pub(crate) async fn replay<S: Store>(app: &App<S>, order: JobOrder) -> Result<JobRecord, Failure> {
    let id = order.job;
    moved(app, id, Command::Replay(order)).await?;
    job(app, id, None).await
}

/// Puts a command that moves one job into the next batch.
pub(crate) async fn moved<S: Store>(
    app: &App<S>,
    id: JobId,
    command: Command,
) -> Result<Moved, Failure> {
    match app.engine.submit(command).await? {
        Reply::Moved(moved) => moved.map_err(|refusal| Failure::moving(id, &refusal)),
        other => Err(unexpected("a move", &other).into()),
    }
}
