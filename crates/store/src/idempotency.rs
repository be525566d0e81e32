//! Enqueueing once for a key, however often a producer asks.
//!
//! ```text
//! no such key, or expired ─▶ jobs stored, key kept     one transaction
//! key, same request       ─▶ the jobs of the first time, nothing stored
//! key, other request      ─▶ refused
//! ```
//!
//! A refused request leaves no key, so it may be fixed and sent again. The jobs of a stored key are
//! not pruned: a repeated request gets them as its answer.

use outlast_core::id::JobId;
use outlast_core::time::Span;

use crate::job::{EnqueueRefusal, Enqueued, NewJob};

use crate::request::boxed_requests;
/// A hash: what a key or a request is known by here.
pub use outlast_core::unique::Fingerprint;

/// Jobs to be stored once: all of them or none.
#[derive(Clone, Debug)]
pub struct EnqueueOnce {
    /// The key, together with whose it is.
    pub key: Fingerprint,
    /// What was asked for with it.
    pub request: Fingerprint,
    /// How long the key is kept.
    pub keep: Span,
    /// The jobs, at least one.
    pub jobs: Vec<NewJob>,
}

/// What a key stands for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnqueuedOnce {
    /// The jobs were stored just now.
    Stored(Vec<Enqueued>),
    /// They had been stored before.
    Before(Vec<JobId>),
}

/// Why nothing was stored for a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueOnceRefusal {
    /// The key stands for something else.
    #[error("key was used for another request")]
    OtherRequest,
    /// The job at this position is refused.
    #[error("{1}")]
    Job(usize, EnqueueRefusal),
}

boxed_requests! {
    EnqueueOnce as EnqueueOnce -> EnqueuedOnce(Result<EnqueuedOnce, EnqueueOnceRefusal>);
}
