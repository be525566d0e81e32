//! Settings of queues as a store keeps them.

use outlast_core::queue::{QueueChange, QueueSettings};
use outlast_core::time::Timestamp;

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
