//! Fetch, ack, nack: the plain worker's side of an attempt.

use std::num::NonZeroU32;

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{Refusal, State};
use outlast_core::time::Span;
use outlast_store::Command;
use outlast_store::command::{
    Claim, ClaimFrom, Claimant, EndDetail, Ending, Fence, Finish, Reporter,
};
use outlast_store::reply::{ClaimRefusal, Claimed, MoveRefusal, Moved};
use outlast_wire::json::Object;
use outlast_wire::ojs::worker::{About, Ack, Fetch, Nack, NackSort, report_fields, unacknowledged};

use super::plain;
use crate::engine::ClaimError;
use crate::http::answer::{Answer, object};
use crate::http::call::Call;
use crate::http::error::Failure;
use crate::http::{App, orders, show};

pub(super) async fn fetch(mut call: Call) -> Result<Answer, Failure> {
    let body = call.body().await?;
    let tenant = call.tenant()?;
    let fetch = Fetch::read(&body)?;
    if let Some(worker) = &fetch.worker {
        plain::revive(&call.app, worker).await?;
    }
    let claim = Claim {
        claimant: Claimant::Plain {
            worker: fetch.worker,
            visibility: fetch
                .visibility
                .unwrap_or_else(|| call.app.engine.settings().ojs_visibility),
        },
        from: ClaimFrom::Queues { queues: fetch.queues, tenant },
        max: NonZeroU32::new(fetch.count).unwrap_or(NonZeroU32::MIN),
    };
    let wait = fetch.wait.filter(|wait| *wait > Span::ZERO);
    let claimed = match call.app.engine.claim_plain(claim, wait).await {
        Ok(claimed) => claimed,
        // A worker that is quiet or drains gets nothing, which is no error (EXT-GS-003).
        Err(ClaimError::Refused(ClaimRefusal::NotActive(_))) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok(Answer::ok(jobs(&claimed)))
}

fn jobs(claimed: &[Claimed]) -> Vec<u8> {
    object(|object| {
        object.array("jobs", claimed, |out, claimed| show::claimed(claimed).write(out));
    })
}

pub(super) async fn ack(mut call: Call) -> Result<Answer, Failure> {
    let body = call.body().await?;
    let Ack { about, result } = Ack::read(&body)?;
    let by = by(&call, &about);
    let detail = EndDetail {
        result,
        evidence: "acknowledged by a plain client".into(),
        ..EndDetail::default()
    };
    let moved = match finish(&call.app, by, about, Ending::Completed, detail).await? {
        Reported::Moved(moved) => moved,
        Reported::TooLate(answer) => return Ok(answer),
    };
    Ok(Answer::object(|object| {
        moved_fields(object, &moved);
        object.time("completed_at", moved.at);
    }))
}

pub(super) async fn nack(mut call: Call) -> Result<Answer, Failure> {
    let body = call.body().await?;
    let Nack { about, sort, error } = Nack::read(&body)?;
    let by = by(&call, &about);
    let ending = match sort {
        NackSort::Failed { error_type, retryable } => Ending::Failed { error_type, retryable },
        NackSort::TimedOut => Ending::TimedOut,
        NackSort::Interrupted => Ending::Interrupted,
        NackSort::Requeued => Ending::Requeued,
    };
    let detail = EndDetail {
        error: Some(error),
        evidence: "reported by a plain client".into(),
        ..EndDetail::default()
    };
    let moved = match finish(&call.app, by, about, ending, detail).await? {
        Reported::Moved(moved) => moved,
        Reported::TooLate(answer) => return Ok(answer),
    };
    let record = orders::job(&call.app, moved.job, None).await?;
    Ok(Answer::object(|object| {
        moved_fields(object, &moved);
        object.number("max_attempts", record.job.rules.retry.max_attempts);
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

/// Returns who reports, for the event log.
fn by(call: &Call, about: &About) -> String {
    about.worker.as_ref().map_or_else(|| call.by(), |id| format!("worker {id}"))
}

/// What came of a report.
enum Reported {
    Moved(Moved),
    /// The job was cancelled while the attempt ran; the answer says so.
    TooLate(Answer),
}

async fn finish(
    app: &App,
    by: String,
    about: About,
    ending: Ending,
    detail: EndDetail,
) -> Result<Reported, Failure> {
    let job = about.job;
    let fence = Fence {
        epoch: about.lease,
        worker: about.worker.map(Reporter::Plain),
        attempt: about.attempt,
    };
    let finish = Finish { job, fence, ending, detail, by };
    match orders::try_move(app, job, Command::Finish(Box::new(finish))).await? {
        Ok(moved) => Ok(Reported::Moved(moved)),
        Err(refusal) => match too_late(app, job, &refusal).await? {
            Some(answer) => Ok(Reported::TooLate(answer)),
            None => Err(Failure::moving(job, &refusal)),
        },
    }
}

/// Answers a report that came after its job's cancel; `None` if that is not why it is refused.
async fn too_late(app: &App, job: JobId, refusal: &MoveRefusal) -> Result<Option<Answer>, Failure> {
    let MoveRefusal::Refused(Refusal::Terminal(State::Cancelled)) = refusal else {
        return Ok(None);
    };
    let record = orders::job(app, job, None).await?;
    // Of a job that was never claimed there is nothing to report.
    let ran = record.epoch > Epoch::ZERO;
    Ok(ran.then(|| Answer::object(|object| unacknowledged(object, job, record.attempt))))
}

fn moved_fields(object: &mut Object<'_>, moved: &Moved) {
    report_fields(object, moved.job);
    object.plain("state", moved.state);
    object.number("attempt", moved.attempt);
}
