//! Reads the claimable jobs from the store: when the server starts, when an unknown class gets
//! jobs, and once a second, in case the loop missed some.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::time::{BootTime, Span};
use outlast_store::command::ClassId;
use outlast_store::query::Claimable;

use super::{EventLoop, Planning};
use crate::clock::{boot_time, millis};
use crate::engine::LOCKED_PAUSE;
use crate::engine::claimable::{Look, look_for_claimable};
use crate::engine::estimate::Estimate;
use crate::engine::input::Input;
use crate::engine::trouble_log::log_trouble;

/// A class without jobs is remembered for this long: most get jobs again.
const UNUSED_MAX: Span = Span::from_secs(60);
/// Pause before classes are claimed from again whose jobs are set aside.
const ASIDE_PAUSE: Span = Span::from_secs(1);

/// Whether a look is to be taken: one at a time.
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) wanted: bool,
    pub(super) reading: bool,
    /// Queues that this server takes for paused, and that were not when the store was last read.
    doubted: HashSet<String>,
}

impl Backlog {
    pub(super) fn wanted() -> Self {
        Self { wanted: true, reading: false, doubted: HashSet::new() }
    }

    pub(super) const fn is_due(&self) -> bool {
        self.wanted && !self.reading
    }
}

impl EventLoop {
    /// Reads the backlog in a task beside the loop, so that a slow read delays no report.
    pub(super) fn read_backlog(&mut self) {
        self.planning.backlog.wanted = false;
        self.planning.backlog.reading = true;
        let (store, inputs) = (Arc::clone(self.writer.store()), self.inputs.clone());
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let looked = look_for_claimable(store.as_ref(), &shared).await;
            let Some(inputs) = inputs.upgrade() else { return };
            // A loop that has ended needs no backlog.
            match looked {
                Ok(look) => drop(inputs.send(Input::Backlog(look)).await),
                // The monitor reads it again within a second.
                Err(error) => log_trouble!(warn, shared, error, "failed to read the backlog"),
            }
            drop(inputs.send(Input::BacklogRead).await);
        });
    }

    /// Claims jobs of these classes again after a moment: other sessions had locked all of them, and
    /// may give them back, or they are set aside.
    pub(super) fn claim_again_later(&self, classes: Vec<ClassId>) {
        let aside = |class: &ClassId| self.shared.slow_claims.any_of(*class);
        let (aside, locked): (Vec<ClassId>, Vec<ClassId>) = classes.into_iter().partition(aside);
        for (pause, classes) in [(LOCKED_PAUSE, locked), (ASIDE_PAUSE, aside)] {
            if !classes.is_empty() {
                self.claim_again_after(millis(pause), classes);
            }
        }
    }

    /// Claims jobs of these classes again after a time.
    pub(super) fn claim_again_after(&self, wait: Duration, classes: Vec<ClassId>) {
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let Some(inputs) = inputs.upgrade() else { return };
            // A loop that has ended claims no more.
            drop(inputs.send(Input::ClaimAgain(classes)).await);
        });
    }

    /// Takes it that these classes have some claimable jobs, no matter how many.
    pub(super) fn claim_again(&mut self, classes: &[ClassId]) {
        for id in classes {
            self.planning.classes.unblock_one(*id);
            let Some(class) = self.planning.classes.get(*id) else { continue };
            let ready = class.ready.counted(1);
            self.planning.classes.set_ready(*id, ready);
        }
    }

    /// Resumes queues that two reads in a row found not paused: signals of other servers may come
    /// late. One read alone may be older than an order.
    fn resume_unpaused(&mut self, paused: &HashSet<String>) {
        let doubted: HashSet<String> =
            self.shared.paused().into_iter().filter(|queue| !paused.contains(queue)).collect();
        for queue in doubted.intersection(&self.planning.backlog.doubted) {
            tracing::info!(%queue, "queue is not paused in the store; going on with it");
            self.shared.set_paused(queue, false);
        }
        self.planning.backlog.doubted = doubted;
    }

    pub(super) fn set_backlog(&mut self, Look { began, paused, classes, limits }: Look) {
        self.resume_unpaused(&paused);
        self.shared.set_limits(limits.clone());
        if self.planning.classes.set_limits(limits) {
            self.sessions.forget_fits();
        }
        self.planning.classes.unblock();
        let now = boot_time();
        let listed: HashSet<ClassId> = classes.iter().map(|class| class.id).collect();
        self.planning.classes.clear_unlisted(&listed, began);
        for Claimable { id, key, count } in classes {
            let class = self.planning.classes.learn(id, &key, now);
            let (before, is_plain) = (class.ready, class.asked().is_for_plain_clients());
            // No claim gets any. The backlog is read again when it is resumed. The store is asked
            // as well: signals are hints only.
            if self.shared.is_paused(&key.queue) && paused.contains(&key.queue) {
                self.planning.classes.set_ready(id, Estimate::None);
                continue;
            }
            // A count that reached the limit may stand for any number.
            let ready = Estimate::of(u64::from(count));
            let ready = before.counted(ready.wanted());
            self.planning.classes.set_ready(id, ready);
            // Waiting clients may have missed the signal.
            if is_plain {
                self.shared.long_polls.wake(&key.queue, key.tenant.as_deref(), u64::from(count));
            }
        }
        if self.planning.classes.forget_unused(BootTime(now.0.saturating_sub(UNUSED_MAX.0))) {
            let Self { sessions, planning: Planning { classes, .. }, .. } = self;
            sessions.forget_classes(|id| classes.contains(id));
        }
    }
}
