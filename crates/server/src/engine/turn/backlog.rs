//! Looks into the store for claimable jobs: when the server starts, when it hears of a class
//! that it does not know, and once a second, for what it may have missed.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::time::{BootTime, Span};
use outlast_store::Store;
use outlast_store::command::{ClassId, Route};
use outlast_store::query::Claimable;
use outlast_store::signal::{Heard, Signal};

use super::Turn;
use crate::clock::boot_time;
use crate::engine::Board;
use crate::engine::estimate::{Estimate, MANY};
use crate::engine::input::Input;

/// Most rows that one look counts, of all classes together: it is taken each second.
const COUNTED_MAX: u64 = 20_000;
/// A class without jobs is known for this long: most come again.
const UNUSED_MAX: Span = Span::from_secs(60);
/// Pause before a claim that found only locked jobs is made again.
const LOCKED_PAUSE: Duration = Duration::from_millis(50);

/// Whether a look is to be taken: one at a time.
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) wanted: bool,
    pub(super) reading: bool,
}

impl Backlog {
    pub(super) const fn wanted() -> Self {
        Self { wanted: true, reading: false }
    }

    pub(super) const fn is_due(&self) -> bool {
        self.wanted && !self.reading
    }
}

/// Returns how far to count the jobs of each class, by how many classes had some last time.
pub(crate) fn count_max(classes: usize) -> u32 {
    let classes = u64::try_from(classes).unwrap_or(u64::MAX).max(1);
    u32::try_from((COUNTED_MAX / classes).clamp(1, MANY)).unwrap_or(u32::MAX)
}

/// Returns what waits, counted as far as a look may.
pub(crate) async fn look(
    store: &dyn Store,
    board: &Board,
) -> Result<Vec<Claimable>, outlast_store::StoreError> {
    let max = count_max(board.waiting_classes());
    let classes = store.claimable(max).await?;
    board.set_waiting_classes(classes.len());
    Ok(classes)
}

impl Turn {
    /// Takes a look beside the loop, which never waits for a read: a slow query of someone
    /// else's would hold up every report.
    pub(super) fn read_backlog(&mut self) {
        self.backlog = Backlog { wanted: false, reading: true };
        let (store, inputs) = (Arc::clone(&self.store), self.inputs.clone());
        let board = Arc::clone(&self.board);
        tokio::spawn(async move {
            let looked = look(store.as_ref(), &board).await;
            let Some(inputs) = inputs.upgrade() else { return };
            // A loop that has ended needs no backlog.
            match looked {
                Ok(classes) => drop(inputs.send(Input::Backlog(classes)).await),
                // The monitor's next look, a second later at most, makes up for it.
                Err(error) => tracing::warn!(%error, "failed to look for claimable jobs"),
            }
            drop(inputs.send(Input::BacklogRead).await);
        });
    }

    /// Has claims made again, after a moment, for classes of which all jobs were locked by others:
    /// they may be given back.
    pub(super) fn ask_again_for(&self, classes: Vec<ClassId>) {
        if classes.is_empty() {
            return;
        }
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LOCKED_PAUSE).await;
            let Some(inputs) = inputs.upgrade() else { return };
            let signals = classes.into_iter().map(|class| Signal::ready(class, 1)).collect();
            // A loop that has ended claims no more.
            drop(inputs.send(Input::Heard(Heard::Signals(signals))).await);
        });
    }

    pub(super) fn set_backlog(&mut self, classes: Vec<Claimable>) {
        let now = boot_time();
        for Claimable { id, key, count } in classes {
            // One that was counted as far as the look went may have any number.
            let ready = Estimate::of(u64::from(count));
            let class = self.roster.learn(id, &key, now);
            let before = class.ready;
            let ready = before.counted(ready.wanted());
            self.roster.set_ready(id, ready);
            // Clients that wait for it may not have heard.
            if key.route == Route::Plain {
                self.board.fetchers.wake(&key.queue, key.tenant.as_deref(), u64::from(count));
            }
        }
        self.roster.forget_unused(BootTime(now.0.saturating_sub(UNUSED_MAX.0)));
    }
}
