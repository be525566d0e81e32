//! What the process around a worker tells it: signals, a dead guardian, a full disk. And what it
//! asks back: whether the server knows the worker, and whether the worker is on its way out.

use std::future::pending;

use outlast_core::worker::lifecycle::StageEvent;
use tokio::sync::{mpsc, watch};

/// Tells a worker what happened around it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Control {
    events: mpsc::UnboundedSender<Told>,
    standing: watch::Receiver<Standing>,
}

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Told {
    /// Something happened around it.
    Stage(StageEvent),
    /// It runs these types of jobs from now on, and no others.
    Offer(Vec<String>),
    /// It cannot run anything just now, and why.
    Fault(String),
    /// It can again.
    Recovered,
}

/// How far the worker has come.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    registered: bool,
    leaving: bool,
}

/// The worker's end of a [`Control`].
#[derive(Debug)]
pub struct ControlQueue {
    events: Option<mpsc::UnboundedReceiver<Told>>,
    standing: watch::Sender<Standing>,
}

/// Makes both ends.
#[must_use]
pub fn control() -> (Control, ControlQueue) {
    let (events, queue) = mpsc::unbounded_channel();
    let (say, standing) = watch::channel(Standing::default());
    (Control { events, standing }, ControlQueue { events: Some(queue), standing: say })
}

impl Control {
    /// Tells the worker. What comes after its end is lost.
    pub fn tell(&self, event: StageEvent) {
        let _ = self.events.send(Told::Stage(event));
    }

    /// Offers these types of jobs from now on, and no others. What it holds goes on.
    pub fn offer(&self, types: Vec<String>) {
        let _ = self.events.send(Told::Offer(types));
    }

    /// Says that nothing can be run here just now, and why. The worker takes no work, tells the
    /// server so with the reason, and goes on when it has [`Self::recovered`]. What runs runs
    /// on. A later reason replaces an earlier one.
    pub fn fault(&self, reason: impl Into<String>) {
        let _ = self.events.send(Told::Fault(reason.into()));
    }

    /// Takes the last [`Self::fault`] back.
    pub fn recovered(&self) {
        let _ = self.events.send(Told::Recovered);
    }

    /// Asks it to drain, as SIGTERM does; a second time to end at once.
    pub fn terminate(&self) {
        self.tell(StageEvent::TerminateSignal);
    }

    /// Waits until a server has registered the worker; for ever if none does before its end.
    pub async fn registered(&self) {
        self.stands(|standing| standing.registered).await;
    }

    /// Waits until the worker drains or ends; for ever if it ends without either.
    pub async fn leaving(&self) {
        self.stands(|standing| standing.leaving).await;
    }

    async fn stands(&self, reached: fn(&Standing) -> bool) {
        if self.standing.clone().wait_for(reached).await.is_err() {
            pending().await
        }
    }
}

impl ControlQueue {
    pub(crate) fn say_registered(&self) {
        self.standing.send_modify(|standing| standing.registered = true);
    }

    pub(crate) fn say_leaving(&self) {
        self.standing.send_modify(|standing| standing.leaving = true);
    }

    /// Waits for the next event; for ever once every [`Control`] is gone.
    pub(crate) async fn next(&mut self) -> Told {
        if let Some(events) = &mut self.events {
            if let Some(event) = events.recv().await {
                return event;
            }
            self.events = None;
        }
        pending().await
    }
}
