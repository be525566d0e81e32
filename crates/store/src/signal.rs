//! What servers on one store tell each other.
//!
//! Hints, for speed alone: one may be lost, late, or told twice, and whoever hears one looks
//! into the store before it acts, or acts so that nothing is wrong if the hint was. A store
//! that has one server has nobody to tell.

use outlast_core::id::{Epoch, JobId, WorkerId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::command::ClassId;

/// One hint. The names are short: many go into one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Signal {
    /// Jobs of this class have become claimable.
    #[serde(rename = "r")]
    Ready(i64),
    /// Programs stored jobs by SQL, which wait to be taken in.
    #[serde(rename = "a")]
    Arrived,
    /// A job was cancelled whose attempt a worker holds that is attached elsewhere.
    #[serde(rename = "c")]
    Cancelled {
        /// The worker.
        #[serde(rename = "w")]
        worker: Uuid,
        /// The job.
        #[serde(rename = "j")]
        job: Uuid,
        /// The attempt.
        #[serde(rename = "e")]
        epoch: u64,
    },
    /// A worker that is attached elsewhere was ordered to another phase.
    #[serde(rename = "p")]
    Phase {
        /// The worker.
        #[serde(rename = "w")]
        worker: Uuid,
        /// `quiet`, `resume` or `drain`.
        #[serde(rename = "o")]
        order: String,
        /// Who ordered it.
        #[serde(rename = "b")]
        by: String,
    },
    /// Fetching from a queue was stopped, or allowed.
    #[serde(rename = "q")]
    Queue {
        /// Its name.
        #[serde(rename = "n")]
        queue: String,
        /// Whether it is stopped.
        #[serde(rename = "p")]
        paused: bool,
    },
    /// Hints of this server were lost: whoever hears it looks into the store.
    #[serde(rename = "m")]
    Missed,
}

impl Signal {
    /// Jobs of this class have become claimable.
    #[must_use]
    pub const fn ready(class: ClassId) -> Self {
        Self::Ready(class.0)
    }

    /// An attempt was cancelled.
    #[must_use]
    pub const fn cancelled(worker: WorkerId, job: JobId, epoch: Epoch) -> Self {
        Self::Cancelled { worker: worker.0, job: job.0, epoch: epoch.0 }
    }
}

/// What comes from the other servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Hints.
    Signals(Vec<Signal>),
    /// Hints may have been missed: the line was down. Whoever hears this looks for itself.
    Missed,
}
