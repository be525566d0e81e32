//! Settings of queues as a store keeps them.

use outlast_core::queue::{QueueChange, QueueRefusal, QueueSettings};
use outlast_core::time::Timestamp;

use crate::request::{boxed_requests, unit_requests};

/// Changes settings of a queue, which need not have had a job yet. What the change does not name
/// stays as it is. It takes effect with the next claim, on jobs that are stored already too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetQueue {
    /// The queue's name.
    pub queue: String,
    /// What changes.
    pub change: QueueChange,
    /// Who sets it, for the event log.
    pub by: String,
}

/// Settings of a queue as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRecord {
    /// The queue's name.
    pub queue: String,
    /// What is set.
    pub settings: QueueSettings,
    /// Who set it last.
    pub set_by: String,
    /// When.
    pub set_at: Timestamp,
}

/// What became of an order about settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChanged {
    /// They are different now.
    Changed,
    /// They were so before.
    Unchanged,
}

/// An order about a queue.
#[derive(Clone, Debug)]
pub struct QueueOrder {
    /// Its name.
    pub queue: String,
    /// Whether fetching stops.
    pub paused: bool,
    /// Who orders it.
    pub by: String,
}

boxed_requests! {
    SetQueue as SetQueue -> QueueSet(Result<QueueChanged, QueueRefusal>);
}
unit_requests! {
    QueueOrder as Queue;
}
