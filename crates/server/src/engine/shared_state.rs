//! What the event loop, the monitors, the sessions and the HTTP handlers share.
//!
//! Each part has its own lock, held for a moment and never across an `await`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use outlast_core::id::WorkerId;
use outlast_core::lease::Watch;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::command::ClassKey;
use outlast_store_rules::apply::limit::Limits;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::boot_time;
use crate::engine::asked::Asked;
use crate::engine::fleet::Fleet;
use crate::engine::long_poll::LongPolls;
use crate::engine::slow_claims::SlowClaims;
use crate::engine::store_health::{Lane, StoreHealth, Trouble};
use crate::engine::trouble_log::TroubleLog;
use crate::engine::unhealthy::UnhealthyWorkers;
use crate::engine::vitals::Vitals;
use crate::handlers::InForce;
use crate::workflows::wanted::WantedWorkflows;

/// The state that the parts of one server share.
#[derive(Debug)]
pub(crate) struct SharedState {
    /// Plain clients that wait for jobs to become claimable.
    pub(crate) long_polls: LongPolls,
    /// The workers of every server, and the sessions of this one.
    pub(crate) fleet: Fleet,
    /// Whether the store takes writes, and since when without a break (I8).
    pub(crate) store_health: StoreHealth,
    pub(crate) trouble_log: TroubleLog,
    /// The jobs that are slow to claim.
    pub(crate) slow_claims: SlowClaims,
    /// Whether every essential task of the server still runs.
    pub(crate) vitals: Vitals,
    pub(crate) next_due: NextDue,
    pub(crate) leases: LeaseWatch,
    /// The latest reports of workers that are unhealthy.
    pub(crate) unhealthy: UnhealthyWorkers,
    /// Woken when programs may have stored jobs by SQL.
    pub(crate) arrivals_wanted: Notify,
    /// Woken when this server has begun an operation.
    pub(crate) operations_wanted: Notify,
    /// The workflows that this server is to look at.
    pub(crate) workflows: WantedWorkflows,
    /// Counts commits, so that event streams can wait for the next one.
    pub(crate) commits: watch::Sender<u64>,
    /// Whose turn it is to make the store have the limits of the configuration.
    pub(crate) limits_turn: tokio::sync::Mutex<()>,
    /// The same for schedules.
    pub(crate) schedules_turn: tokio::sync::Mutex<()>,
    /// What happens to dead letters.
    pub(crate) handlers: InForce,
    /// Cancelled when the server begins to stop.
    stopping: CancellationToken,
    clock: StoreClock,
    /// The limits and settings of queues in force, as last read.
    limits: RwLock<Limits>,
    paused: RwLock<HashSet<String>>,
    /// How many classes had claimable jobs at the last look.
    claimable_classes: AtomicUsize,
}

impl SharedState {
    /// Returns the state of a server that starts at `now`.
    pub(crate) fn new(now: BootTime, handlers: InForce) -> Self {
        Self {
            long_polls: LongPolls::default(),
            fleet: Fleet::default(),
            store_health: StoreHealth::new(now),
            trouble_log: TroubleLog::default(),
            slow_claims: SlowClaims::default(),
            vitals: Vitals::default(),
            next_due: NextDue::default(),
            leases: LeaseWatch::default(),
            unhealthy: UnhealthyWorkers::default(),
            arrivals_wanted: Notify::new(),
            operations_wanted: Notify::new(),
            workflows: WantedWorkflows::default(),
            commits: watch::Sender::default(),
            limits_turn: tokio::sync::Mutex::default(),
            schedules_turn: tokio::sync::Mutex::default(),
            handlers,
            stopping: CancellationToken::new(),
            clock: StoreClock::default(),
            limits: RwLock::default(),
            paused: RwLock::default(),
            claimable_classes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn claimable_classes(&self) -> usize {
        self.claimable_classes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_claimable_classes(&self, count: usize) {
        self.claimable_classes.store(count, Ordering::Relaxed);
    }

    /// Marks the server as stopping.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Returns a token that is cancelled when the server begins to stop.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    pub(crate) fn commit_happened(&self) {
        self.commits.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Records how a write ended. Workers may have been silent because the store took no write,
    /// so every watch starts again after a break.
    pub(crate) fn write_ended(&self, lane: Lane, ended: Result<(), Trouble>) {
        if self.store_health.write_ended(lane, ended, boot_time()) {
            self.leases.watch().lost_contact();
        }
    }

    /// Records that contact with the store was not proven for a while: every watch starts again.
    pub(crate) fn contact_unproven(&self) {
        self.store_health.unproven(boot_time());
        self.leases.watch().lost_contact();
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Returns what is asked of the workers of a class, as the settings were last read.
    pub(crate) fn asked<'a>(&self, key: &'a ClassKey) -> Asked<'a> {
        Asked::now(key, &self.limits.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a limit may apply to jobs of a class.
    pub(crate) fn may_limit(&self, class: &ClassKey) -> bool {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).may_apply(class)
    }

    pub(crate) fn set_store_time(&self, at: Timestamp) {
        self.clock.set(at, boot_time());
    }

    /// Estimates the store's time from its latest answer and the time since then.
    pub(crate) fn store_time(&self) -> Option<Timestamp> {
        self.clock.estimate(boot_time())
    }

    /// Returns the lease that a worker was granted, by this server or another one.
    pub(crate) fn lease_of(&self, worker: WorkerId) -> Option<Span> {
        let granted = self.leases.granted(worker);
        granted.or_else(|| self.fleet.members().get(&worker).map(|known| known.brief.lease))
    }

    pub(crate) fn set_paused(&self, queue: &str, paused: bool) {
        let mut set = self.paused.write().unwrap_or_else(PoisonError::into_inner);
        if paused {
            set.insert(queue.to_owned());
        } else {
            set.remove(queue);
        }
    }

    pub(crate) fn is_paused(&self, queue: &str) -> bool {
        self.paused.read().unwrap_or_else(PoisonError::into_inner).contains(queue)
    }

    /// Returns the queues that are paused, as far as this server knows.
    pub(crate) fn paused(&self) -> HashSet<String> {
        self.paused.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether any queue is paused.
    pub(crate) fn any_paused(&self) -> bool {
        !self.paused.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// When something is due next by time alone, as far as the event loop has seen.
#[derive(Debug)]
pub(crate) struct NextDue {
    at: AtomicI64,
    changed: Notify,
}

impl Default for NextDue {
    fn default() -> Self {
        Self { at: AtomicI64::new(i64::MAX), changed: Notify::new() }
    }
}

impl NextDue {
    /// Adds a deadline; wakes the sweeper if it is earlier than all known ones.
    pub(crate) fn add(&self, at: Timestamp) {
        if self.at.fetch_min(at.0, Ordering::AcqRel) > at.0 {
            self.changed.notify_one();
        }
    }

    /// Puts a deadline back without waking the sweeper, which knows it already.
    pub(crate) fn put_back(&self, at: Timestamp) {
        self.at.fetch_min(at.0, Ordering::AcqRel);
    }

    /// Returns the earliest known deadline and forgets it.
    pub(crate) fn take(&self) -> Timestamp {
        Timestamp(self.at.swap(i64::MAX, Ordering::AcqRel))
    }

    /// Waits for a deadline that is earlier than all known ones.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// What this server has itself seen of workers' renewals (I8), and the leases it granted.
#[derive(Debug, Default)]
pub(crate) struct LeaseWatch {
    watch: Mutex<Watch>,
    granted: Mutex<HashMap<WorkerId, Span>>,
    changed: Notify,
}

impl LeaseWatch {
    pub(crate) fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn grants(&self) -> MutexGuard<'_, HashMap<WorkerId, Span>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the lease that a worker was granted when it attached.
    pub(crate) fn grant(&self, worker: WorkerId, lease: Span) {
        self.grants().insert(worker, lease);
    }

    fn granted(&self, worker: WorkerId) -> Option<Span> {
        self.grants().get(&worker).copied()
    }

    /// Forgets a worker that is no longer live.
    pub(crate) fn forget(&self, worker: WorkerId) {
        self.watch().forget(worker);
        self.grants().remove(&worker);
    }

    /// Notes that the other side closed a connection over which a worker's heartbeats came.
    pub(crate) fn beats_closed(&self, worker: WorkerId, connection: u64, now: BootTime) {
        let mut watch = self.watch();
        watch.beats_closed(worker, connection, now);
        // Its session may have ended just before.
        let is_dropped = watch.is_dropped(worker);
        drop(watch);
        if is_dropped {
            self.notify();
        }
    }

    /// Wakes the lease monitor: a lease may end earlier than it expects.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Waits until a lease may end earlier than expected.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The store's time at a boot time, from the latest batch.
#[derive(Debug, Default)]
struct StoreClock(Mutex<Option<(Timestamp, BootTime)>>);

impl StoreClock {
    fn set(&self, at: Timestamp, now: BootTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, now));
    }

    fn estimate(&self, now: BootTime) -> Option<Timestamp> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.map(|(at, boot)| at.after(now.since(boot)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The sweeper once kept waking itself by putting back what it had taken.
    #[tokio::test(start_paused = true)]
    async fn sweeper_is_woken_by_an_earlier_deadline_and_not_by_its_own() {
        let next_due = NextDue::default();
        let moment = Duration::from_millis(1);
        next_due.add(Timestamp(500));
        assert!(tokio::time::timeout(moment, next_due.changed()).await.is_ok());
        let due = next_due.take();
        next_due.put_back(due);
        assert!(tokio::time::timeout(moment, next_due.changed()).await.is_err());
        next_due.add(Timestamp(400));
        assert!(tokio::time::timeout(moment, next_due.changed()).await.is_ok());
    }
}
