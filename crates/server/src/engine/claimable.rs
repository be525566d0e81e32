//! Reads which classes have claimable jobs.

use std::collections::HashSet;

use outlast_core::time::BootTime;
use outlast_store::query::Claimable;
use outlast_store::{Store, StoreError};
use outlast_store_rules::apply::limit::Limits;

use crate::clock::boot_time;
use crate::engine::estimate::MANY;
use crate::engine::shared_state::SharedState;

/// Most rows that one read counts, of all classes together: it happens every second.
const COUNTED_MAX: u64 = 20_000;

/// Which classes had claimable jobs when the store was read.
#[derive(Debug)]
pub(crate) struct Look {
    /// When the read began.
    pub(crate) began: BootTime,
    /// The paused queues, if this server knows of any.
    pub(crate) paused: HashSet<String>,
    pub(crate) classes: Vec<Claimable>,
    /// The limits and settings in force.
    pub(crate) limits: Limits,
}

/// Returns how far to count the jobs of each class, by how many classes had some last time.
pub(crate) fn count_max(classes: usize) -> u32 {
    let classes = u64::try_from(classes).unwrap_or(u64::MAX).max(1);
    u32::try_from((COUNTED_MAX / classes).clamp(1, MANY)).unwrap_or(u32::MAX)
}

/// Returns the claimable jobs by class, counted up to a limit.
pub(crate) async fn look_for_claimable(
    store: &dyn Store,
    shared: &SharedState,
) -> Result<Look, StoreError> {
    let began = boot_time();
    let paused = match shared.any_paused() {
        true => store.pauses().await?,
        false => Vec::new(),
    };
    let paused = paused.into_iter().filter(|queue| queue.paused).map(|queue| queue.name).collect();
    let settings = store.queue_settings().await?;
    shared.handlers.set_queues(&settings);
    let limits = Limits::of(store.limits().await?, settings);
    let max = count_max(shared.claimable_classes());
    let classes = store.claimable(max).await?;
    shared.set_claimable_classes(classes.len());
    Ok(Look { began, paused, classes, limits })
}
