//! Runs the jobs that handle dead letters, at every server that has rules for them, or at one if no
//! server has: it claims them as a plain client does, sends a webhook or enqueues an execution, and
//! reports what came of it. A server that dies meanwhile loses nothing: the claim ends, and the job is
//! tried again.

use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::evidence::Evidence;
use outlast_core::time::Span;
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, Command, EndDetail, Fence, Finish, ReportedOutcome,
};
use outlast_store::reply::{Claimed, EnqueueRefusal, Reply};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::clock::millis;
use crate::engine::Engine;
use crate::engine::trouble_log::log_trouble;
use crate::handlers::jobs::{self, BY, Task};
use crate::handlers::webhook::{Message, NotDelivered, Sender};
use crate::handlers::{self, JOB_TYPE, QUEUE};

/// How many are under way at the same time.
const AT_ONCE: u32 = 16;
/// How long a claim waits for a job.
const WAIT: Span = Span::from_secs(20);
/// How much longer a claim lasts than a try may take.
const SLACK: Span = Span::from_secs(20);
/// How long a report may take.
const REPORT: Span = Span::from_secs(2);
/// Pause after a claim that failed.
const PAUSE: Span = Span::from_secs(1);

/// Runs until `stop`, and then until what is under way has ended.
pub(super) async fn run(engine: Engine, stop: CancellationToken) {
    let in_force = &engine.settings().handlers;
    let stopping = engine.shared().stopping();
    // A queue, or the configuration, may get its first rule at any time.
    while !in_force.runs_handlers() {
        tokio::select! {
            () = tokio::time::sleep(millis(PAUSE)) => {}
            () = stopping.cancelled() => return stop.cancelled().await,
            () = stop.cancelled() => return,
        }
    }
    let mut sender = match Sender::new(in_force.handlers()) {
        Ok(sender) => sender,
        Err(error) => {
            tracing::error!(error, "webhooks cannot be sent");
            return stop.cancelled().await;
        }
    };
    let permits = Arc::new(Semaphore::new(usize::try_from(AT_ONCE).unwrap_or(1)));
    tokio::select! {
        () = claim_all(&engine, &mut sender, &permits) => {}
        () = stopping.cancelled() => {}
    }
    stop.cancelled().await;
    // What was sent is reported: else it would be sent again.
    let longest = millis(Span(sender.timeout().0.saturating_add(REPORT.0)));
    drop(tokio::time::timeout(longest, permits.acquire_many(AT_ONCE)).await);
}

/// Claims handlers, and runs them in tasks that have a permit each.
async fn claim_all(engine: &Engine, sender: &mut Sender, permits: &Arc<Semaphore>) {
    loop {
        let Ok(first) = Arc::clone(permits).acquire_owned().await else { return };
        renew(sender, engine);
        // What is claimed has this long, whatever the configuration says by then.
        let timeout = sender.timeout();
        let visibility = Span(timeout.0.saturating_add(SLACK.0));
        let free = u32::try_from(permits.available_permits()).unwrap_or(0).saturating_add(1);
        let claim = Claim {
            claimant: Claimant::Plain { worker: None, visibility },
            from: ClaimFrom::Queues { queues: vec![QUEUE.to_owned()], tenant: None },
            max: NonZeroU32::new(free).unwrap_or(NonZeroU32::MIN),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        };
        let claimed = match engine.claim_plain(claim, Some(WAIT)).await {
            Ok(claimed) => claimed,
            Err(error) => {
                log_trouble!(debug, engine.shared(), error, "failed to claim handlers");
                tokio::time::sleep(millis(PAUSE)).await;
                continue;
            }
        };
        drop(first);
        renew(sender, engine);
        for job in claimed {
            // There are as many as were claimed: nothing else takes any.
            let Ok(permit) = Arc::clone(permits).acquire_owned().await else { return };
            let (engine, sender) = (engine.clone(), sender.within(timeout));
            tokio::spawn(async move {
                handle(&engine, &sender, &job).await;
                drop(permit);
            });
        }
    }
}

/// Sends as the configuration says now, after a reload.
fn renew(sender: &mut Sender, engine: &Engine) {
    if let Err(error) = sender.renew(engine.settings().handlers.handlers()) {
        tracing::error!(error, "webhooks are sent as the configuration said before");
    }
}

async fn handle(engine: &Engine, sender: &Sender, claimed: &Claimed) {
    let (reported, detail) = match attempt(engine, sender, claimed).await {
        Ok(result) => {
            let result = Some(result.to_string());
            (ReportedOutcome::Completed, EndDetail { result, ..EndDetail::default() })
        }
        Err(NotDelivered { reason, may_pass }) => {
            let error_type = "not_delivered".to_owned();
            let error = serde_json::json!({ "type": error_type, "message": reason }).to_string();
            let reported = ReportedOutcome::Failed { error_type, retryable: may_pass };
            (reported, EndDetail { error: Some(error), ..EndDetail::default() })
        }
    };
    let detail = EndDetail { evidence: Evidence::from("reported by the server"), ..detail };
    let fence = Fence { epoch: Some(claimed.epoch), worker: None, attempt: None };
    let finish = Finish { job: claimed.job.id, fence, reported, detail, by: BY.to_owned() };
    // What is not stored is tried again when the claim has ended.
    if let Err(error) = engine.submit(finish).await {
        log_trouble!(debug, engine.shared(), error, "failed to report a handler");
    }
}

async fn attempt(
    engine: &Engine,
    sender: &Sender,
    claimed: &Claimed,
) -> Result<serde_json::Value, NotDelivered> {
    let failed = |reason: String| NotDelivered { reason, may_pass: true };
    if claimed.job.key.job_type != JOB_TYPE {
        let reason = format!("the queue {QUEUE} is for jobs of type {JOB_TYPE}");
        return Err(NotDelivered { reason, may_pass: false });
    }
    let task = serde_json::from_str::<[Task<'_>; 1]>(&claimed.job.payload.args);
    let [task] =
        task.map_err(|error| NotDelivered { reason: error.to_string(), may_pass: false })?;
    let now = engine.now().await.map_err(|error| failed(error.to_string()))?;
    let id = claimed.job.id;
    if let Some(receiver) = &task.webhook {
        let (body, rules) = (task.message.get(), engine.settings().handlers.rules());
        let webhook = handlers::receiver_of(&rules, receiver)
            .ok_or_else(|| failed("no rule has this receiver any more".to_owned()))?;
        let status = sender.send(Message { id: id.to_string(), webhook, body, now }).await?;
        return Ok(serde_json::json!({ "status": status.as_u16() }));
    }
    let action = task.action.as_deref().unwrap_or_default();
    let execution = jobs::execution(engine.settings(), id, action, task.message, now)
        .map_err(|error| failed(error.to_string()))?;
    let started = execution.id;
    let enqueued = engine.submit(Command::Enqueue(Box::new(execution))).await;
    match enqueued.map_err(|error| failed(error.to_string()))? {
        Reply::Enqueued(Err(refusal)) if !matches!(refusal, EnqueueRefusal::DuplicateId(_)) => {
            Err(failed(refusal.to_string()))
        }
        _ => Ok(serde_json::json!({ "execution": started.to_string() })),
    }
}
