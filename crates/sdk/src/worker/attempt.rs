//! One handler's run, fenced off: whatever it does, exactly one end comes back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::context::{AttemptContext, AttemptEvent, Outlet, StopReason};
use crate::delivery::{AttemptId, Delivery};
use crate::ended::Ended;
use crate::handler::Handler;

/// Stops a run.
#[derive(Debug)]
pub(crate) struct Reins {
    pub(crate) stop: watch::Sender<Option<StopReason>>,
    pub(crate) abort: AbortHandle,
}

/// Starts a handler on its own task.
pub(crate) fn start<H: Handler>(
    handler: &Arc<H>,
    delivery: Delivery,
    outlet: &Arc<Outlet>,
) -> Reins {
    let attempt = delivery.attempt;
    let (stop, stop_seen) = watch::channel(None);
    let context = AttemptContext::new(attempt, stop_seen, delivery.overlap_forbidden, outlet);
    let limit = delivery.timeout.filter(|_| !handler.keeps_time());
    let mut end = End { attempt, outlet: Arc::clone(outlet), told: false };
    let handler = Arc::clone(handler);
    let task = tokio::spawn(async move {
        let run = AssertUnwindSafe(handler.run(delivery, context)).catch_unwind();
        let ended = match within(limit, run).await {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => panicked(panic.as_ref()),
            None => Ended::timed_out(limit.unwrap_or_default()),
        };
        end.tell(ended);
    });
    Reins { stop, abort: task.abort_handle() }
}

async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Ended {
    let message = panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "handler panicked".to_owned());
    Ended::failed("panic", message)
}

/// Tells the end even when the task is dropped halfway.
struct End {
    attempt: AttemptId,
    outlet: Arc<Outlet>,
    told: bool,
}

impl End {
    fn tell(&mut self, ended: Ended) {
        self.told = true;
        // Closed only when the worker has left without waiting for this attempt.
        let _ = self.outlet.events.send(AttemptEvent::Ended(self.attempt, ended));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.told {
            self.tell(Ended::interrupted("dropped: it did not end when it was told to"));
        }
    }
}
