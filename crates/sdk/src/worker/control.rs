//! What the process around a worker tells it: signals, a dead guardian, a full disk. And what it
//! asks back: whether the server knows the worker, and whether the worker is on its way out.

use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_core::worker::lifecycle::StageEvent;
use tokio::sync::{mpsc, watch};

use crate::clock::boot_now;
use crate::worker_state::WorkerState;

/// Tells a worker what happened around it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    events: mpsc::UnboundedSender<Notice>,
    progress: watch::Receiver<Progress>,
    state: Arc<OnceLock<Arc<WorkerState>>>,
}

/// How a worker is at the moment, as far as it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its identity, if a server holds it for registered.
    pub worker: Option<WorkerId>,
    /// How long ago its loop turned.
    pub loop_age: Duration,
    /// How long its lease lasts; `None` while it has none.
    pub lease_left: Option<Duration>,
    /// Attempts that it holds.
    pub in_flight: usize,
    /// Why it can run nothing; `None` while it is healthy.
    pub unhealthy: Option<String>,
}

/// A message to the worker.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Something happened around it.
    Stage(StageEvent),
    /// It runs these types of jobs from now on, and no others; this is what it says about itself.
    Offer { types: Vec<String>, about_json: String },
    /// It cannot run anything just now, and why.
    Fault(String),
    /// It can again.
    Recovered,
    /// The file with its token may have changed.
    ReadToken,
}

/// How far the worker has come.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    registered: bool,
    leaving: bool,
}

/// The worker's end of a [`Control`].
#[derive(Debug)]
pub struct ControlQueue {
    events: Option<mpsc::UnboundedReceiver<Notice>>,
    progress: watch::Sender<Progress>,
    state: Arc<OnceLock<Arc<WorkerState>>>,
}

/// Makes both ends.
#[must_use]
pub fn control() -> (Control, ControlQueue) {
    let (events, queue) = mpsc::unbounded_channel();
    let (say, progress) = watch::channel(Progress::default());
    let state = Arc::<OnceLock<_>>::default();
    let shared = Arc::clone(&state);
    let queue = ControlQueue { events: Some(queue), progress: say, state: shared };
    (Control { events, progress, state }, queue)
}

impl Control {
    /// Tells the worker. What comes after its end is lost.
    pub fn send(&self, event: StageEvent) {
        let _ = self.events.send(Notice::Stage(event));
    }

    /// Offers these types of jobs from now on, and no others, and says this about itself: see
    /// [`about_json`](crate::WorkerBuilder::about_json). What it holds goes on.
    pub fn offer(&self, types: Vec<String>, about_json: String) {
        let _ = self.events.send(Notice::Offer { types, about_json });
    }

    /// Says that nothing can be run here just now, and why. The worker takes no work, tells the
    /// server so with the reason, and goes on when it has [`Self::recovered`]. What runs runs
    /// on. A later reason replaces an earlier one.
    pub fn fault(&self, reason: impl Into<String>) {
        let _ = self.events.send(Notice::Fault(reason.into()));
    }

    /// Takes the last [`Self::fault`] back.
    pub fn recovered(&self) {
        let _ = self.events.send(Notice::Recovered);
    }

    /// Asks it to read its token again, if that comes from a file.
    pub fn read_token_again(&self) {
        let _ = self.events.send(Notice::ReadToken);
    }

    /// Asks it to drain, as SIGTERM does; a second time to end at once.
    pub fn terminate(&self) {
        self.send(StageEvent::TerminateSignal);
    }

    /// Returns how the worker is; `None` before it runs.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let state = self.state.get()?;
        let now = boot_now();
        let left = state.lease_end().since(now);
        let reported = state.reported();
        Some(Status {
            worker: reported.live.then_some(reported.worker),
            loop_age: Duration::from_millis(state.turn_age(now).as_millis()),
            lease_left: (left > Span::ZERO).then(|| Duration::from_millis(left.as_millis())),
            in_flight: reported.count(),
            unhealthy: (!reported.unhealthy.is_empty()).then(|| reported.unhealthy.clone()),
        })
    }

    /// Waits until a server has registered the worker; forever if none does before its end.
    pub async fn registered(&self) {
        self.stands(|progress| progress.registered).await;
    }

    /// Waits until the worker drains, or ends as it was asked to; forever if it ends without either.
    pub async fn leaving(&self) {
        self.stands(|progress| progress.leaving).await;
    }

    async fn stands(&self, reached: fn(&Progress) -> bool) {
        if self.progress.clone().wait_for(reached).await.is_err() {
            pending().await
        }
    }
}

impl ControlQueue {
    /// Shows how the worker is from now on.
    pub(crate) fn show(&self, state: &Arc<WorkerState>) {
        // A worker runs once.
        let _ = self.state.set(Arc::clone(state));
    }

    pub(crate) fn say_registered(&self) {
        self.progress.send_modify(|progress| progress.registered = true);
    }

    pub(crate) fn say_leaving(&self) {
        self.progress.send_modify(|progress| progress.leaving = true);
    }

    /// Waits for the next event; forever once every [`Control`] is gone.
    pub(crate) async fn next(&mut self) -> Notice {
        if let Some(events) = &mut self.events {
            if let Some(event) = events.recv().await {
                return event;
            }
            self.events = None;
        }
        pending().await
    }
}
