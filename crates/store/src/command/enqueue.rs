//! Storing new jobs: one, or several together. With a key, see [`crate::idempotency`].

use super::NewJob;
use crate::job::{EnqueueRefusal, Enqueued};
use crate::request::{boxed_requests, newtype_requests};

/// Stores several jobs, or none of them.
#[derive(Clone, Debug)]
pub struct EnqueueAll(pub Vec<NewJob>);

boxed_requests! {
    NewJob as Enqueue -> Enqueued(Result<Enqueued, EnqueueRefusal>);
}
newtype_requests! {
    EnqueueAll as EnqueueAll -> EnqueuedAll(Result<Vec<Enqueued>, (usize, EnqueueRefusal)>);
}
