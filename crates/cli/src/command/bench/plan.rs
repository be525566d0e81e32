//! How much is measured, as the command line says.

use std::time::Duration;

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    /// Jobs a round; each measurement has a default of its own.
    pub(super) jobs: Option<usize>,
    /// Length of a round of enqueues, instead of a number of jobs.
    pub(super) time: Option<Duration>,
    pub(super) producers: Option<usize>,
    pub(super) batch: usize,
    /// How long each ceiling is measured.
    pub(super) ceiling_time: Duration,
}
