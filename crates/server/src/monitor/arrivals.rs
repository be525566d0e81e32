//! Looks whether programs have stored jobs by SQL: often while this server has promised to,
//! else now and then, should it have missed that it was told.

use outlast_core::time::Span;

use crate::engine::input::Input;
use crate::engine::{Engine, millis};

/// Time between two looks while programs do not tell.
const OFTEN: Span = Span(5);

/// Runs until dropped.
pub(super) async fn run(engine: Engine) {
    let interval = engine.settings().check_interval;
    let mut failed = false;
    loop {
        let watched = engine.board().arrivals_watched.notified();
        if engine.board().watches_arrivals() && !failed {
            tokio::time::sleep(millis(OFTEN)).await;
        } else {
            // Woken early when the watch begins.
            drop(tokio::time::timeout(millis(interval), watched).await);
        }
        match engine.store().arrivals(None).await {
            Ok(true) => {
                if engine.send(Input::Arrived).await.is_err() {
                    return;
                }
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "failed to look for arrivals"),
        }
        failed = engine.board().contact.is_down();
    }
}
