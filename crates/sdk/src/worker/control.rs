//! What the process around a worker tells it: signals, a dead guardian, a full disk.

use std::future::pending;

use outlast_core::worker::lifecycle::StageEvent;
use tokio::sync::mpsc;

/// Tells a worker what happened around it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    events: mpsc::UnboundedSender<StageEvent>,
}

/// The worker's end of a [`Control`].
#[derive(Debug)]
pub struct ControlQueue {
    events: Option<mpsc::UnboundedReceiver<StageEvent>>,
}

/// Makes both ends.
#[must_use]
pub fn control() -> (Control, ControlQueue) {
    let (events, queue) = mpsc::unbounded_channel();
    (Control { events }, ControlQueue { events: Some(queue) })
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
}

impl ControlQueue {
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
