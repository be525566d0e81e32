//! What a user of the SDK writes.

use std::future::Future;

use outlast_core::id::WorkerId;

use crate::context::AttemptContext;
use crate::delivery::Delivery;
use crate::outcome::Ended;

/// Runs attempts. One value serves all of them, at the same time.
///
/// A panic fails the attempt it happens in and nothing else.
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt to its end.
    ///
    /// It should watch [`AttemptContext::stopped`] and end soon after; one that does not is
    /// dropped when the worker's patience is over.
    fn run(
        &self,
        delivery: Delivery,
        context: AttemptContext,
    ) -> impl Future<Output = Ended> + Send;

    /// Says whether the handler itself keeps the job's time limit. If not, the worker drops
    /// the attempt when its time is over.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Called before the worker registers under an identity. It has a new one after each lapse.
    fn registers_as(&self, worker: WorkerId) {
        let _ = worker;
    }

    /// Says what ends an attempt's work.
    fn ends(&self) -> Ends {
        Ends::WithTheContext
    }
}

/// What ends an attempt's work, and so what is known when its handler was cut short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// All of it holds on to the [`AttemptContext`] or to what the handler's future owns: when
    /// those are gone it has ended. The process ends itself rather than let an attempt that
    /// forbids overlap run on after its deadline.
    #[default]
    WithTheContext,
    /// It is elsewhere, in processes that keep the deadline themselves. Only the handler's own
    /// account says that they are gone.
    ByItself,
}
