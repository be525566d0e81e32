//! The store's clock never runs backwards.

use std::sync::Arc;

use outlast_core::id::{Epoch, WorkerId};
use outlast_core::time::Timestamp;
use outlast_store::command::{LeadershipFence, LeadershipRequest, Prune, RETENTION, Renew};
use outlast_store::store::ManualClock;
use outlast_store::{Clock as _, Command, Store as _};
use outlast_store_sqlite::{BootClock, Options, SqliteStore};
use uuid::Uuid;

use crate::hand::{LEASE, arrival, batch};

#[test]
fn clock_starts_at_the_later_of_persisted_and_wall() {
    for (persisted, wall, least) in [(5_000, 1_000, 5_000), (1_000, 5_000, 5_000)] {
        let now = BootClock::starting_at(Timestamp(persisted), Timestamp(wall)).now();
        assert!(now >= Timestamp(least) && now < Timestamp(least + 60_000), "{now:?}");
    }
}

#[test]
fn clock_does_not_run_backwards() {
    let clock = BootClock::starting_at(Timestamp(0), Timestamp(0));
    let mut latest = clock.now();
    for _ in 0..10_000 {
        let now = clock.now();
        assert!(now >= latest);
        latest = now;
    }
}

/// Applies batches in the year 2100 and opens the store again by the real wall clock, which
/// is then far behind. Returns what the store's clock shows, and when the last batch was.
fn reopened_after(batches: Vec<Vec<Command>>) -> (Timestamp, Timestamp) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let year_2100 = ManualClock::at(Timestamp(4_102_444_800_000));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options { clock: Some(Arc::new(year_2100.clone())), ..Options::default() };
        let store = SqliteStore::open(&path, &options).unwrap();
        for (commands, n) in batches.into_iter().zip(0_u64..) {
            year_2100.advance(60_000);
            store.apply(batch(n, commands).into()).await.unwrap();
        }
        store.close().await.unwrap();
        let store = SqliteStore::open(&path, &Options::default()).unwrap();
        (store.now().await.unwrap(), year_2100.now())
    })
}

#[test]
fn reopened_store_goes_on_where_it_was_though_the_wall_clock_is_behind() {
    let worker = WorkerId(Uuid::from_u128(7));
    let (now, latest) = reopened_after(vec![arrival(worker)]);
    assert!(now >= latest, "{now:?} is before {latest:?}");
}

/// Heartbeats and retention log no event, and retention deletes those that there are.
#[test]
fn quiet_batches_hold_the_clock_too() {
    let worker = WorkerId(Uuid::from_u128(7));
    let renew = Command::Renew(Renew { worker, lease: LEASE, in_flight: 0 });
    let (now, latest) = reopened_after(vec![arrival(worker), vec![renew]]);
    assert!(now >= latest, "{now:?} is before {latest:?}");

    let everything = Timestamp(i64::MAX);
    let (name, holder, hold) = (RETENTION.to_owned(), Uuid::from_u128(8), Some(LEASE));
    let leadership = LeadershipFence { name: name.clone(), holder, epoch: Epoch(1) };
    let (finished_before, workers_before) = (everything, everything);
    let prune = Prune { leadership, finished_before, workers_before, limit: 100, from_start: true };
    let quiet =
        vec![Command::Leadership(LeadershipRequest { name, holder, hold }), Command::Prune(prune)];
    let (now, latest) = reopened_after(vec![arrival(worker), quiet]);
    assert!(now >= latest, "{now:?} is before {latest:?}");
}
