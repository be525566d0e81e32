use std::sync::Mutex;

use futures_util::future::join_all;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::Renew;
use outlast_store::model::ModelStore;
use outlast_store::store::ManualClock;

use super::*;
use crate::engine::Engine;
use crate::engine::tests::noop_job;
use crate::settings::Settings;

fn model() -> ModelStore {
    ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))))
}

fn settings() -> Settings {
    Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()))
}

fn renew(worker: WorkerId) -> Command {
    Command::Renew(Renew { worker, lease: Span(400), in_flight: 0 })
}

fn worker(n: u128) -> WorkerId {
    WorkerId(Uuid::from_u128(n))
}

/// A store whose first large batch cannot be applied as one, and which then goes away; how many
/// batches were tried after that.
fn going_away() -> (ModelStore, Arc<Mutex<Option<u32>>>) {
    let tried = Arc::new(Mutex::new(None));
    let count = Arc::clone(&tried);
    let store = model().failing(move |batch| {
        let mut count = count.lock().unwrap();
        match &mut *count {
            None if batch.commands.len() < 8 => None,
            None => {
                *count = Some(0);
                Some(StoreError::Rejected("one of them".into()))
            }
            Some(count) => {
                *count += 1;
                Some(StoreError::Unavailable("gone".into()))
            }
        }
    });
    (store, tried)
}

/// Each part of a batch once waited for the store in its turn.
#[tokio::test]
async fn a_store_that_goes_away_while_a_batch_is_split_fails_all_of_it_at_once() {
    let (store, tried) = going_away();
    let engine = Engine::start(Arc::new(store), settings());
    let beats = join_all((1..=32).map(|n| engine.beat(renew(worker(n))))).await;
    assert!(beats.iter().all(Result::is_err), "{beats:?}");
    assert_eq!(*tried.lock().unwrap(), Some(1));

    let (store, tried) = going_away();
    let engine = Engine::start(Arc::new(store), settings());
    let jobs = (1..=32).map(|n| engine.submit(Command::Enqueue(Box::new(noop_job(n)))));
    let jobs = join_all(jobs).await;
    assert!(jobs.iter().all(Result::is_err), "{jobs:?}");
    assert_eq!(*tried.lock().unwrap(), Some(1));
}

/// With more than eight locked rows the heartbeats of all other workers were refused with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_of_many_workers_with_locked_rows_cost_no_other_its_own() {
    let needs_row = |command: &Command| match command {
        Command::Renew(renew) => renew.worker.0.as_u128() <= 30,
        _ => false,
    };
    let store = model().failing(move |batch| {
        let is_locked = batch.commands.iter().any(needs_row);
        is_locked.then(|| StoreError::Locked("a row".into()))
    });
    let engine = Engine::start(Arc::new(store), settings());
    for _ in 0..2 {
        let beats = join_all((1..=60).map(|n| engine.beat(renew(worker(n))))).await;
        let stored: Vec<bool> = beats.iter().map(Result::is_ok).collect();
        assert_eq!(stored, [[false; 30], [true; 30]].concat());
    }
}
