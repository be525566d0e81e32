//! Handlers that the tests steer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use outlast_sdk::{AttemptContext, Delivery, Handler, Outcome, StopReason};
use tokio::sync::Semaphore;

use crate::support::eventually;

/// Holds every attempt until the test releases one, or until it is ordered to stop.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    open: Semaphore,
    started: Mutex<Vec<u8>>,
    running: Mutex<HashMap<u8, usize>>,
    stops: Mutex<Vec<(u8, StopReason)>>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            open: Semaphore::new(0),
            started: Mutex::default(),
            running: Mutex::default(),
            stops: Mutex::default(),
        }
    }
}

impl Gate {
    /// Lets one attempt end.
    pub(crate) fn open(&self) {
        self.inner.open.add_permits(1);
    }

    pub(crate) fn started(&self) -> Vec<u8> {
        self.inner.started.lock().unwrap().clone()
    }

    pub(crate) fn stops(&self) -> Vec<(u8, StopReason)> {
        self.inner.stops.lock().unwrap().clone()
    }

    pub(crate) fn running(&self) -> usize {
        self.inner.running.lock().unwrap().values().sum()
    }

    pub(crate) async fn started_reach(&self, count: usize) {
        eventually("attempts started", || self.started().len() >= count).await;
    }
}

impl Handler for Gate {
    async fn run(&self, delivery: Delivery, context: AttemptContext) -> Outcome {
        let n = delivery.attempt.job.0.as_bytes()[0];
        let inner = &self.inner;
        inner.started.lock().unwrap().push(n);
        *inner.running.lock().unwrap().entry(n).or_default() += 1;
        let ended = tokio::select! {
            permit = inner.open.acquire() => {
                permit.unwrap().forget();
                Outcome::completed(n.to_string())
            }
            reason = context.stopped() => {
                inner.stops.lock().unwrap().push((n, reason));
                match reason {
                    StopReason::Cancelled | StopReason::Stale => Outcome::cancelled("told to"),
                    _ => Outcome::interrupted("told to"),
                }
            }
        };
        *inner.running.lock().unwrap().entry(n).or_default() -= 1;
        ended
    }
}

/// A handler made of a function.
pub(crate) struct Call<F>(pub(crate) F);

impl<F> Handler for Call<F>
where
    F: Fn(Delivery) -> Outcome + Send + Sync + 'static,
{
    async fn run(&self, delivery: Delivery, _context: AttemptContext) -> Outcome {
        (self.0)(delivery)
    }
}
