//! Whether every essential task of the server still runs: the event loop, the heartbeat writer and
//! the monitors. If one panicked unnoticed, the server would accept requests and do nothing.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

/// Which task has died, if any. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vitals {
    dead: Arc<Mutex<Option<String>>>,
    died: CancellationToken,
}

impl Vitals {
    /// Returns which task has died, and why.
    pub(crate) fn dead(&self) -> Option<String> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a task has died.
    pub(crate) async fn died(&self) -> String {
        self.died.cancelled().await;
        self.dead().unwrap_or_default()
    }

    fn die(&self, why: String) {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.died.cancel();
    }
}

/// Runs an essential task, and records its panic.
pub(crate) async fn watch(vitals: Vitals, name: &str, task: impl Future<Output = ()>) {
    if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
        let words = panic
            .downcast_ref::<&str>()
            .map(|words| (*words).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        tracing::error!(task = name, panic = words, "an essential task has panicked");
        vitals.die(format!("{name} has panicked: {words}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outlast_core::time::Timestamp;
    use outlast_packs::PackSet;
    use outlast_store::store::ManualClock;
    use outlast_store_testkit::model::ModelStore;

    use super::watch;
    use crate::settings::Settings;
    use crate::{Reserved, ServeError, Server};

    #[tokio::test]
    async fn server_whose_loop_has_panicked_is_not_ready_and_ends_with_the_reason() {
        let settings = Settings::with_packs(Arc::new(PackSet::default()));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let address = "127.0.0.1:0".parse().unwrap();
        let server =
            Server::bind(Arc::new(store), settings, Reserved::new(address).unwrap()).await.unwrap();
        let engine = server.engine();
        let vitals = engine.shared().vitals.clone();
        assert!(engine.health().ready, "{:?}", engine.health());
        watch(vitals.clone(), "a part that is done", async {}).await;
        assert!(engine.health().ready);
        watch(vitals, "the engine loop", async { panic!("out of luck") }).await;
        let health = engine.health();
        assert!(!health.ready && health.dead.is_some(), "{health:?}");
        let ended = server.run(std::future::pending()).await;
        let Err(ServeError::Dead(why)) = ended else { panic!("{ended:?}") };
        assert_eq!(why, "the engine loop has panicked: out of luck");
    }
}
