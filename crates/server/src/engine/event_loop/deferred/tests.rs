use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::JobOrder;
use outlast_store::model::ModelStore;
use outlast_store::store::ManualClock;
use outlast_store::{Reply, StoreError};
use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use crate::engine::Engine;
use crate::engine::tests::{attach_sdk_worker, noop_job};
use crate::settings::Settings;

/// What a try costs that finds a row locked.
const LOCK_LIMIT: Duration = Duration::from_millis(20);

/// A server of which another session has locked the rows of some jobs.
struct Scene {
    engine: Engine,
    locked: Arc<Mutex<HashSet<JobId>>>,
    failed: Arc<AtomicUsize>,
}

impl Scene {
    fn start() -> Self {
        let (locked, failed) = (Arc::<Mutex<HashSet<JobId>>>::default(), Arc::default());
        let (rows, tries) = (Arc::clone(&locked), Arc::clone(&failed));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let store = store.failing(move |batch| {
            let rows = rows.lock().unwrap();
            let is_locked = |command: &Command| match subject_of(command) {
                Some(Subject::Job(job)) => rows.contains(&job),
                Some(Subject::Worker(_)) | None => false,
            };
            if !batch.commands.iter().any(is_locked) {
                return None;
            }
            AtomicUsize::fetch_add(&tries, 1, Ordering::Relaxed);
            #[expect(clippy::disallowed_methods, reason = "a store waits that long for a lock")]
            std::thread::sleep(LOCK_LIMIT);
            Some(StoreError::Locked("a row".into()))
        });
        let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
        Self { engine: Engine::start(Arc::new(store), settings), locked, failed }
    }

    async fn cancel(&self, job: JobId) -> bool {
        let order = JobOrder { job, tenant: None, by: "test".into(), expected: None };
        matches!(self.engine.submit(Command::Cancel(order)).await, Ok(Reply::Moved(Ok(_))))
    }

    async fn cancel_all(&self, jobs: impl Iterator<Item = JobId>) -> Vec<bool> {
        join_all(jobs.map(|job| self.cancel(job))).await
    }

    async fn enqueue(&self, jobs: std::ops::RangeInclusive<u128>) {
        let stored = self.engine.submit(Command::EnqueueAll(jobs.map(noop_job).collect())).await;
        assert!(matches!(stored, Ok(Reply::EnqueuedAll(Ok(_)))), "{stored:?}");
    }
}

fn job(n: u128) -> JobId {
    JobId(Uuid::from_u128(n))
}

/// With more than eight locked rows everything else in the batch was deferred, the same eight were
/// retried again and again, and unrelated callers were told that their rows were locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locked_rows_cost_nobody_else_an_answer() {
    let scene = Scene::start();
    let _stream = attach_sdk_worker(&scene.engine, WorkerId(Uuid::from_u128(1)), 100).await;
    scene.enqueue(1..=100).await;
    scene.locked.lock().unwrap().extend((1..=60).map(job));
    let locked = scene.cancel_all((1..=60).map(job));
    let others = async {
        let began = Instant::now();
        let cancelled = scene.cancel_all((61..=100).map(job)).await;
        assert!(cancelled.iter().all(|done| *done), "{cancelled:?}");
        for n in 101..=300 {
            scene.enqueue(n..=n).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        began.elapsed()
    };
    let (locked, took) = tokio::join!(locked, others);
    assert!(locked.iter().all(|done| !done), "{locked:?}");
    // Alone, the enqueues take four seconds.
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_whose_rows_stay_locked_are_retried_less_and_less_often() {
    let scene = Scene::start();
    scene.enqueue(1..=1).await;
    scene.locked.lock().unwrap().insert(job(1));
    assert!(!scene.cancel(job(1)).await);
    let failed = scene.failed.load(Ordering::Relaxed);
    assert!((2..=8).contains(&failed), "{failed} tries in three seconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_for_locked_rows_is_done_when_they_are_released() {
    let scene = Scene::start();
    scene.enqueue(1..=60).await;
    scene.locked.lock().unwrap().extend((1..=60).map(job));
    let release = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        scene.locked.lock().unwrap().clear();
    };
    let (done, ()) = tokio::join!(scene.cancel_all((1..=60).map(job)), release);
    assert!(done.iter().all(|done| *done), "{done:?}");
}
