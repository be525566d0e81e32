//! What the process around a worker tells it: signals, a dead guardian, a full disk. And the one
//! thing it asks back: whether the server knows the worker.

use std::future::pending;

use outlast_core::worker::lifecycle::StageEvent;
use tokio::sync::{mpsc, watch};

/// Tells a worker what happened around it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    events: mpsc::UnboundedSender<StageEvent>,
    registered: watch::Receiver<bool>,
}

/// The worker's end of a [`Control`].
#[derive(Debug)]
pub struct ControlQueue {
    events: Option<mpsc::UnboundedReceiver<StageEvent>>,
    registered: watch::Sender<bool>,
}

/// Makes both ends.
#[must_use]
pub fn control() -> (Control, ControlQueue) {
    let (events, queue) = mpsc::unbounded_channel();
    let (say, registered) = watch::channel(false);
    (Control { events, registered }, ControlQueue { events: Some(queue), registered: say })
}

impl Control {
    /// Tells the worker. What comes after its end is lost.
    pub fn tell(&self, event: StageEvent) {
        let _ = self.events.send(event);
    }

    /// Asks it to drain, as SIGTERM does; a second time to end at once.
    pub fn terminate(&self) {
        self.tell(StageEvent::TerminateSignal);
    }

    /// Waits until a server has registered the worker; for ever if none does before its end.
    pub async fn registered(&self) {
        if self.registered.clone().wait_for(|registered| *registered).await.is_err() {
            pending().await
        }
    }
}

impl ControlQueue {
    pub(crate) fn say_registered(&self) {
        self.registered.send_replace(true);
    }

    /// Waits for the next event; for ever once every [`Control`] is gone.
    pub(crate) async fn next(&mut self) -> StageEvent {
        if let Some(events) = &mut self.events {
            if let Some(event) = events.recv().await {
                return event;
            }
            self.events = None;
        }
        pending().await
    }
}
