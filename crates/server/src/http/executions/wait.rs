//! A long poll for the end of an execution.

use std::time::Duration;

use outlast_core::id::JobId;
use outlast_core::limits::EXECUTION_WAIT_MAX;
use outlast_core::time::Span;
use outlast_store::record::JobRecord;
use outlast_wire::{Fault, duration};
use serde_json::Value;
use tokio::time::Instant;

use crate::http::commit_watch::CommitWatch;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::{App, orders};

/// Reads how long the request waits, if it does.
pub(in crate::http) fn asked(req: &ApiRequest) -> Result<Option<Span>, Fault> {
    let Some(text) = req.query("wait") else { return Ok(None) };
    let wait = duration::value(&Value::String(text));
    let wait = wait.filter(|wait| *wait <= EXECUTION_WAIT_MAX);
    wait.map(Some).ok_or_else(|| {
        let seconds = EXECUTION_WAIT_MAX.as_secs();
        Fault::field("wait", format!("must be seconds or a duration, from 0 to `{seconds}s`"))
    })
}

/// Returns the execution once it has ended, or as it is when the time is over or the server stops.
pub(super) async fn for_end(app: &App, id: JobId, wait: Span) -> Result<JobRecord, ApiError> {
    let until = Instant::now() + Duration::from_millis(wait.as_millis());
    let mut commits = CommitWatch::new(app);
    let stopping = app.engine.shared().stopping();
    loop {
        // Before reading, so that commits in the meantime cause another read.
        commits.ready().await;
        let record = orders::job(app, id, None).await?;
        if record.state.is_terminal() {
            return Ok(record);
        }
        commits.pause(app);
        tokio::select! {
            biased;
            () = stopping.cancelled() => return Ok(record),
            () = tokio::time::sleep_until(until) => return Ok(record),
            goes_on = commits.changed() => if !goes_on {
                return Ok(record);
            },
        }
    }
}
