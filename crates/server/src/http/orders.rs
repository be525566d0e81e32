//! Commands about one job, for both APIs.

use outlast_core::id::JobId;
use outlast_store::arrival::{ArrivalState, EnqueueArrived};
use outlast_store::command::JobOrder;
use outlast_store::record::JobRecord;
use outlast_store::reply::{MoveRefusal, Moved};
use outlast_store::{Command, Reply};

use super::App;
use super::error::ApiError;
use crate::engine::unexpected;
use crate::intake;

/// Reads a job, or fails if it does not exist (for this tenant).
pub(crate) async fn job(app: &App, id: JobId, tenant: Option<&str>) -> Result<JobRecord, ApiError> {
    let store = app.engine.store();
    let mut record = store.job(id).await?;
    if record.is_none() && enqueue_arrival(app, id).await? {
        record = store.job(id).await?;
    }
    let visible = |record: &JobRecord| match tenant {
        Some(tenant) => record.job.key.tenant.as_deref() == Some(tenant),
        None => true,
    };
    record.filter(visible).ok_or_else(|| ApiError::no_job(&id.to_string()))
}

/// Enqueues a job that its program stored by SQL a moment ago. Returns whether it is there.
async fn enqueue_arrival(app: &App, id: JobId) -> Result<bool, ApiError> {
    let arrival = match app.engine.store().arrival(id).await? {
        ArrivalState::Unknown => return Ok(false),
        ArrivalState::Enqueued => return Ok(true),
        ArrivalState::Waiting(arrival) => arrival,
    };
    let planned = intake::arrival::plan(app.engine.settings(), &arrival, app.now().await?);
    let order = EnqueueArrived { jobs: vec![planned], wait: true, watch: None };
    app.engine.submit(Command::EnqueueArrived(order)).await?;
    Ok(true)
}

/// Cancels a job and returns it.
pub(crate) async fn cancel(app: &App, order: JobOrder) -> Result<JobRecord, ApiError> {
    let id = order.job;
    moved(app, id, Command::Cancel(order)).await?;
    job(app, id, None).await
}

/// Replays a discarded job in a new life and returns it.
pub(crate) async fn replay(app: &App, order: JobOrder) -> Result<JobRecord, ApiError> {
    let id = order.job;
    moved(app, id, Command::Replay(order)).await?;
    job(app, id, None).await
}

/// Submits a command that moves one job.
pub(crate) async fn moved(app: &App, id: JobId, command: Command) -> Result<Moved, ApiError> {
    let moved = try_move(app, id, command).await?;
    moved.map_err(|refusal| ApiError::moving(id, &refusal))
}

/// As [`moved`], but returns the refusal.
pub(crate) async fn try_move(
    app: &App,
    id: JobId,
    command: Command,
) -> Result<Result<Moved, MoveRefusal>, ApiError> {
    let (moved, command) = submit_move(app, command).await?;
    match moved {
        // Its program may have committed a moment ago.
        Err(MoveRefusal::NotFound) if enqueue_arrival(app, id).await? => {
            let (moved, _) = submit_move(app, command).await?;
            Ok(moved)
        }
        moved => Ok(moved),
    }
}

/// Returns the result of a command that moves one job, and the command.
async fn submit_move(
    app: &App,
    command: Command,
) -> Result<(Result<Moved, MoveRefusal>, Command), ApiError> {
    match app.engine.submit_keeping(command).await? {
        (Reply::Moved(moved), command) => Ok((moved, command)),
        (other, _) => Err(unexpected("a move", &other).into()),
    }
}
