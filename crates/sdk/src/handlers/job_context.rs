//! A typed handler's view of its attempt.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outlast_core::id::JobId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::error::HandlerError;
use super::progress::Progress;
use crate::attempt::context::{AttemptContext, LogStream};
use crate::clock::{Stopwatch, boot_now, duration};
use crate::delivery::{AttemptId, Delivery};
use crate::outcome::StopReason;

/// A handler's view of its attempt. Cheap to clone; code that works on the job outside of the
/// handler's own future or thread should hold a clone for as long as it works.
#[derive(Clone, Debug)]
pub struct JobContext {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Without its arguments, which the handler has.
    delivery: Delivery,
    began: Stopwatch,
    runtime: Handle,
    progress: Mutex<Progress>,
    /// Last: when it is dropped the attempt has no more to say.
    attempt: AttemptContext,
}

/// Whether the attempt must stop, for code that must not keep the attempt alive.
#[derive(Debug)]
pub(super) struct StopSeen(watch::Receiver<Option<StopReason>>);

impl StopSeen {
    pub(super) fn reason(&self) -> Option<StopReason> {
        *self.0.borrow()
    }
}

impl JobContext {
    pub(super) fn new(delivery: Delivery, attempt: AttemptContext) -> Self {
        let inner = Inner {
            delivery,
            began: Stopwatch::start(),
            runtime: Handle::current(),
            progress: Mutex::default(),
            attempt,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn stop_seen(&self) -> StopSeen {
        StopSeen(self.inner.attempt.stop_seen())
    }

    /// The job.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.inner.delivery.attempt.job
    }

    /// The attempt: its job and the epoch of its claim. A higher epoch always fences a lower one.
    #[must_use]
    pub fn attempt(&self) -> AttemptId {
        self.inner.delivery.attempt
    }

    /// The job's type.
    #[must_use]
    pub fn job_type(&self) -> &str {
        &self.inner.delivery.job_type
    }

    /// The queue it came from.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.inner.delivery.queue
    }

    /// Which attempt this is, from 1. Attempts that a shutdown ended do not count.
    #[must_use]
    pub fn attempt_number(&self) -> u32 {
        self.inner.delivery.attempt_number
    }

    /// How many attempts the job may have.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.inner.delivery.max_attempts
    }

    /// A key that is the same for every attempt of the job, for services that accept one: what an
    /// earlier attempt did is then not done again.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        &self.inner.delivery.idempotency_key
    }

    /// Reads the job's metadata; without any it is an empty object.
    ///
    /// # Errors
    /// When it is no `T`: permanent, of type `invalid_meta`.
    pub fn meta<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        let meta = &self.inner.delivery.meta_json;
        let meta = if meta.is_empty() { b"{}".as_slice() } else { meta };
        serde_json::from_slice(meta).map_err(|error| {
            HandlerError::permanent("invalid_meta", format!("meta is not as expected: {error}"))
        })
    }

    /// The job's time limit, if it has one; then the attempt is ended.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.inner.delivery.timeout
    }

    /// When the attempt's time limit is over, if the job has one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.inner.began.at(self.timeout()?)
    }

    /// How long the attempt may still run: until its time limit, or for a job that forbids
    /// overlap until the lease ends unless it is renewed, whichever comes first. `None` where
    /// there is neither.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let limit = self.timeout().map(|limit| limit.saturating_sub(self.inner.began.elapsed()));
        let lease = self.inner.attempt.deadline().map(|at| duration(at.since(boot_now())));
        [limit, lease].into_iter().flatten().min()
    }

    /// A token that is cancelled when the attempt must end: the job was cancelled, its lease
    /// or the drain's grace is over, its time is up.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.inner.attempt.cancellation(&self.inner.runtime)
    }

    /// Whether the attempt must end. Handlers that block should check it now and then.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stop_reason().is_some() || self.inner.attempt.is_over()
    }

    /// Why the attempt must end, if it must.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.inner.attempt.stop_reason()
    }

    /// Waits until the attempt must end. Safe to drop while waiting.
    pub async fn cancelled(&self) {
        self.cancellation().cancelled().await;
    }

    /// Stores how far the work has come, as JSON of at most 1 MiB: the next attempt gets the
    /// latest one. It is sent soon, not at once: an attempt that dies with its process may lose
    /// what it stored in its last moments.
    ///
    /// # Errors
    /// When it is too large or cannot be written as JSON: permanent, of type
    /// `invalid_checkpoint`.
    pub fn checkpoint(&self, state: &impl Serialize) -> Result<(), HandlerError> {
        let wrong = |why: String| HandlerError::permanent("invalid_checkpoint", why);
        let json = serde_json::to_vec(state)
            .map_err(|error| wrong(format!("checkpoint cannot be written as JSON: {error}")))?;
        let bytes = json.len();
        if self.inner.attempt.checkpoint(json) {
            return Ok(());
        }
        let max = outlast_core::limits::CHECKPOINT_BYTES_MAX;
        Err(wrong(format!("checkpoint of {bytes} bytes is larger than {max}")))
    }

    /// Reads the last checkpoint of an earlier attempt; `None` if there is none.
    ///
    /// # Errors
    /// When it is no `T`, as after a change of the program: permanent, of type
    /// `invalid_checkpoint`. Use `.ok().flatten()` to start over instead.
    pub fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>, HandlerError> {
        let stored = &self.inner.delivery.checkpoint;
        if stored.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(stored).map(Some).map_err(|error| {
            let message = format!("checkpoint of an earlier attempt cannot be read: {error}");
            HandlerError::permanent("invalid_checkpoint", message)
        })
    }

    /// Writes the progress, from 0 to 1, to the job's output: at most one line a second, and the
    /// last one in any case.
    pub fn progress(&self, fraction: f64, message: &str) {
        let mut progress = self.inner.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = progress.note(fraction, message) {
            self.inner.attempt.log_now(LogStream::Worker, line);
        }
    }

    /// Adds a line to the job's output, which `outlast jobs logs` shows. It never waits: if the
    /// buffer is full the line is dropped, and a mark says how much is missing.
    pub fn log(&self, line: impl Into<String>) {
        let mut line: String = line.into();
        line.push('\n');
        self.inner.attempt.log_now(LogStream::Stdout, line);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let progress = self.progress.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = progress.rest() {
            self.attempt.log_now(LogStream::Worker, line);
        }
    }
}
