//! Jobs of which there is one at a time.
//!
//! A store knows for each key the job that took it last, and nothing else: claims and ends of jobs
//! do not touch keys. A job that is pruned takes its key with it.

use outlast_core::id::JobId;
use outlast_core::unique::Holder;

use crate::job::ClassId;
use crate::reply::Moved;

pub use outlast_core::unique::{Fingerprint, OnConflict, States, Unique};

/// The job that took a key last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHolder {
    /// Its id.
    pub job: JobId,
    /// Its class.
    pub class: ClassId,
    /// What decides whether it is in the way.
    pub holder: Holder,
}

/// What became of a new job and the one that was in its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// The new one was not stored.
    Ignored,
    /// The new one was stored. The other one was cancelled, if it had not ended.
    Replaced {
        /// The other job.
        job: JobId,
        /// How it moved, if it did.
        moved: Option<Box<Moved>>,
    },
}
