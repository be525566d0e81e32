//! Handlers that block: each runs on a thread of its own.
//!
//! Not on the runtime's own pool: the end of a runtime waits for that, and nobody can end a
//! thread. What is still at work when the process wants to end ends with it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use outlast_core::evidence::EvidenceCode;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::outcome::Ended;
use crate::worker::attempt::panicked;

/// Runs `work` on a new thread. When this is dropped the thread goes on.
pub(super) async fn run(job_type: String, work: impl FnOnce() -> Ended + Send + 'static) -> Ended {
    let (done, ended) = oneshot::channel();
    let (runtime, span) = (Handle::current(), tracing::Span::current());
    let thread = std::thread::Builder::new().name(format!("job {job_type}")).spawn(move || {
        let _runtime = runtime.enter();
        let ended = span.in_scope(|| catch_unwind(AssertUnwindSafe(work)));
        // Nobody listens any more where the attempt was dropped.
        let _ = done.send(ended.unwrap_or_else(|panic| panicked(panic.as_ref())));
    });
    if let Err(error) = thread {
        return Ended::not_started(format!("the system has no thread left: {error}"))
            .known_by(EvidenceCode::Host);
    }
    match ended.await {
        Ok(ended) => ended,
        Err(_) => Ended::failed("panic", "the handler's thread ended without a word"),
    }
}
