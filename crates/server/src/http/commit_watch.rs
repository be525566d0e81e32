//! Waiting for commits, by requests that look at the store until something has happened.
//!
//! The more such requests there are, the longer each pauses between two looks: together they must
//! leave the machine to the jobs.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::App;

/// There is no signal of commits by other servers, so the store is looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two looks of a request, for each such request: 10,000 looks a second in all.
const PAUSE_EACH: Duration = Duration::from_micros(100);
/// Longest and shortest such pause; timers are no finer than the latter.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// A request's view of the commits.
#[derive(Debug)]
pub(super) struct CommitWatch {
    /// Changes with every commit.
    commits: watch::Receiver<u64>,
    /// When the store may be looked at again.
    again_at: Instant,
    /// Whether other servers may write to the store.
    is_shared: bool,
}

impl CommitWatch {
    pub(super) fn new(app: &App) -> Self {
        Self {
            commits: app.engine.shared().commits.subscribe(),
            again_at: Instant::now(),
            is_shared: !app.engine.store().has_one_writer(),
        }
    }

    /// Waits until the store may be looked at again. Returns how many commits there were by then;
    /// later ones end the next wait for a commit.
    pub(super) async fn ready(&mut self) -> u64 {
        tokio::time::sleep_until(self.again_at).await;
        *self.commits.borrow_and_update()
    }

    /// How many commits there were.
    pub(super) fn count(&self) -> u64 {
        *self.commits.borrow()
    }

    /// Leaves the store to the others for a moment.
    pub(super) fn pause(&mut self, app: &App) {
        let requests = app.engine.shared().commits.receiver_count();
        self.again_at = Instant::now() + pause(requests);
    }

    /// Waits for a commit, or until other servers may have made one. Returns false once there will
    /// be none.
    pub(super) async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.commits.changed() => changed.is_ok(),
            () = tokio::time::sleep(LOOK_INTERVAL), if self.is_shared => true,
        }
    }
}

/// Returns how long each of `requests` requests waits between two looks.
fn pause(requests: usize) -> Duration {
    let pause = PAUSE_EACH.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
    if pause < PAUSE_MIN { Duration::ZERO } else { pause.min(PAUSE_MAX) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::pause;

    #[test]
    fn a_few_requests_look_at_once_and_a_thousand_share_what_the_store_can_give() {
        for (requests, ms) in [(1, 0), (9, 0), (10, 1), (1_000, 100), (1_000_000, 1_000)] {
            assert_eq!(pause(requests), Duration::from_millis(ms), "{requests}");
        }
    }
}
