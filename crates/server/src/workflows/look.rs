//! One look at a workflow: what is read, what follows, and what is done after it is written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::WorkflowId;
use outlast_store::command::{JobAction, JobOrder, WriteWorkflow};
use outlast_store::event::EventName;
use outlast_store::workflow::{ItemQuery, Runs, WhichItems, WorkflowLook, WorkflowRecord};
use outlast_workflow::{Event, Refusal, WorkflowStatus};

use super::draft::{Draft, Standing};
use super::known::Known;
use super::service::WorkflowError;
use super::stored::{self, Progress};
use crate::engine::Engine;

/// Who moves workflows on, for the event log.
pub(super) const BY: &str = "workflows";

/// How often a look is tried against others who write the same workflow.
const TRIES: u32 = 20;
/// How long a look that lost waits before its next try, at most and for each try.
const AGAIN: Duration = Duration::from_millis(5);
/// How long an item whose action or workflow is not known here waits for a server that knows it.
const OTHERS_MAY_KNOW: Span = Span::from_secs(3);
/// How long it is remembered that one is not known here.
const KNOWN_FOR: Span = Span::from_secs(60);
/// How many jobs are cancelled side by side.
const CANCELS: usize = 32;
/// How many items of a workflow that is ending are read at once.
const PAGE: u32 = 1_000;

/// What someone asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Nothing: the workflow only moves on.
    Nothing,
    Cancel,
    Retry,
}

/// Workflows with items that this server cannot start, as they were read, and since when it knows.
#[derive(Debug, Default)]
pub(crate) struct Unstartable(Mutex<HashMap<WorkflowId, Since>>);

#[derive(Clone, Copy, Debug)]
struct Since {
    revision: u64,
    at: Timestamp,
}

impl Unstartable {
    /// Whether other servers have yet to have their time for a workflow.
    fn is_patient(&self, id: WorkflowId, revision: u64, now: Timestamp) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = known.get(&id).filter(|since| since.revision == revision);
        since.is_none_or(|since| now.since(since.at) < OTHERS_MAY_KNOW)
    }

    fn note(&self, id: WorkflowId, revision: u64, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Others have moved most of them on.
        known.retain(|_, since| now.since(since.at) < KNOWN_FOR);
        match known.get(&id) {
            Some(since) if since.revision == revision => {}
            _ => drop(known.insert(id, Since { revision, at: now })),
        }
    }

    fn forget(&self, id: WorkflowId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// A workflow as it was read.
struct Read {
    revision: u64,
    known: Arc<Known>,
    look: WorkflowLook,
    status: WorkflowStatus,
    progress: Progress,
    steps: Vec<stored::Step>,
    finished: Option<Timestamp>,
    due: Option<Timestamp>,
}

/// Moves a workflow on, and does what is asked. Another server may have been faster; then this one reads
/// again.
pub(crate) async fn look(
    engine: &Engine,
    id: WorkflowId,
    ask: Ask,
    by: &str,
) -> Result<(), WorkflowError> {
    for tried in 0..TRIES {
        match try_once(engine, id, ask, by).await? {
            Tried::Done(done) => {
                if done.is_stopping {
                    cancel_running(engine, id, by).await?;
                }
                if ask == Ask::Cancel && done.refused.is_none() {
                    // Most jobs have ended by now, so the answer says how the workflow did.
                    Box::pin(look(engine, id, Ask::Nothing, BY)).await?;
                }
                return done.refused.map_or(Ok(()), |refusal| Err(WorkflowError::Refused(refusal)));
            }
            Tried::Changed => tokio::time::sleep(AGAIN.mul_f64(wait(tried))).await,
        }
    }
    Err(WorkflowError::Contended(id))
}

/// Returns how long to wait, as a part of the longest wait of a try.
fn wait(tried: u32) -> f64 {
    rand::random::<f64>() * f64::from(tried.min(8))
}

enum Tried {
    Done(Done),
    Changed,
}

struct Done {
    refused: Option<Refusal>,
    /// Whether what still runs is to be cancelled.
    is_stopping: bool,
}

async fn try_once(
    engine: &Engine,
    id: WorkflowId,
    ask: Ask,
    by: &str,
) -> Result<Tried, WorkflowError> {
    let now = engine.now().await?;
    let Some(read) = read(engine, id).await? else {
        if ask == Ask::Nothing {
            return Ok(Tried::Done(Done { refused: None, is_stopping: false }));
        }
        return Err(WorkflowError::NotFound(id));
    };
    let Read { revision, known, look, status, progress, steps, finished, due } = read;
    let unstartable = &engine.shared().workflows.unstartable;
    let state = stored::state(status, &progress, &steps);
    let has_begun = progress.begun;
    let standing = Standing { state, steps, progress, finished };
    let mut draft = Draft::of(engine, id, &known, now, standing);
    // Who asks for a retry may ask another server.
    draft.is_patient = ask == Ask::Retry || unstartable.is_patient(id, revision, now);
    let refused = match play(&mut draft, look.ends, ask, has_begun).await {
        Ok(refused) => refused,
        Err(WorkflowError::Later(reason)) if ask == Ask::Nothing => {
            unstartable.note(id, revision, now);
            tracing::debug!(workflow = %id, reason, "items are left to other servers");
            engine.shared().workflows.later(id);
            return Ok(Tried::Done(Done { refused: None, is_stopping: false }));
        }
        Err(error) => return Err(error),
    };
    let is_stopping = draft.is_stopping();
    if !draft.is_nothing() || draft.is_stopping() && due.is_some_and(|due| due <= now) {
        // Who asked for it begins it, whichever server does.
        let by = if has_begun || ask != Ask::Nothing { by } else { &known.stored.by };
        let write = draft.write(Some(revision), by);
        let started: Vec<WorkflowId> = write.started.iter().map(|child| child.id).collect();
        if engine.submit(write).await?.is_err() {
            return Ok(Tried::Changed);
        }
        unstartable.forget(id);
        engine.shared().workflows.want(started);
    }
    if look.more {
        engine.shared().workflows.want([id]);
    }
    Ok(Tried::Done(Done { refused, is_stopping }))
}

/// Plays what happened and what is asked; returns why that is refused.
async fn play(
    draft: &mut Draft<'_>,
    ends: Vec<outlast_store::workflow::UntakenEnd>,
    ask: Ask,
    has_begun: bool,
) -> Result<Option<Refusal>, WorkflowError> {
    let refused = match ask {
        Ask::Nothing => {
            if !has_begun {
                draft.begin().await?;
            }
            draft.take(ends).await?;
            None
        }
        // Before the ends are taken: nothing starts any more.
        Ask::Cancel => {
            draft.progress.begun = true;
            let (was_stopping, place) = (draft.is_stopping(), draft.noted());
            let refused = draft.play(Event::CancelRequested).await?.err();
            if refused.is_none() && !was_stopping {
                draft.note_at(place, EventName::WorkflowStopping, "cancelled");
            }
            draft.take(ends).await?;
            refused
        }
        // It waits for its turn.
        Ask::Retry if !has_begun => return Ok(Some(Refusal::StillRunning)),
        Ask::Retry => {
            draft.take(ends).await?;
            draft.progress.retries += 1;
            let place = draft.noted();
            let refused = draft.play(Event::RetryRequested).await?.err();
            match refused {
                None => draft.note_at(place, EventName::WorkflowRetried, ""),
                Some(_) => draft.progress.retries -= 1,
            }
            refused
        }
    };
    let place = draft.noted();
    if draft.is_late() && draft.play(Event::TimeoutReached).await?.is_ok() {
        draft.note_at(place, EventName::WorkflowStopping, "timeout");
    }
    Ok(refused)
}

/// Reads a workflow. Of one that is gone, the ends are taken: nothing follows from them.
async fn read(engine: &Engine, id: WorkflowId) -> Result<Option<Read>, WorkflowError> {
    let cache = &engine.shared().workflows.known;
    let cached = cache.get(id);
    let look = engine.store().look_at_workflow(id, cached.is_none()).await?;
    let Some(record) = &look.record else {
        // It is made before any job of it ends. If it was made after the look began, it is there now.
        if !look.ends.is_empty() && engine.store().workflow(id).await?.is_none() {
            let taken = look.ends.iter().map(|end| end.number).collect();
            // If one of its id was made meanwhile, the ends stay.
            let take = WriteWorkflow { taken, ..nothing(id, None, BY) };
            drop(engine.submit(take).await?);
        }
        return Ok(None);
    };
    let damaged = |what: String| WorkflowError::Damaged(id, what);
    let known = match cached {
        Some(known) if known.is(record) => known,
        Some(_) => {
            cache.forget(id);
            return Box::pin(read(engine, id)).await;
        }
        None => {
            let known = Arc::new(Known::parse(record.clone()).map_err(damaged)?);
            cache.keep(id, &known);
            known
        }
    };
    let (status, progress) = parse(record).map_err(damaged)?;
    let steps = stored::steps(&known.definition, &look.steps).map_err(damaged)?;
    let (revision, finished, due) = (record.revision, record.state.finished, record.state.due);
    Ok(Some(Read { revision, known, status, progress, steps, finished, due, look }))
}

/// Reads how a workflow stands.
pub(super) fn parse(record: &WorkflowRecord) -> Result<(WorkflowStatus, Progress), String> {
    let word = &record.state.status;
    let status = WorkflowStatus::parse(word).ok_or_else(|| format!("no workflow is {word:?}"))?;
    let progress =
        serde_json::from_str(&record.state.progress).map_err(|error| error.to_string())?;
    Ok((status, progress))
}

/// Returns a command that changes nothing, to be filled.
pub(super) fn nothing(id: WorkflowId, expected: Option<u64>, by: &str) -> WriteWorkflow {
    WriteWorkflow {
        id,
        expected,
        to: None,
        new: None,
        steps: Vec::new(),
        items: Vec::new(),
        jobs: Vec::new(),
        started: Vec::new(),
        ends: Vec::new(),
        taken: Vec::new(),
        events: Vec::new(),
        by: by.to_owned(),
    }
}

/// Cancels what still runs of a workflow that is ending. Each tells its end as ever. Who dies in between
/// leaves the rest to the next look.
async fn cancel_running(engine: &Engine, id: WorkflowId, by: &str) -> Result<(), WorkflowError> {
    let (mut after, mut failed) = (None, None);
    loop {
        let query = ItemQuery {
            workflow: id,
            step: None,
            which: WhichItems::Running,
            with_values: false,
            after,
            limit: PAGE,
            bytes: 0,
        };
        let items = engine.store().workflow_items(query).await?;
        let Some(last) = items.last() else { return failed.map_or(Ok(()), Err) };
        after = Some((last.step, last.item));
        let running: Vec<Runs> = items.iter().filter_map(|item| item.runs).collect();
        for some in running.chunks(CANCELS) {
            let mut cancels = Vec::with_capacity(some.len());
            for runs in some {
                cancels.push(cancel(engine, *runs, by));
            }
            failed = failed.or(join_all(cancels).await.into_iter().find_map(Result::err));
        }
    }
}

async fn cancel(engine: &Engine, runs: Runs, by: &str) -> Result<(), WorkflowError> {
    match runs {
        Runs::Job(job) => {
            let (action, by) = (JobAction::Cancel, by.to_owned());
            let order = JobOrder { job, action, tenant: None, by, expected: None };
            // One that has ended tells its end itself.
            drop(engine.submit(order).await?);
            Ok(())
        }
        Runs::Workflow(child) => match Box::pin(look(engine, child, Ask::Cancel, by)).await {
            Ok(()) | Err(WorkflowError::Refused(_) | WorkflowError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        },
    }
}
