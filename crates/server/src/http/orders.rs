//! Commands about one job, for both APIs.

use std::time::Duration;

use outlast_core::id::JobId;
use outlast_store::Request;
use outlast_store::arrival::{ArrivalState, EnqueueArrived};
use outlast_store::command::{Finish, JobOrder};
use outlast_store::record::JobRecord;
use outlast_store::reply::{MoveRefusal, Moved};

use super::App;
use super::error::ApiError;
use crate::intake;

/// Longest that an answer about the end of a job waits until its workflow has moved on, so that who reads
/// it finds the jobs that follow.
const SETTLED: Duration = Duration::from_millis(250);

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
    app.engine.submit(order).await?;
    Ok(true)
}

/// Carries out an order about a job and returns the job.
pub(crate) async fn carry_out(app: &App, order: JobOrder) -> Result<JobRecord, ApiError> {
    let id = order.job;
    moved(app, order).await?;
    job(app, id, None).await
}

/// Submits a request that moves one job.
pub(crate) async fn moved<R: OfJob>(app: &App, request: R) -> Result<Moved, ApiError> {
    let id = request.job();
    let moved = try_move(app, request).await?;
    moved.map_err(|refusal| ApiError::moving(id, &refusal))
}

/// As [`moved`], but returns the refusal.
pub(crate) async fn try_move<R: OfJob>(
    app: &App,
    request: R,
) -> Result<Result<Moved, MoveRefusal>, ApiError> {
    let id = request.job();
    let (moved, request) = app.engine.submit_keeping(request).await?;
    let moved = match moved {
        // Its program may have committed a moment ago.
        Err(MoveRefusal::NotFound) if enqueue_arrival(app, id).await? => {
            app.engine.submit(request).await?
        }
        moved => moved,
    };
    if let Ok(Moved { state, workflow: Some(workflow), .. }) = &moved
        && state.is_terminal()
    {
        app.engine.shared().workflows.settled(*workflow, SETTLED).await;
    }
    Ok(moved)
}

/// A request that moves one job.
pub(crate) trait OfJob: Request<Reply = Result<Moved, MoveRefusal>> {
    /// Returns the job.
    fn job(&self) -> JobId;
}

impl OfJob for JobOrder {
    fn job(&self) -> JobId {
        self.job
    }
}

impl OfJob for Finish {
    fn job(&self) -> JobId {
        self.job
    }
}
