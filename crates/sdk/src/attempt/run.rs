//! Running a handler on a task of its own: whatever it does, exactly one outcome comes back.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::context::AttemptContext;
use super::events::Outlet;
use super::guard::AttemptGuard;
use crate::delivery::Delivery;
use crate::handler::Handler;
use crate::outcome::{Outcome, StopReason};

/// Stops a run.
#[derive(Debug)]
pub(crate) struct AttemptHandle {
    pub(crate) stop: watch::Sender<Option<StopReason>>,
    pub(crate) abort: AbortHandle,
    guard: Weak<AttemptGuard>,
}

impl AttemptHandle {
    /// Waits no longer for work that goes on despite an order to stop.
    pub(crate) fn give_up(&self) {
        if let Some(guard) = self.guard.upgrade() {
            guard.give_up();
        }
    }
}

/// Starts a handler on its own task.
pub(crate) fn start<H: Handler>(
    handler: &Arc<H>,
    delivery: Delivery,
    outlet: &Arc<Outlet>,
) -> AttemptHandle {
    let (stop, stop_seen) = watch::channel(None);
    let attempt = delivery.attempt;
    let guard = AttemptGuard::new(
        attempt,
        delivery.overlap_forbidden,
        handler.ends(),
        outlet,
        stop_seen.clone(),
    );
    let guard = Arc::new(guard);
    let context = AttemptContext::new(attempt, stop_seen, &guard);
    let weak = Arc::downgrade(&guard);
    let limit = delivery.timeout.filter(|_| !handler.keeps_time());
    let run = Run { guard };
    let handler = Arc::clone(handler);
    let task = tokio::spawn(async move {
        let work = AssertUnwindSafe(handler.run(delivery, context)).catch_unwind();
        match within(limit, work).await {
            Some(Ok(outcome)) => run.guard.finish(outcome),
            Some(Err(panic)) => run.guard.cut_short(Outcome::panicked(panic.as_ref())),
            None => run.guard.cut_short(Outcome::timed_out(limit.unwrap_or_default())),
        }
    });
    AttemptHandle { stop, abort: task.abort_handle(), guard: weak }
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// The task's hold on the attempt.
struct Run {
    guard: Arc<AttemptGuard>,
}

/// Reports an outcome even when the task is dropped halfway.
impl Drop for Run {
    fn drop(&mut self) {
        if !self.guard.is_over() {
            self.guard.cut_short(Outcome::interrupted("dropped: it did not stop when ordered to"));
        }
    }
}
