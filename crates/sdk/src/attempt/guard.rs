//! What everything that works on an attempt holds on to.
//!
//! ```text
//! handler returns, panics, runs out of time, or is dropped ─▶ AttemptGuard::finish
//!     no context is left ──────────────▶ the work has ended
//!     one is left (a thread, a task) ──▶ it may go on
//!         overlap forbidden: reported when the last one lets go, and not before
//!         told to stop:      the same, until the worker leaves: its job holds slots of limits
//!         otherwise:         reported at once, as not proved empty; its slot stays taken
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::events::{AttemptEvent, Outlet};
use crate::delivery::AttemptId;
use crate::outcome::{Ends, Outcome, StopReason};

/// While one is left, the attempt's work may go on.
#[derive(Debug)]
pub(crate) struct AttemptGuard {
    attempt: AttemptId,
    overlap_forbidden: bool,
    ends: Ends,
    outlet: Arc<Outlet>,
    stop: watch::Receiver<Option<StopReason>>,
    over: AtomicBool,
    /// It is over, was reported, and still counts as a leftover.
    left_over: AtomicBool,
    /// Cancelled when it must end, or is over; made for the first that asks for it.
    token: OnceLock<CancellationToken>,
    held_back: Mutex<HeldBack>,
}

/// The outcome, until it may be reported.
#[derive(Debug, Default)]
struct HeldBack {
    outcome: Option<Outcome>,
    /// The worker leaves, and waits for no work that cannot be stopped.
    in_vain: bool,
}

impl AttemptGuard {
    pub(crate) fn new(
        attempt: AttemptId,
        overlap_forbidden: bool,
        ends: Ends,
        outlet: &Arc<Outlet>,
        stop: watch::Receiver<Option<StopReason>>,
    ) -> Self {
        Self {
            attempt,
            overlap_forbidden,
            ends,
            outlet: Arc::clone(outlet),
            stop,
            over: AtomicBool::new(false),
            left_over: AtomicBool::new(false),
            token: OnceLock::new(),
            held_back: Mutex::default(),
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
    pub(crate) fn finish(self: &Arc<Self>, outcome: Outcome) {
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
            self.held_back().outcome = Some(outcome);
            return;
        }
        if !is_shared {
            return self.outlet.send(AttemptEvent::Ended(self.attempt, outcome));
        }
        let mut held_back = self.held_back();
        if self.is_told_to_stop() && !held_back.in_vain {
            tracing::warn!(
                attempt = %self.attempt,
                "attempt has an order to stop, but some of its work continues: it ends with that"
            );
            held_back.outcome = Some(outcome);
            return;
        }
        drop(held_back);
        self.leave_over(outcome);
    }

    /// Reports an attempt with an order to stop although work of it goes on: the worker leaves.
    pub(crate) fn give_up(&self) {
        if self.overlap_forbidden {
            return;
        }
        let mut held_back = self.held_back();
        held_back.in_vain = true;
        let outcome = held_back.outcome.take();
        drop(held_back);
        if let Some(outcome) = outcome {
            self.leave_over(outcome);
        }
    }

    fn held_back(&self) -> MutexGuard<'_, HeldBack> {
        self.held_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cancelled job is called stale where the order to stop it was lost.
    fn is_told_to_stop(&self) -> bool {
        matches!(*self.stop.borrow(), Some(StopReason::Cancelled | StopReason::Stale))
    }

    fn leave_over(&self, mut outcome: Outcome) {
        outcome.tree_empty = false;
        self.left_over.store(true, Ordering::Release);
        let leftovers = self.outlet.leftovers.fetch_add(1, Ordering::AcqRel) + 1;
        tracing::warn!(
            attempt = %self.attempt,
            leftovers,
            "attempt is over, but some of its work continues and keeps its slot"
        );
        self.outlet.send(AttemptEvent::Ended(self.attempt, outcome));
    }
}

/// No work is left: an outcome that was held back is reported.
impl Drop for AttemptGuard {
    fn drop(&mut self) {
        let held_back = self.held_back.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = held_back.outcome.take() {
            self.outlet.send(AttemptEvent::Ended(self.attempt, outcome));
        }
        if *self.left_over.get_mut() {
            self.outlet.leftovers.fetch_sub(1, Ordering::AcqRel);
            self.outlet.send(AttemptEvent::LeftoverEnded);
        }
    }
}
