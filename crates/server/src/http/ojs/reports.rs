//! Fetch, ack, nack: the plain worker's side of an attempt.

use std::num::NonZeroU32;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{Refusal, State};
use outlast_core::time::Span;
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, EndDetail, Fence, Finish, ReportedOutcome, Reporter,
};
use outlast_store::reply::{ClaimRefusal, Claimed, MoveRefusal, Moved};
use outlast_wire::json::Object;
use outlast_wire::ojs::worker::{About, Ack, Fetch, Nack, NackSort, report_fields, unacknowledged};

use super::plain_workers;
use crate::engine::ClaimError;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::response::{ApiResponse, object};
use crate::http::{App, job_view, orders};

/// Names of queues that are shorter than this together take no room while a fetch waits for a job.
const NAMES_MAX: usize = 1024;

pub(super) async fn fetch(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let tenant = req.tenant()?;
    let fetch = Fetch::read(&body)?;
    drop(body);
    // It may wait for a job. Names of very many queues count until then.
    let names = fetch.queues.iter().map(String::len).sum::<usize>();
    req.holds_only(if names < NAMES_MAX { 0 } else { names });
    if let Some(worker) = &fetch.worker {
        plain_workers::revive(&req.app, worker).await?;
    }
    let claim = Claim {
        claimant: Claimant::Plain {
            worker: fetch.worker,
            visibility: fetch
                .visibility
                .unwrap_or_else(|| req.app.engine.settings().ojs_visibility),
        },
        from: ClaimFrom::Queues { queues: fetch.queues, tenant },
        max: NonZeroU32::new(fetch.count).unwrap_or(NonZeroU32::MIN),
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    let wait = fetch.wait.filter(|wait| *wait > Span::ZERO);
    let claimed = match req.app.engine.claim_plain(claim, wait).await {
        Ok(claimed) => claimed,
        // A worker that is quiet or drains gets nothing, which is no error (EXT-GS-003).
        Err(ClaimError::Refused(ClaimRefusal::NotActive(_))) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok(ApiResponse::ok(jobs(&claimed)))
}

fn jobs(claimed: &[Claimed]) -> Vec<u8> {
    object(|object| {
        object.array("jobs", claimed, |out, claimed| job_view::claimed(claimed).write(out));
    })
}

pub(super) async fn ack(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let Ack { about, result } = Ack::read(&body)?;
    let by = by(&req, &about);
    let detail = EndDetail {
        result,
        evidence: "acknowledged by a plain client".into(),
        ..EndDetail::default()
    };
    let moved = match finish(&req.app, by, about, ReportedOutcome::Completed, detail).await? {
        Reported::Moved(moved) => moved,
        Reported::TooLate(answer) => return Ok(answer),
    };
    Ok(ApiResponse::object(|object| {
        moved_fields(object, &moved);
        object.time("completed_at", moved.at);
    }))
}

pub(super) async fn nack(mut req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = req.body().await?;
    let Nack { about, sort, error } = Nack::read(&body)?;
    let by = by(&req, &about);
    let reported = match sort {
        NackSort::Failed { error_type, retryable } => {
            ReportedOutcome::Failed { error_type, retryable }
        }
        NackSort::TimedOut => ReportedOutcome::TimedOut,
        NackSort::Interrupted => ReportedOutcome::Interrupted,
        NackSort::Requeued => ReportedOutcome::Requeued,
    };
    let code = (reported == ReportedOutcome::Interrupted).then_some(EvidenceCode::Drained);
    let evidence = Evidence { code, text: "reported by a plain client".into() };
    let detail = EndDetail { error: Some(error), evidence, ..EndDetail::default() };
    let moved = match finish(&req.app, by, about, reported, detail).await? {
        Reported::Moved(moved) => moved,
        Reported::TooLate(answer) => return Ok(answer),
    };
    Ok(ApiResponse::object(|object| {
        moved_fields(object, &moved);
        object.number("max_attempts", moved.max_attempts);
        if let Some(due) = moved.due.filter(|_| moved.state == State::Retryable) {
            object.time("next_attempt_at", due);
            object.number("retry_delay_ms", due.since(moved.at).as_millis());
        }
        if moved.state == State::Discarded {
            object.time("discarded_at", moved.at);
            object.time("completed_at", moved.at);
            object.flag("dead_letter", moved.dead_letter);
        }
    }))
}

/// Returns the reporter, for the event log.
fn by(req: &ApiRequest, about: &About) -> String {
    about.worker.as_ref().map_or_else(|| req.client(), |id| format!("worker {id}"))
}

/// The outcome of a report.
enum Reported {
    Moved(Moved),
    /// The job was cancelled while the attempt ran; the response says so.
    TooLate(ApiResponse),
}

async fn finish(
    app: &App,
    by: String,
    about: About,
    reported: ReportedOutcome,
    detail: EndDetail,
) -> Result<Reported, ApiError> {
    let job = about.job;
    let fence = Fence {
        epoch: about.lease,
        worker: about.worker.map(Reporter::Plain),
        attempt: about.attempt,
    };
    let finish = Finish { job, fence, reported, detail, by };
    match orders::try_move(app, finish).await? {
        Ok(moved) => Ok(Reported::Moved(moved)),
        Err(refusal) => match too_late(app, job, &refusal).await? {
            Some(answer) => Ok(Reported::TooLate(answer)),
            None => Err(ApiError::moving(job, &refusal)),
        },
    }
}

/// Returns the response to a report that came after its job was cancelled; `None` if it was
/// refused for another reason.
async fn too_late(
    app: &App,
    job: JobId,
    refusal: &MoveRefusal,
) -> Result<Option<ApiResponse>, ApiError> {
    let MoveRefusal::Refused(Refusal::Terminal(State::Cancelled)) = refusal else {
        return Ok(None);
    };
    let record = orders::job(app, job, None).await?;
    // There is nothing to report about a job that was never claimed.
    let ran = record.epoch > Epoch::ZERO;
    Ok(ran.then(|| ApiResponse::object(|object| unacknowledged(object, job, record.attempt))))
}

fn moved_fields(object: &mut Object<'_>, moved: &Moved) {
    report_fields(object, moved.job);
    object.plain("state", moved.state);
    object.number("attempt", moved.attempt);
}
