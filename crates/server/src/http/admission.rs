//! How many bytes of requests are held in memory at once: from before a body is read until its
//! request is answered, or waits for a job. Beyond that, bodies stay with their clients for a moment, then they are
//! refused.
//!
//! Short requests, long ones and those of workers each have room of their own: a beat, a small job
//! or a report waits for no flood of long jobs.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::{BODIES_BYTES_MAX, SHORT_BODY_BYTES_MAX};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::ApiError;
use crate::access::Scope;
use crate::engine::Unavailable;

/// Longest that a request waits for room.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes are counted in pieces of this many.
const PIECE: usize = 1024;

/// The room there is.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    of_workers: Arc<Semaphore>,
    pieces: usize,
    wait: Duration,
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    room: OwnedSemaphorePermit,
}

impl Admitted {
    /// Gives back what so many bytes do not take: a body may come without its length.
    pub(crate) fn keep(&mut self, bytes: usize) {
        let over = self.room.num_permits().saturating_sub(bytes.div_ceil(PIECE));
        drop(self.room.split(over));
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self::of(BODIES_BYTES_MAX, WAIT_MAX)
    }
}

impl Admission {
    fn of(bytes: usize, wait: Duration) -> Self {
        let pieces = bytes / PIECE;
        let room = || Arc::new(Semaphore::new(pieces));
        Self { short: room(), long: room(), of_workers: room(), pieces, wait }
    }

    /// Waits until there is room for a body of so many bytes.
    pub(crate) async fn admit(
        &self,
        bytes: usize,
        by: Option<Scope>,
    ) -> Result<Admitted, ApiError> {
        let room = match by {
            _ if bytes <= SHORT_BODY_BYTES_MAX => &self.short,
            Some(Scope::Work) => &self.of_workers,
            _ => &self.long,
        };
        let pieces = bytes.div_ceil(PIECE).clamp(1, self.pieces);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let admitted = Arc::clone(room).acquire_many_owned(pieces);
        match tokio::time::timeout(self.wait, admitted).await {
            Ok(Ok(room)) => Ok(Admitted { room }),
            Ok(Err(_)) | Err(_) => Err(ApiError::Unavailable(Unavailable::new(
                "the server has as many long requests in memory as it may",
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 250 producers of jobs of 1 MB once took 1.2 GB.
    #[tokio::test(start_paused = true)]
    async fn long_bodies_wait_for_room_and_short_ones_and_those_of_workers_pass_them() {
        let long = SHORT_BODY_BYTES_MAX + 1;
        let admission = Admission::of(2 * (long + PIECE), Duration::from_secs(10));
        let first = admission.admit(long, None).await.unwrap();
        let _second = admission.admit(long, None).await.unwrap();
        let refused = admission.admit(long, None).await.unwrap_err();
        assert!(matches!(refused, ApiError::Unavailable(_)), "{refused:?}");
        admission.admit(SHORT_BODY_BYTES_MAX, None).await.unwrap();
        admission.admit(long, Some(Scope::Work)).await.unwrap();
        drop(first);
        admission.admit(long, None).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn room_that_a_body_does_not_take_is_given_back() {
        let long = SHORT_BODY_BYTES_MAX + 1;
        let admission = Admission::of(long + 10 * PIECE, Duration::from_secs(10));
        let mut first = admission.admit(long + 9 * PIECE, None).await.unwrap();
        admission.admit(long, None).await.unwrap_err();
        first.keep(9 * PIECE);
        let second = admission.admit(long, None).await.unwrap();
        admission.admit(long, None).await.unwrap_err();
        first.keep(long);
        drop((first, second));
        admission.admit(long + 9 * PIECE, None).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_longer_than_all_room_is_admitted_alone() {
        let admission = Admission::of(100 * PIECE, Duration::from_secs(10));
        let huge = admission.admit(10 * 1024 * PIECE, None).await.unwrap();
        admission.admit(SHORT_BODY_BYTES_MAX + 1, None).await.unwrap_err();
        drop(huge);
        admission.admit(SHORT_BODY_BYTES_MAX + 1, None).await.unwrap();
    }
}
