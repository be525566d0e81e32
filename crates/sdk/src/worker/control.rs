//! What the process around a worker tells it: signals, a dead guardian, a full disk. And what it
//! asks back: whether the server knows the worker, and whether the worker is on its way out.

use std::future::pending;

use outlast_core::worker::lifecycle::StageEvent;
use tokio::sync::{mpsc, watch};

/// Tells a worker what happened around it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    events: mpsc::UnboundedSender<Notice>,
    progress: watch::Receiver<Progress>,
}

/// A message to the worker.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Something happened around it.
    Stage(StageEvent),
    /// It runs these types of jobs from now on, and no others.
    Offer(Vec<String>),
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
}

/// Makes both ends.
#[must_use]
pub fn control() -> (Control, ControlQueue) {
    let (events, queue) = mpsc::unbounded_channel();
    let (say, progress) = watch::channel(Progress::default());
    (Control { events, progress }, ControlQueue { events: Some(queue), progress: say })
}

impl Control {
    /// Tells the worker. What comes after its end is lost.
    pub fn send(&self, event: StageEvent) {
        let _ = self.events.send(Notice::Stage(event));
    }

    /// Offers these types of jobs from now on, and no others. What it holds goes on.
    pub fn offer(&self, types: Vec<String>) {
        let _ = self.events.send(Notice::Offer(types));
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
