//! Why the classes with the most claimable jobs wait.

use std::time::Duration;

use outlast_store::command::{ClassId, ClassKey};
use tokio::sync::oneshot;

use crate::Engine;
use crate::engine::input::Input;
use crate::engine::wait_reason::{Eligible, eligible};

/// How long the event loop is waited for. It may be writing a batch.
const LOOP_LIMIT: Duration = Duration::from_millis(500);

/// A class with claimable jobs, as the event loop knows it.
#[derive(Clone, Debug)]
pub(crate) struct KnownClass {
    pub(crate) id: ClassId,
    pub(crate) key: ClassKey,
    /// Whether all of its jobs wait for a limit, as the last claim saw them.
    pub(crate) is_blocked: bool,
}

/// A class with claimable jobs, and why they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingClass {
    pub(crate) id: ClassId,
    pub(crate) why: Why,
}

/// What claimable jobs wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Paused,
    NoWorker,
    WorkersAway,
    Limit,
    Alone,
    Turn,
}

impl Engine {
    /// Returns why those classes wait that have the most claimable jobs, as far as this server knows;
    /// none if the event loop has no time to say.
    pub(crate) async fn waiting_classes(&self, max: usize) -> Vec<WaitingClass> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.send(Input::ListWaiting { max, reply }).await.ok()?;
            answer.await.ok()
        };
        let known =
            tokio::time::timeout(LOOP_LIMIT, asked).await.ok().flatten().unwrap_or_default();
        let shared = self.shared();
        let why = |class: &KnownClass| match eligible(&class.key, shared) {
            Eligible::Paused => Why::Paused,
            Eligible::No => Why::NoWorker,
            Eligible::Away => Why::WorkersAway,
            Eligible::Yes if class.is_blocked => Why::Limit,
            Eligible::Yes if class.key.isolated => Why::Alone,
            Eligible::Yes => Why::Turn,
        };
        known.iter().map(|class| WaitingClass { id: class.id, why: why(class) }).collect()
    }
}
