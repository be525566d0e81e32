//! The numbers of the whole store at once: queues, totals, why jobs wait, workers, limits.
//!
//! All who look share one snapshot. It is made when a client asks and the last one is older than a
//! second, and never when none asks. So the store is read once a second at most, however many
//! look, and each number can be shown with its age.
//!
//! ```text
//! asked ─▶ younger than a second? ─yes─▶ the same again
//!                                 └─no─▶ one asker makes the next; the others wait for it
//! ```
//!
//! What it costs depends on the number of queues and limits, not on jobs or their classes: of the
//! classes, only those with the most claimable jobs are looked at. What the others count is one number,
//! without a reason.

mod waiting_groups;

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::finding::WorkerCounts;
use outlast_core::job::State;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::StoreError;
use outlast_store::limit::LimitRecord;
use outlast_store::query::QueueStats;
use outlast_store::queue::QueueRecord;
use tokio::sync::Mutex;

use crate::Engine;
use crate::clock::boot_time;
use crate::http::limits_in_use;
pub(crate) use waiting_groups::{Reason, Waiting, WaitingGroup};

/// How long a snapshot is shared.
const SHARED_FOR: Span = Span::from_secs(1);

/// The numbers of the store at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The store's time when they were read.
    pub(crate) counted_at: Timestamp,
    taken: BootTime,
    /// All queues, by name.
    pub(crate) queues: Vec<QueueStats>,
    /// The settings of those that have any.
    pub(crate) settings: BTreeMap<String, QueueRecord>,
    /// All queues together.
    pub(crate) totals: QueueStats,
    /// Why jobs wait.
    pub(crate) waiting: Waiting,
    /// The live workers.
    pub(crate) workers: WorkerCounts,
    /// The limits, each with how many attempts it counts; not those on a key, of which each value
    /// counts for itself.
    pub(crate) limits: Vec<(LimitRecord, Option<u64>)>,
}

impl Snapshot {
    /// Returns how old the numbers are.
    pub(crate) fn age(&self) -> Span {
        boot_time().since(self.taken)
    }

    async fn take(engine: &Engine, taken: BootTime) -> Result<Self, StoreError> {
        let store = engine.store();
        let counted_at = engine.now().await?;
        let (queues, settings, limits) = tokio::try_join!(
            store.queues(),
            store.queue_settings(),
            limits_in_use(store.as_ref())
        )?;
        let waiting = Waiting::look(engine, &queues).await?;
        let settings = settings.into_iter().map(|record| (record.queue.clone(), record)).collect();
        let (totals, workers) = (total(&queues), worker_counts(engine));
        Ok(Self { counted_at, taken, queues, settings, totals, waiting, workers, limits })
    }
}

/// Adds queues up.
pub(crate) fn total(queues: &[QueueStats]) -> QueueStats {
    let mut totals = QueueStats::default();
    for queue in queues {
        let mut queue = queue.clone();
        for state in State::ALL {
            *totals.count_mut(state) += *queue.count_mut(state);
        }
        let oldest = [totals.oldest_available, queue.oldest_available];
        totals.oldest_available = oldest.into_iter().flatten().min();
    }
    totals
}

fn worker_counts(engine: &Engine) -> WorkerCounts {
    let mut counts = WorkerCounts::default();
    for member in engine.shared().fleet.members().values() {
        let standing = member.brief.standing;
        match standing.state() {
            _ if !standing.holds_lease() => {}
            "running" => counts.running += 1,
            "quiet" => counts.quiet += 1,
            "draining" => counts.draining += 1,
            _ => counts.suspect += 1,
        }
    }
    counts
}

/// The latest snapshot, shared by all who look.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
enum Latest {
    #[default]
    None,
    Taken(Arc<Snapshot>),
    /// The store did not answer: it is not asked again for each who waits.
    Failed(BootTime, String),
}

impl Snapshots {
    /// Returns numbers that were asked for at most a second ago.
    pub(crate) async fn latest(&self, engine: &Engine) -> Result<Arc<Snapshot>, StoreError> {
        // Before the wait: who had to wait takes what was read meanwhile, however long that took.
        let asked = boot_time();
        let mut latest = self.latest.lock().await;
        Self::at(asked, boot_time(), &mut latest, engine).await
    }

    async fn at(
        asked: BootTime,
        now: BootTime,
        latest: &mut Latest,
        engine: &Engine,
    ) -> Result<Arc<Snapshot>, StoreError> {
        match latest {
            Latest::Taken(snapshot) if asked.since(snapshot.taken) < SHARED_FOR => {
                return Ok(Arc::clone(snapshot));
            }
            Latest::Failed(at, words) if asked.since(*at) < SHARED_FOR => {
                return Err(StoreError::Unavailable(words.clone()));
            }
            Latest::Taken(_) | Latest::Failed(..) | Latest::None => {}
        }
        match Snapshot::take(engine, now).await {
            Ok(snapshot) => {
                let snapshot = Arc::new(snapshot);
                *latest = Latest::Taken(Arc::clone(&snapshot));
                Ok(snapshot)
            }
            Err(error) => {
                *latest = Latest::Failed(now, error.to_string());
                Err(error)
            }
        }
    }

    /// Forgets the numbers: this server has changed a setting, and who changed it looks at once.
    pub(crate) async fn forget(&self) {
        *self.latest.lock().await = Latest::None;
    }
}

#[cfg(test)]
mod tests;
