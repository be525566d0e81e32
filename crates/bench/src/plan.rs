//! How much is measured, as the command line says.

use std::time::Duration;

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds of each measurement.
    pub rounds: usize,
    /// Jobs per round; each measurement has a default of its own.
    pub jobs: Option<usize>,
    /// Length of a round of enqueues, instead of a number of jobs.
    pub time: Option<Duration>,
    /// Producers at the same time, a connection each.
    pub producers: Option<usize>,
    /// Jobs in a request of bulk.
    pub batch: usize,
    /// How long each baseline is measured.
    pub baseline_time: Duration,
}
