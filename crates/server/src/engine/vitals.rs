//! Whether what the server cannot do without still runs: the loop, the writer of heartbeats, the
//! monitors. One that panics would leave a server that accepts and does nothing.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use crate::engine::Board;

/// What has ended, if anything has.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    dead: Mutex<Option<String>>,
    died: CancellationToken,
}

impl Vitals {
    /// Returns what has ended, and why.
    pub(crate) fn dead(&self) -> Option<String> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until something has ended.
    pub(crate) async fn died(&self) -> String {
        self.died.cancelled().await;
        self.dead().unwrap_or_default()
    }

    fn die(&self, why: String) {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.died.cancel();
    }
}

/// Runs a part of the server, and notes it when it panics.
pub(crate) async fn watch(board: Arc<Board>, name: &str, part: impl Future<Output = ()>) {
    if let Err(panic) = AssertUnwindSafe(part).catch_unwind().await {
        let words = panic
            .downcast_ref::<&str>()
            .map(|words| (*words).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        tracing::error!(part = name, panic = words, "a part of the server has panicked");
        board.vitals.die(format!("{name} has panicked: {words}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outlast_core::time::Timestamp;
    use outlast_packs::PackSet;
    use outlast_store::model::ModelStore;
    use outlast_store::store::ManualClock;

    use super::watch;
    use crate::settings::Settings;
    use crate::{ServeError, Server};

    #[tokio::test]
    async fn server_whose_loop_has_panicked_is_not_ready_and_ends_with_the_reason() {
        let settings = Settings::with_packs(Arc::new(PackSet::default()));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(Arc::new(store), settings, address).await.unwrap();
        let engine = server.engine();
        let board = engine.shared_board();
        assert!(engine.health().ready, "{:?}", engine.health());
        watch(Arc::clone(&board), "a part that is done", async {}).await;
        assert!(engine.health().ready);
        watch(board, "the engine loop", async { panic!("out of luck") }).await;
        let health = engine.health();
        assert!(!health.ready && health.dead.is_some(), "{health:?}");
        let ended = server.run(std::future::pending()).await;
        let Err(ServeError::Dead(why)) = ended else { panic!("{ended:?}") };
        assert_eq!(why, "the engine loop has panicked: out of luck");
    }
}
