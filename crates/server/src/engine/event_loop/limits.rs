//! Classes whose jobs wait for a limit: when claiming from them is tried again.
//!
//! ```text
//! claim says blocked ─▶ left out of plans ─▶ an attempt ended here, or at a peer that said so
//!                                          ─▶ a rate opens: a timer
//!                                          ─▶ more jobs came, or limits were changed
//!                                          ─▶ the backlog was read: within a second
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_core::time::Span;
use outlast_store::command::ClassId;
use outlast_store::reply::Blocked;

use super::EventLoop;

impl EventLoop {
    /// Attempts ended that limits counted: claims from the classes that waited may succeed now.
    pub(super) fn slots_freed(&mut self) {
        let (classes, long_polls) = (&mut self.planning.classes, &self.shared.long_polls);
        classes.unblock();
        for queue in long_polls.waited_for() {
            let claimable = classes.claimable_in(std::slice::from_ref(&queue), ClassId(i64::MIN));
            let limited = claimable.filter(|(_, class)| {
                class.is_limited && class.key.queue == queue && class.asked().is_for_plain_clients()
            });
            let tenants: BTreeSet<_> =
                limited.map(|(_, class)| class.key.tenant.as_deref()).collect();
            for tenant in tenants {
                // It wakes the next one if it gets a job.
                long_polls.wake(&queue, tenant, 1);
            }
        }
    }

    /// Limits were changed: all jobs may start that are left, and the limits are read again.
    pub(super) fn limits_changed(&mut self) {
        self.slots_freed();
        self.planning.backlog.wanted = true;
    }

    /// Claims again when a rate lets the next job start.
    pub(super) fn wait_for_rates(&mut self, blocked: &[Blocked]) {
        for Blocked { class, until } in blocked {
            let Some(until) = *until else { continue };
            if !self.planning.classes.opens_at(*class, until) {
                continue;
            }
            let wait = self.shared.store_time().map_or(Span(0), |now| until.since(now));
            self.claim_again_after(Duration::from_millis(wait.0.max(1)), vec![*class]);
        }
    }
}
