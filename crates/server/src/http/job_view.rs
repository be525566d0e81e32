//! Stored jobs as the OJS API shows them. Secrets are masked here.

use std::borrow::Cow;

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::retry::{Jitter, wait};
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::Route;
use outlast_store::record::{AttemptRecord, JobRecord, Omitted, StoredJob};
use outlast_store::reply::Claimed;
use outlast_wire::json::Object;
use outlast_wire::ojs::job::{Course, ErrorView, JobView};
use serde_json::Value;

use super::App;
use super::error::ApiError;
use crate::engine::Engine;

/// A job with everything that is shown of it.
#[derive(Debug)]
pub(crate) struct JobDetails {
    record: JobRecord,
    errors: Vec<AttemptRecord>,
    args: Option<String>,
}

impl JobDetails {
    /// Reads what is shown beside a record.
    pub(crate) async fn of(app: &App, record: JobRecord) -> Result<Self, ApiError> {
        let troubled = record.epoch.0 > 0 && (record.error.is_some() || record.spent.failures > 0);
        let mut attempts = Vec::new();
        if troubled {
            attempts = app.engine.store().attempts(record.job.id).await?;
        }
        Ok(Self::with(&app.engine, record, attempts))
    }

    /// Shows a record beside its attempts.
    pub(crate) fn with(engine: &Engine, record: JobRecord, attempts: Vec<AttemptRecord>) -> Self {
        let mut errors = attempts;
        errors.retain(|attempt| attempt.life == record.life && attempt.error.is_some());
        let args = masked(&record.job, &engine.settings().packs.current());
        Self { record, errors, args }
    }

    /// Returns a job without the errors of its earlier attempts, as one that is new.
    pub(crate) fn newborn(app: &App, record: JobRecord) -> Self {
        Self::with(&app.engine, record, Vec::new())
    }

    pub(crate) fn id(&self) -> JobId {
        self.record.job.id
    }

    pub(crate) const fn record(&self) -> &JobRecord {
        &self.record
    }

    /// Returns how long its texts are in all, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let errors = self.errors.iter().filter_map(|attempt| attempt.error.as_ref());
        self.record.bytes() + errors.map(String::len).sum::<usize>()
    }

    /// As [`Self::view`], without arguments that are longer than this.
    pub(crate) fn view_within(&self, bytes: usize) -> JobView<'_> {
        let view = self.view();
        if view.args.len() <= bytes { view } else { JobView { args: Omitted::ARGS, ..view } }
    }

    pub(crate) fn view(&self) -> JobView<'_> {
        let record = &self.record;
        let course = Course {
            result: record.result.as_deref(),
            error: record.error.as_deref(),
            errors: self.errors.iter().filter_map(error_view).collect(),
            ..course(record)
        };
        let args = self.args.as_deref().unwrap_or(&record.job.payload.args);
        JobView {
            state: record.state,
            attempt: record.attempt,
            course,
            ..stored(&record.job, args)
        }
    }
}

/// Returns what is shown of a job that was just claimed.
pub(crate) fn claimed(claimed: &Claimed) -> JobView<'_> {
    let failures = claimed.attempt.saturating_sub(1);
    let policy = &claimed.job.rules.retry;
    let course = Course {
        started: Some(claimed.claimed),
        retry_delay: (failures > 0).then(|| wait(policy, failures, Jitter::NONE)),
        lease: Some(claimed.epoch),
        ..Course::default()
    };
    JobView {
        state: State::Active,
        attempt: claimed.attempt,
        course,
        ..stored(&claimed.job, &claimed.job.payload.args)
    }
}

/// Writes which fields a list leaves out, with their lengths in bytes, if it does: the arguments, under
/// the name that the API has for them, and the result.
pub(crate) fn omitted(object: &mut Object<'_>, args: &str, omitted: Omitted) {
    if omitted == Omitted::default() {
        return;
    }
    object.object("omitted", |object| {
        for (name, length) in [(args, omitted.args), ("result", omitted.result)] {
            if let Some(length) = length {
                object.number(name, length);
            }
        }
    });
}

fn stored<'a>(job: &'a StoredJob, args: &'a str) -> JobView<'a> {
    JobView {
        id: job.id,
        job_type: &job.key.job_type,
        queue: &job.key.queue,
        state: State::Available,
        args,
        meta: &job.payload.meta,
        extra: &job.payload.extra,
        keys: &job.keys,
        placement: &job.key.placement,
        priority: job.priority,
        attempt: 0,
        max_attempts: job.rules.retry.max_attempts,
        created: job.created,
        scheduled: job.scheduled_for,
        expires: job.rules.expires_at,
        course: Course::default(),
    }
}

fn course(record: &JobRecord) -> Course<'static> {
    let ended = record.finished;
    let when = |state: State, at: Option<Timestamp>| at.filter(|_| record.state == state);
    let retry = (record.state == State::Retryable).then_some(record.due).flatten();
    Course {
        started: record.started,
        // An expired job never ran, so it has no `completed_at`.
        completed: when(State::Completed, ended).or_else(|| when(State::Discarded, ended)),
        cancelled: when(State::Cancelled, ended.or(Some(record.since))),
        discarded: when(State::Discarded, ended.or(Some(record.since))),
        next_attempt: retry,
        retry_delay: retry.map(|due| due.since(record.since)),
        lease: (record.state == State::Active).then_some(record.epoch),
        ..Course::default()
    }
}

fn error_view(attempt: &AttemptRecord) -> Option<ErrorView<'_>> {
    Some(ErrorView {
        error: attempt.error.as_deref()?,
        attempt: attempt.attempt,
        at: attempt.finished.unwrap_or(attempt.claimed),
    })
}

/// Returns the arguments of an action's job with its secrets masked; `None` when they
/// may be shown as they are.
pub(crate) fn masked(job: &StoredJob, packs: &PackSet) -> Option<String> {
    if job.key.route == Route::Plain {
        return None;
    }
    Some(Value::Array(vec![parameters(job, packs)]).to_string())
}

/// Returns the parameters of a job as they may be shown.
pub(crate) fn parameters(job: &StoredJob, packs: &PackSet) -> Value {
    let args: Value = serde_json::from_str(&job.payload.args).unwrap_or_default();
    if job.key.route == Route::Plain {
        return args;
    }
    let parameters = args.get(0).map_or(Cow::Owned(Value::Null), Cow::Borrowed);
    match packs.get(&job.key.job_type) {
        Some(action) => action.mask(&parameters),
        // The action is gone, and with it the word on what is secret.
        None => Value::String("not shown: the action is not known any more".to_owned()),
    }
}
