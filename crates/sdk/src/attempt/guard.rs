//! What everything that works on an attempt holds on to.
//!
//! ```text
//! handler returns, panics, runs out of time, or is dropped ─▶ AttemptGuard::finish
//!     no context is left ──────────────▶ the work has ended
//!     one is left (a thread, a task) ──▶ it may go on
//!         overlap allowed:   reported at once, as not proved empty; its slot stays taken
//!         overlap forbidden: reported when the last one lets go, and not before
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio_util::sync::CancellationToken;

use super::events::{AttemptEvent, Outlet};
use crate::delivery::AttemptId;
use crate::outcome::{Ends, Outcome};

/// While one is left, the attempt's work may go on.
#[derive(Debug)]
pub(crate) struct AttemptGuard {
    attempt: AttemptId,
    overlap_forbidden: bool,
    ends: Ends,
    outlet: Arc<Outlet>,
    over: AtomicBool,
    /// It is over, was reported, and still counts as a leftover.
    left_over: AtomicBool,
    /// Cancelled when it must end, or is over; made for the first that asks for it.
    token: OnceLock<CancellationToken>,
    /// The outcome, until it may be reported.
    held_back: Mutex<Option<Outcome>>,
}

impl AttemptGuard {
    pub(crate) fn new(
        attempt: AttemptId,
        overlap_forbidden: bool,
        ends: Ends,
        outlet: &Arc<Outlet>,
    ) -> Self {
        Self {
            attempt,
            overlap_forbidden,
            ends,
            outlet: Arc::clone(outlet),
            over: AtomicBool::new(false),
            left_over: AtomicBool::new(false),
            token: OnceLock::new(),
            held_back: Mutex::new(None),
        }
    }

    pub(crate) const fn outlet(&self) -> &Arc<Outlet> {
        &self.outlet
    }

    pub(crate) const fn overlap_forbidden(&self) -> bool {
        self.overlap_forbidden
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Returns the attempt's token, and whether it is asked for the first time.
    pub(crate) fn token(&self) -> (CancellationToken, bool) {
        let mut is_new = false;
        let token = self.token.get_or_init(|| {
            is_new = true;
            CancellationToken::new()
        });
        // It may have ended before there was a token to cancel.
        if self.is_over() {
            token.cancel();
        }
        (token.clone(), is_new)
    }

    /// The handler did not get to the end of its run.
    pub(crate) fn cut_short(self: &Arc<Self>, mut outcome: Outcome) {
        if self.ends == Ends::ByItself {
            outcome.tree_empty = false;
        }
        self.finish(outcome);
    }

    /// The handler's run is over. The outcome is reported now, or when all work has ended.
    pub(crate) fn finish(self: &Arc<Self>, mut outcome: Outcome) {
        self.over.store(true, Ordering::Release);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
        // Contexts are not copied any more once there is none: one holder is this one.
        let is_shared = Arc::strong_count(self) > 1;
        if self.overlap_forbidden && !outcome.tree_empty {
            tracing::error!(attempt = %self.attempt, "an attempt that must not overlap cannot be stopped");
            return self.outlet.send(AttemptEvent::Unstoppable(self.attempt));
        }
        if self.overlap_forbidden {
            // The end of what is still at work is the end of the attempt.
            *self.held_back.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            return;
        }
        if is_shared {
            outcome.tree_empty = false;
            self.left_over.store(true, Ordering::Release);
            let leftovers = self.outlet.leftovers.fetch_add(1, Ordering::AcqRel) + 1;
            tracing::warn!(
                attempt = %self.attempt,
                leftovers,
                "attempt is over, but some of its work continues and keeps its slot"
            );
        }
        self.outlet.send(AttemptEvent::Ended(self.attempt, outcome));
    }
}

/// No work is left: an outcome that was held back is reported.
impl Drop for AttemptGuard {
    fn drop(&mut self) {
        let held_back = self.held_back.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(outcome) = held_back {
            self.outlet.send(AttemptEvent::Ended(self.attempt, outcome));
        }
        if *self.left_over.get_mut() {
            self.outlet.leftovers.fetch_sub(1, Ordering::AcqRel);
            self.outlet.send(AttemptEvent::LeftoverEnded);
        }
    }
}
