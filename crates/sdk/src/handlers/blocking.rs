//! Handlers that block: each runs on a thread of its own.
//!
//! Not on the runtime's own pool: a runtime waits for that when it ends, and a thread cannot be
//! ended from outside. What is still at work when the process wants to end ends with it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use outlast_core::evidence::EvidenceCode;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::outcome::Outcome;

/// Runs `work` on a new thread. When this is dropped the thread goes on.
pub(super) async fn run(
    job_type: String,
    work: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    let (done, outcome) = oneshot::channel();
    let (runtime, span) = (Handle::current(), tracing::Span::current());
    let thread = std::thread::Builder::new().name(format!("job {job_type}")).spawn(move || {
        let _runtime = runtime.enter();
        let outcome = span.in_scope(|| catch_unwind(AssertUnwindSafe(work)));
        // The receiver is gone if the attempt was dropped.
        let _ = done.send(outcome.unwrap_or_else(|panic| Outcome::panicked(panic.as_ref())));
    });
    if let Err(error) = thread {
        return Outcome::not_started(format!("the system has no thread left: {error}"))
            .known_by(EvidenceCode::Host);
    }
    match outcome.await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::failed("panic", "the handler's thread ended without a word"),
    }
}
