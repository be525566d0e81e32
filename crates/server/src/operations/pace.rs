//! How fast operations go: the steps of all that run at this server follow each other, so that what
//! others send is delayed by a small command now and then, and never by a large one. Few of them read at the
//! same time: where few jobs match, they would else take all connections from requests.

use std::time::Duration;

use outlast_core::limits::OPERATION_STEP_MAX;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

/// Jobs a second, while the store keeps up.
const RATE: u128 = 6_000;
/// Shortest time between two steps.
const PAUSE: Duration = Duration::from_millis(5);
/// How many jobs a step has that comes after the shortest time.
const STEP: usize = 30;

/// How many operations read at the same time: a slow read does not hold up all others.
const READS: usize = 2;

/// Whose turn it is to take a step or to read.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the latest step began.
    latest: Mutex<Option<Instant>>,
    reads: Semaphore,
}

impl Default for Pace {
    fn default() -> Self {
        Self { latest: Mutex::default(), reads: Semaphore::new(READS) }
    }
}

impl Pace {
    /// Waits for a turn; returns how many jobs the step may have.
    pub(crate) async fn step(&self) -> usize {
        let mut latest = self.latest.lock().await;
        let now = Instant::now();
        let begins = latest.map_or(now, |latest| now.max(latest + PAUSE));
        tokio::time::sleep_until(begins).await;
        let size = size_after(latest.map(|latest| begins - latest));
        *latest = Some(begins);
        size
    }

    /// Reads when it is this operation's turn.
    pub(crate) async fn read<T>(&self, reading: impl Future<Output = T>) -> T {
        let _turn = self.reads.acquire().await;
        reading.await
    }
}

/// Returns how many jobs a step has, by how long ago the one before began: a slow store takes longer steps
/// for the same rate, up to a bound.
fn size_after(since: Option<Duration>) -> usize {
    let due = since.map_or(0, |since| since.as_millis() * RATE / 1000);
    usize::try_from(due).unwrap_or(usize::MAX).clamp(STEP, OPERATION_STEP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_to_the_rate_unless_the_store_is_too_slow_for_it() {
        let size = |ms| size_after(Some(Duration::from_millis(ms)));
        assert_eq!([5, 10, 20].map(size), [30, 60, 120]);
        assert_eq!((size(0), size(1_000), size_after(None)), (STEP, OPERATION_STEP_MAX, STEP));
    }

    #[tokio::test(start_paused = true)]
    async fn turns_follow_each_other_whoever_takes_them() {
        let pace = Pace::default();
        let begun = Instant::now();
        for _ in 0..10 {
            let ((), ()) = tokio::join!(async { assert_eq!(pace.step().await, STEP) }, async {
                assert_eq!(pace.step().await, STEP)
            },);
        }
        assert_eq!(begun.elapsed(), PAUSE * 19);
    }
}
