//! What servers on one store tell each other.
//!
//! Hints, for speed alone: one may be lost, late, or repeated. The receiver reads the store before
//! it acts, or acts so that a wrong hint does no harm. A store with one server sends none.

use std::collections::{BTreeMap, HashSet};

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::Span;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::command::ClassId;

/// One hint. The names are short: many go into one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Signal {
    /// This many jobs of this class have become claimable, for which the teller has no free
    /// worker.
    #[serde(rename = "n")]
    Ready(i64, u64),
    /// This many jobs of this class were given back by workers that were lost together: they
    /// are handed out at a rate, by each server.
    #[serde(rename = "l")]
    Lost(i64, u64),
    /// Plain clients of the teller fetch from this queue, for this tenant if they name one.
    #[serde(rename = "f")]
    Fetched(String, Option<String>),
    /// The teller asks from which queues plain clients of the others fetch.
    #[serde(rename = "w")]
    WhoFetches,
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
    /// Attempts ended that limits counted: jobs that wait for a limit may start.
    #[serde(rename = "g")]
    Freed,
    /// A limit was set or removed, or settings of a queue were changed.
    #[serde(rename = "k")]
    Limits,
    /// A worker sends heartbeats to the teller, and last polled this long ago.
    #[serde(rename = "b")]
    Polled {
        /// The worker.
        #[serde(rename = "w")]
        worker: Uuid,
        /// In milliseconds.
        #[serde(rename = "a")]
        age: u64,
    },
    /// Hints of this server were lost: the receiver reads the store.
    #[serde(rename = "m")]
    Missed,
}

impl Signal {
    /// This many jobs of this class have become claimable.
    #[must_use]
    pub const fn ready(class: ClassId, count: u64) -> Self {
        Self::Ready(class.0, count)
    }

    /// Takes several hints together: what is said twice is said once, and counts add up.
    #[must_use]
    pub fn together(signals: Vec<Self>) -> Vec<Self> {
        let mut ready: BTreeMap<i64, u64> = BTreeMap::new();
        let mut seen = HashSet::new();
        let mut together = Vec::new();
        for signal in signals {
            if let Self::Ready(class, count) = signal {
                let sum = ready.entry(class).or_default();
                *sum = sum.saturating_add(count);
            } else if seen.insert(signal.clone()) {
                together.push(signal);
            }
        }
        together.extend(ready.into_iter().map(|(class, count)| Self::Ready(class, count)));
        together
    }

    /// A worker last polled this long ago.
    #[must_use]
    pub const fn polled(worker: WorkerId, age: Span) -> Self {
        Self::Polled { worker: worker.0, age: age.0 }
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
    /// Hints may have been missed because the connection was down. The receiver reads the store.
    Missed,
}
