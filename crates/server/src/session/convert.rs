//! Wire types to and from the store's.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::Refusal;
use outlast_core::limits;
use outlast_core::resources::{MEMORY_MAX, Usage};
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Phase;
use outlast_core::worker::order::WorkerOrder;
use outlast_proto::v1::{self, AttemptKey, Hello, RefusalCode, Refused, Verdict};
use outlast_store::Command;
use outlast_store::command::{
    EndDetail, Fence, Finish, LogChunk, Progress, Registration, ReportedOutcome, Reporter, Start,
    Stream, WorkerRole,
};
use outlast_store::reply::MoveRefusal;
use outlast_store_rules::rules::reported_loss_error;
use outlast_wire::json;
use uuid::Uuid;

use crate::engine::input::SessionReport;
use crate::engine::profile::{Profile, lacking, stale, with_facts};

/// Returns the wire's name of an attempt.
pub(crate) fn key(job: JobId, epoch: Epoch) -> AttemptKey {
    AttemptKey { job_id: job.0.as_bytes().to_vec().into(), epoch: epoch.0 }
}

/// Returns the attempt that the wire names.
pub(crate) fn attempt(key: &AttemptKey) -> Option<(JobId, Epoch)> {
    let id = Uuid::from_slice(&key.job_id).ok()?;
    Some((JobId(id), Epoch(key.epoch)))
}

/// Returns the worker that the wire names.
pub(crate) fn worker_id(bytes: &[u8]) -> Option<WorkerId> {
    Uuid::from_slice(bytes).ok().map(WorkerId)
}

pub(super) fn refused(code: RefusalCode, reason: impl Into<String>) -> Refused {
    Refused { code: code.into(), reason: reason.into() }
}

/// Returns the fence of a native worker's report.
pub(crate) fn native_fence(worker: WorkerId, epoch: Epoch) -> Fence {
    Fence { epoch: Some(epoch), worker: Some(Reporter::Native(worker)), attempt: None }
}

/// Returns the verdict on a refused report.
pub(crate) const fn verdict(refusal: &MoveRefusal) -> Verdict {
    match refusal {
        MoveRefusal::NotFound => Verdict::UnknownJob,
        MoveRefusal::Refused(Refusal::Terminal(_)) => Verdict::TooLate,
        MoveRefusal::Refused(_) | MoveRefusal::Moved => Verdict::StaleEpoch,
    }
}

/// Returns the phase that an order asks for.
pub(crate) const fn phase_of(order: WorkerOrder) -> v1::Phase {
    match order {
        WorkerOrder::Quiet => v1::Phase::Quiet,
        WorkerOrder::Resume => v1::Phase::Running,
        WorkerOrder::Drain => v1::Phase::Draining,
    }
}

/// Returns the wire's word for a phase.
pub(crate) const fn wire_phase(phase: Phase) -> v1::Phase {
    match phase {
        Phase::Running => v1::Phase::Running,
        Phase::Quiet => v1::Phase::Quiet,
        Phase::Draining => v1::Phase::Draining,
    }
}

/// Returns the profile that a hello describes, or what is wrong with it.
pub(crate) fn profile(hello: &Hello) -> Result<Profile, String> {
    let role = WorkerRole::parse(&hello.role)
        .filter(|role| matches!(role, WorkerRole::Action | WorkerRole::Sdk))
        .ok_or_else(|| format!("role `{}` is not one of action, sdk", hello.role))?;
    if hello.name.is_empty() || hello.name.len() > limits::WORKER_NAME_MAX {
        return Err(format!("name must have 1 to {} bytes", limits::WORKER_NAME_MAX));
    }
    if hello.concurrency == 0 || hello.concurrency > limits::CONCURRENCY_MAX {
        return Err(format!("concurrency must be 1 to {}", limits::CONCURRENCY_MAX));
    }
    let labels = hello.labels.clone().into_iter().collect::<BTreeMap<_, _>>();
    Ok(Profile {
        role,
        queues: hello.queues.clone(),
        runtimes: hello.runtimes.clone(),
        labels: with_facts(labels, &about_of(hello), &hello.runtimes),
        types: hello.types.iter().cloned().collect(),
        lacking: lacking(&about_of(hello)),
        stale: stale(&about_of(hello)),
    })
}

fn about_of(hello: &Hello) -> serde_json::Value {
    let about = serde_json::from_str(&hello.about_json);
    let mut about = about.unwrap_or_else(|_not_json| serde_json::json!({}));
    if let Some(about) = about.as_object_mut() {
        about.insert("version".into(), serde_json::json!(hello.version));
    }
    about
}

/// Returns the registration that a hello asks for.
pub(crate) fn registration(
    worker: WorkerId,
    hello: &Hello,
    profile: &Profile,
    lease: Span,
) -> Registration {
    let mut about = about_of(hello);
    if let Some(about) = about.as_object_mut() {
        about.insert("types".into(), serde_json::json!(hello.types));
    }
    Registration {
        id: worker,
        name: hello.name.clone(),
        role: profile.role,
        concurrency: hello.concurrency,
        queues: profile.queues.clone(),
        runtimes: profile.runtimes.clone(),
        labels: profile.labels.clone(),
        lease,
        about: about.to_string(),
        plain_id: None,
        previous: hello.previous_worker_ids.iter().filter_map(|id| worker_id(id)).collect(),
    }
}

/// Returns the command that a report stands for, or what is wrong with it.
pub(crate) fn report(
    worker: WorkerId,
    report: v1::Report,
    now: Timestamp,
) -> Result<SessionReport, String> {
    let key = report.attempt.ok_or("report names no attempt")?;
    let (job, epoch) = attempt(&key).ok_or("job id must have 16 bytes")?;
    let fence = native_fence(worker, epoch);
    let (command, finished) = match report.what.ok_or("report has no content")? {
        v1::report::What::Started(started) => {
            let pack_digest = pack_digest(&started.pack_digest);
            (Command::Start(Start { job, fence, pack_digest }), false)
        }
        v1::report::What::Checkpoint(kept) => {
            let checkpoint = Some(bounded_checkpoint(kept.bytes.to_vec())?);
            (Command::Progress(Box::new(Progress { job, fence, checkpoint })), false)
        }
        v1::report::What::Finished(end) => {
            let end = readable(end);
            let reported = reported_outcome(&end);
            let detail = detail(end, now);
            let by = format!("worker {worker}");
            (Command::Finish(Box::new(Finish { job, fence, reported, detail, by })), true)
        }
    };
    Ok(SessionReport { job, epoch, command, finished })
}

/// Replaces an end that cannot be stored by one that can: a worker would keep and resend an
/// unanswered end forever.
fn readable(mut end: v1::Finished) -> v1::Finished {
    end.error_type = limits::cut(end.error_type, limits::ERROR_TYPE_BYTES_MAX);
    end.error_message = limits::cut(end.error_message, limits::ERROR_MESSAGE_BYTES_MAX);
    end.evidence = bounded(end.evidence);
    if end.error_details_json.len() > limits::ERROR_DETAILS_BYTES_MAX {
        let size = end.error_details_json.len();
        end.error_details_json = bytes::Bytes::new();
        end.evidence = format!("{} (error details not kept: {size} bytes)", end.evidence);
    }
    if end.checkpoint.len() > limits::CHECKPOINT_BYTES_MAX {
        end.checkpoint = bytes::Bytes::new();
        end.evidence.push_str(" (checkpoint too large to keep)");
    }
    if !end.error_details_json.is_empty()
        && let Err(problem) = json::document(&end.error_details_json)
    {
        end.error_details_json = bytes::Bytes::new();
        end.evidence = format!("{} (error details not kept: they {problem})", end.evidence);
    }
    let problem = match end.ending() {
        v1::Ending::Unspecified => "report does not say how the attempt ended".to_owned(),
        v1::Ending::Completed if end.result_json.len() > limits::RESULT_BYTES_MAX => {
            format!("result is larger than {} bytes", limits::RESULT_BYTES_MAX)
        }
        v1::Ending::Completed if !end.result_json.is_empty() => {
            match json::document(&end.result_json) {
                Ok(_) => return end,
                Err(problem) => format!("result {problem}"),
            }
        }
        _ => return end,
    };
    v1::Finished {
        ending: v1::Ending::Failed.into(),
        result_json: bytes::Bytes::new(),
        error_type: "invalid_result".to_owned(),
        error_message: problem,
        not_retryable: true,
        ..end
    }
}

fn reported_outcome(end: &v1::Finished) -> ReportedOutcome {
    match end.ending() {
        v1::Ending::Completed => ReportedOutcome::Completed,
        v1::Ending::Failed | v1::Ending::Unspecified => ReportedOutcome::Failed {
            error_type: end.error_type.clone(),
            retryable: !end.not_retryable,
        },
        v1::Ending::TimedOut => ReportedOutcome::TimedOut,
        // A cancelled attempt only frees what it held; which word ends it does not matter,
        // and if the cancel was not the store's the job must run again.
        v1::Ending::Interrupted | v1::Ending::Cancelled => ReportedOutcome::Interrupted,
        v1::Ending::NotStarted => ReportedOutcome::NotStarted,
        v1::Ending::Lost => ReportedOutcome::Lost,
    }
}

/// What is stored of an end that is [`readable`].
fn detail(end: v1::Finished, now: Timestamp) -> EndDetail {
    let completed = end.ending() == v1::Ending::Completed;
    let result = (completed && !end.result_json.is_empty())
        .then(|| String::from_utf8_lossy(&end.result_json).trim().to_owned());
    let started = end
        .ran_ms
        .map(|ran| Timestamp(now.0.saturating_sub(i64::try_from(ran).unwrap_or(i64::MAX)).max(0)));
    let checkpoint = (!end.checkpoint.is_empty()).then(|| end.checkpoint.to_vec());
    let proof =
        if end.tree_empty || end.ran_ms.is_none() { "" } else { " (tree not proved empty)" };
    let code = EvidenceCode::parse(&end.evidence_code).or_else(|| match end.ending() {
        // Older workers do not say it.
        v1::Ending::Interrupted => Some(EvidenceCode::Drained),
        v1::Ending::NotStarted => Some(EvidenceCode::HandedBack),
        _ => None,
    });
    let lost = end.ending() == v1::Ending::Lost;
    let error = match (completed, lost, end.error_type.is_empty()) {
        (true, ..) | (false, false, true) => None,
        (false, true, _) => {
            Some(reported_loss_error(&Evidence { code, text: end.evidence.clone() }))
        }
        (false, false, false) => Some(error_json(&end)),
    };
    EndDetail {
        result,
        error,
        started,
        exit_code: end.exit_code,
        checkpoint,
        evidence: Evidence { code, text: format!("{}{proof}", end.evidence) },
        pack_digest: pack_digest(&end.pack_digest),
        usage: usage(&end),
    }
}

/// What the worker says that the attempt used; what no host has is not kept.
fn usage(end: &v1::Finished) -> Usage {
    let most = |number: &u64| *number <= MEMORY_MAX;
    Usage {
        peak_memory: end.peak_memory_bytes.filter(most),
        cpu: end.cpu_ms.filter(most).map(Span),
    }
}

/// The digest of a pack, unless it is none.
fn pack_digest(digest: &str) -> Option<Arc<str>> {
    let is_one = !digest.is_empty()
        && digest.len() <= limits::PACK_DIGEST_BYTES_MAX
        && digest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_one.then(|| digest.into())
}

/// Evidence as it is stored.
pub(crate) fn bounded(evidence: String) -> String {
    limits::cut(evidence, limits::EVIDENCE_BYTES_MAX)
}

fn bounded_checkpoint(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if bytes.len() > limits::CHECKPOINT_BYTES_MAX {
        return Err(format!("checkpoint is larger than {} bytes", limits::CHECKPOINT_BYTES_MAX));
    }
    Ok(bytes)
}

fn error_json(end: &v1::Finished) -> String {
    let mut out = Vec::new();
    let mut error = json::Object::begin(&mut out);
    error.text("type", &end.error_type);
    error.text("message", &end.error_message);
    if let Ok(details) = json::document(&end.error_details_json) {
        // As it was sent: what passed the check once is not read again.
        error.raw("details", details);
    }
    error.end();
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the command that keeps a piece of output, or `None` when it names no attempt.
pub(crate) fn log(chunk: v1::LogChunk) -> Option<Command> {
    let stream = match chunk.stream() {
        v1::LogStream::Stdout => Stream::Stdout,
        v1::LogStream::Stderr => Stream::Stderr,
        v1::LogStream::Worker => Stream::Worker,
    };
    let (job, epoch) = attempt(chunk.attempt.as_ref()?)?;
    Some(Command::Log(LogChunk { job, epoch, n: chunk.n, stream, bytes: chunk.bytes.to_vec() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(end: v1::Finished) -> Finish {
        let attempt = Some(key(JobId(Uuid::from_u128(1)), Epoch(1)));
        let sent = v1::Report { attempt, what: Some(v1::report::What::Finished(end)) };
        let heard = report(WorkerId(Uuid::nil()), sent, Timestamp(0)).unwrap();
        let Command::Finish(finish) = heard.command else { panic!("expected a finish") };
        *finish
    }

    #[test]
    fn an_end_that_cannot_be_stored_is_a_failure_and_is_never_left_unanswered() {
        let deep = format!("{}{}", "[".repeat(65), "]".repeat(65)).into_bytes();
        let large = format!("\"{}\"", "x".repeat(limits::RESULT_BYTES_MAX)).into_bytes();
        for result in [b"{not json".to_vec(), b"\"\xff\"".to_vec(), deep, large] {
            let end = v1::Finished {
                ending: v1::Ending::Completed.into(),
                result_json: result.into(),
                ..v1::Finished::default()
            };
            let finish = heard(end);
            let expected =
                ReportedOutcome::Failed { error_type: "invalid_result".into(), retryable: false };
            assert_eq!(finish.reported, expected, "{:?}", finish.detail.error);
            assert!(finish.detail.error.unwrap().contains("result"));
            assert_eq!(finish.detail.result, None);
        }
        assert!(matches!(heard(v1::Finished::default()).reported, ReportedOutcome::Failed { .. }));
    }

    #[test]
    fn details_are_kept_as_sent_and_unreadable_ones_are_left_out_by_name() {
        let end = |details: &'static str| v1::Finished {
            ending: v1::Ending::Failed.into(),
            error_type: "e".into(),
            error_message: "m".into(),
            error_details_json: details.as_bytes().into(),
            ..v1::Finished::default()
        };
        let kept = heard(end("{\"n\":0.1234567890123456789}")).detail;
        assert_eq!(
            kept.error.as_deref(),
            Some("{\"type\":\"e\",\"message\":\"m\",\"details\":{\"n\":0.1234567890123456789}}")
        );
        // Strict readers could not read the second one.
        for unreadable in ["{", "{\"n\":1e999}"] {
            let dropped = heard(end(unreadable)).detail;
            assert_eq!(dropped.error.as_deref(), Some("{\"type\":\"e\",\"message\":\"m\"}"));
            assert!(dropped.evidence.contains("details not kept"), "{}", dropped.evidence);
        }
    }
}
