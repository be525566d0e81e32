//! One handler's run, fenced off: whatever it does, exactly one end comes back, and the end
//! says no more than is known.
//!
//! ```text
//! handler returns, panics, runs out of time, or is dropped ─▶ AttemptGuard::over
//!     nobody has the context any more ─▶ the work has ended
//!     somebody has (a thread, a task) ─▶ it may go on
//!         overlap allowed:   told at once, as not proved empty; its slot stays taken
//!         overlap forbidden: told when the last one lets go, and not before
//! ```

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::context::{AttemptContext, AttemptEvent, Outlet, StopReason};
use crate::delivery::{AttemptId, Delivery};
use crate::handler::{Ends, Handler};
use crate::outcome::Ended;

/// Stops a run.
#[derive(Debug)]
pub(crate) struct AttemptHandle {
    pub(crate) stop: watch::Sender<Option<StopReason>>,
    pub(crate) abort: AbortHandle,
}

/// Starts a handler on its own task.
pub(crate) fn start<H: Handler>(
    handler: &Arc<H>,
    delivery: Delivery,
    outlet: &Arc<Outlet>,
) -> AttemptHandle {
    let (stop, stop_seen) = watch::channel(None);
    let life = Arc::new(AttemptGuard {
        attempt: delivery.attempt,
        overlap_forbidden: delivery.overlap_forbidden,
        ends: handler.ends(),
        outlet: Arc::clone(outlet),
        over: AtomicBool::new(false),
        left_over: AtomicBool::new(false),
        token: OnceLock::new(),
        end: Mutex::new(None),
    });
    let context = AttemptContext::new(delivery.attempt, stop_seen, &life);
    let limit = delivery.timeout.filter(|_| !handler.keeps_time());
    let run = Run { life };
    let handler = Arc::clone(handler);
    let task = tokio::spawn(async move {
        let work = AssertUnwindSafe(handler.run(delivery, context)).catch_unwind();
        match within(limit, work).await {
            Some(Ok(ended)) => run.ended(ended),
            Some(Err(panic)) => run.cut_short(panicked(panic.as_ref())),
            None => run.cut_short(Ended::timed_out(limit.unwrap_or_default())),
        }
    });
    AttemptHandle { stop, abort: task.abort_handle() }
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// An attempt failed by a panic; its message is the error's.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Ended {
    let message = panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "handler panicked".to_owned());
    Ended::failed("panic", message)
}

/// What everything that works on an attempt holds on to.
#[derive(Debug)]
pub(crate) struct AttemptGuard {
    attempt: AttemptId,
    pub(crate) overlap_forbidden: bool,
    ends: Ends,
    pub(crate) outlet: Arc<Outlet>,
    over: AtomicBool,
    /// It is over, was told, and still counts as a leftover.
    left_over: AtomicBool,
    /// Cancelled when it must end, or is over; there once somebody has asked for it.
    token: OnceLock<CancellationToken>,
    /// The end, until it may be told.
    end: Mutex<Option<Ended>>,
}

impl AttemptGuard {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns the attempt's token, and whether it is asked for the first time.
    pub(crate) fn token(&self) -> (CancellationToken, bool) {
        let mut is_new = false;
        let token = self.token.get_or_init(|| {
            is_new = true;
            CancellationToken::new()
        });
        // It may have ended before there was a token to cancel.
        if self.is_over() {
            token.cancel();
        }
        (token.clone(), is_new)
    }

    fn tell(&self, event: AttemptEvent) {
        // Closed only when the worker has left without waiting for this attempt.
        let _ = self.outlet.events.send(event);
    }
}

/// Nobody works on the attempt any more: an end that was held back is told.
impl Drop for AttemptGuard {
    fn drop(&mut self) {
        let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = end {
            self.tell(AttemptEvent::Ended(self.attempt, ended));
        }
        if *self.left_over.get_mut() {
            self.outlet.leftovers.fetch_sub(1, Ordering::AcqRel);
            self.tell(AttemptEvent::LeftoverEnded);
        }
    }
}

/// The task's hold on the attempt.
struct Run {
    life: Arc<AttemptGuard>,
}

impl Run {
    /// The handler has given its own account.
    fn ended(&self, ended: Ended) {
        self.over(ended);
    }

    /// The handler did not get to the end of it.
    fn cut_short(&self, mut ended: Ended) {
        if self.life.ends == Ends::ByItself {
            ended.tree_empty = false;
        }
        self.over(ended);
    }

    fn over(&self, mut ended: Ended) {
        let life = &self.life;
        life.over.store(true, Ordering::Release);
        if let Some(token) = life.token.get() {
            token.cancel();
        }
        // Contexts are not copied any more once there is none: one holder is this one.
        let is_shared = Arc::strong_count(life) > 1;
        if life.overlap_forbidden && !ended.tree_empty {
            tracing::error!(attempt = %life.attempt, "an attempt that must not overlap is unstoppable");
            return life.tell(AttemptEvent::Unstoppable(life.attempt));
        }
        if life.overlap_forbidden {
            // The end of what is still at work is the end of the attempt.
            *life.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            return;
        }
        if is_shared {
            ended.tree_empty = false;
            life.left_over.store(true, Ordering::Release);
            let leftovers = life.outlet.leftovers.fetch_add(1, Ordering::AcqRel) + 1;
            tracing::warn!(
                attempt = %life.attempt,
                leftovers,
                "attempt is over, but work of it goes on and keeps its slot"
            );
        }
        life.tell(AttemptEvent::Ended(life.attempt, ended));
    }
}

/// Tells the end even when the task is dropped halfway.
impl Drop for Run {
    fn drop(&mut self) {
        if !self.life.is_over() {
            self.cut_short(Ended::interrupted("dropped: it did not end when it was told to"));
        }
    }
}
