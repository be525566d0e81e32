//! The trait that a user of the SDK implements to run jobs of any type.

use std::future::Future;

use outlast_core::id::WorkerId;
use outlast_core::worker::lifecycle::Stage;

use crate::attempt::context::AttemptContext;
use crate::delivery::Delivery;
use crate::outcome::{Ends, Outcome};

/// Runs attempts. One value serves all of them, concurrently.
///
/// A panic fails the attempt it happens in and nothing else.
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt to its end.
    ///
    /// It should watch [`AttemptContext::stopped`] and end soon after; otherwise it is dropped
    /// when the worker's time limit for that is over.
    fn run(
        &self,
        delivery: Delivery,
        context: AttemptContext,
    ) -> impl Future<Output = Outcome> + Send;

    /// Returns whether the handler itself enforces the job's time limit. If not, the worker drops
    /// the attempt when its time is over.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Called before the worker registers under an identity. It has a new one after each lapse.
    fn registers_as(&self, worker: WorkerId) {
        let _ = worker;
    }

    /// Called when no server holds anything for the worker any more: it said goodbye, or it was
    /// never let in.
    fn deregistered(&self) {}

    /// Called when the worker enters a stage of its life, such as quiet or draining.
    fn entered(&self, stage: Stage) {
        let _ = stage;
    }

    /// Returns what ends an attempt's work.
    fn ends(&self) -> Ends {
        Ends::WithTheContext
    }
}
