//! Wire types to and from the store's.

use std::collections::BTreeMap;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::Refusal;
use outlast_core::limits;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Phase;
use outlast_proto::v1::{self, AttemptKey, Hello, Verdict};
use outlast_store::Command;
use outlast_store::command::{
    EndDetail, Ending, Finish, LogChunk, Progress, Registration, Start, Stream, WorkerRole,
};
use outlast_store::reply::MoveRefusal;
use serde_json::json;
use uuid::Uuid;

use crate::engine::WorkerOrder;
use crate::engine::input::SessionReport;
use crate::engine::native_fence;
use crate::engine::roster::Profile;

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

/// Returns the verdict on a refused report.
pub(crate) const fn verdict(refusal: &MoveRefusal) -> Verdict {
    match refusal {
        MoveRefusal::NotFound => Verdict::UnknownJob,
        MoveRefusal::Refused(Refusal::Terminal(_)) => Verdict::TooLate,
        MoveRefusal::Refused(_) => Verdict::StaleEpoch,
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
    Ok(Profile {
        name: hello.name.clone(),
        role,
        queues: hello.queues.clone(),
        runtimes: hello.runtimes.clone(),
        labels: hello.labels.clone().into_iter().collect::<BTreeMap<_, _>>(),
        types: hello.types.iter().cloned().collect(),
    })
}

/// Returns the registration that a hello asks for.
pub(crate) fn registration(
    worker: WorkerId,
    hello: &Hello,
    profile: &Profile,
    lease: Span,
) -> Registration {
    let mut about: serde_json::Value =
        serde_json::from_str(&hello.about_json).unwrap_or_else(|_not_json| json!({}));
    if let Some(about) = about.as_object_mut() {
        about.insert("version".into(), json!(hello.version));
        about.insert("types".into(), json!(hello.types));
    }
    Registration {
        id: worker,
        name: profile.name.clone(),
        role: profile.role,
        concurrency: hello.concurrency,
        queues: profile.queues.clone(),
        runtimes: profile.runtimes.clone(),
        labels: profile.labels.clone(),
        lease,
        about: about.to_string(),
        plain_id: None,
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
    let (command, finished) = match report.what.ok_or("report says nothing")? {
        v1::report::What::Started(_) => (Command::Start(Start { job, fence }), false),
        v1::report::What::Checkpoint(kept) => {
            let checkpoint = Some(bounded_checkpoint(kept.bytes.to_vec())?);
            (Command::Progress(Box::new(Progress { job, fence, checkpoint })), false)
        }
        v1::report::What::Finished(end) => {
            let ending = ending(&end)?;
            let detail = detail(end, now)?;
            let by = format!("worker {worker}");
            (Command::Finish(Box::new(Finish { job, fence, ending, detail, by })), true)
        }
    };
    Ok(SessionReport { job, epoch, command, finished })
}

fn ending(end: &v1::Finished) -> Result<Ending, String> {
    Ok(match end.ending() {
        v1::Ending::Completed => Ending::Completed,
        v1::Ending::Failed => {
            Ending::Failed { error_type: end.error_type.clone(), retryable: !end.not_retryable }
        }
        v1::Ending::TimedOut => Ending::TimedOut,
        // A cancelled attempt only frees what it held; which word ends it does not matter,
        // and if the cancel was not the store's the job must run again.
        v1::Ending::Interrupted | v1::Ending::Cancelled => Ending::Interrupted,
        v1::Ending::NotStarted => Ending::NotStarted,
        v1::Ending::Unspecified => return Err("report does not say how the attempt ended".into()),
    })
}

fn detail(end: v1::Finished, now: Timestamp) -> Result<EndDetail, String> {
    if end.result_json.len() > limits::RESULT_BYTES_MAX {
        return Err(format!("result is larger than {} bytes", limits::RESULT_BYTES_MAX));
    }
    let completed = end.ending() == v1::Ending::Completed;
    let result = (completed && !end.result_json.is_empty())
        .then(|| json_text(&end.result_json, "result"))
        .transpose()?;
    let error = (!completed && !end.error_type.is_empty()).then(|| error_json(&end)).transpose()?;
    let started = end
        .ran_ms
        .map(|ran| Timestamp(now.0.saturating_sub(i64::try_from(ran).unwrap_or(i64::MAX))));
    let checkpoint = (!end.checkpoint.is_empty())
        .then(|| bounded_checkpoint(end.checkpoint.to_vec()))
        .transpose()?;
    let proof =
        if end.tree_empty || end.ran_ms.is_none() { "" } else { " (tree not proved empty)" };
    Ok(EndDetail {
        result,
        error,
        started,
        exit_code: end.exit_code,
        checkpoint,
        evidence: format!("{}{proof}", end.evidence),
    })
}

fn bounded_checkpoint(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    if bytes.len() > limits::CHECKPOINT_BYTES_MAX {
        return Err(format!("checkpoint is larger than {} bytes", limits::CHECKPOINT_BYTES_MAX));
    }
    Ok(bytes)
}

fn json_text(bytes: &[u8], what: &str) -> Result<String, String> {
    let text: &serde_json::value::RawValue =
        serde_json::from_slice(bytes).map_err(|error| format!("{what} is not JSON: {error}"))?;
    Ok(text.get().to_owned())
}

fn error_json(end: &v1::Finished) -> Result<String, String> {
    let mut error = json!({ "type": end.error_type, "message": end.error_message });
    if !end.error_details_json.is_empty()
        && let Some(error) = error.as_object_mut()
    {
        let details: serde_json::Value = serde_json::from_slice(&end.error_details_json)
            .map_err(|error| format!("error details are not JSON: {error}"))?;
        error.insert("details".into(), details);
    }
    Ok(error.to_string())
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
