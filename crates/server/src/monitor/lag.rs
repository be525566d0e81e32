//! How late the event loop turns: a sleep that ends late was held up by something that did
//! not give the thread back, or by a processor that others use.

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
