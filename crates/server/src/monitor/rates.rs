//! Notes once a minute what this server did in it, for the pages.

use std::time::Duration;

use crate::engine::Engine;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs until dropped.
pub(super) async fn run(engine: Engine) {
    let mut minutes = tokio::time::interval(MINUTE);
    // The first tick comes at once.
    minutes.tick().await;
    loop {
        minutes.tick().await;
        engine.counters().end_minute();
    }
}
