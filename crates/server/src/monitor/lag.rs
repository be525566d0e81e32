//! Measures how late the runtime runs its tasks: a sleep ends late when a task blocks its thread or
//! the processor is busy.

use std::time::Duration;

use crate::clock::precise;
use crate::engine::Engine;

/// How long it sleeps.
const SLEEP: Duration = Duration::from_millis(500);

/// Runs until dropped.
pub(super) async fn run(engine: Engine) {
    loop {
        let begun = precise();
        tokio::time::sleep(SLEEP).await;
        engine.counters().lagged(precise().saturating_sub(begun).saturating_sub(SLEEP));
    }
}
