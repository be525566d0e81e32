use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::{JobAction, JobOrder};
use outlast_store::store::ManualClock;
use outlast_store::{Reply, StoreError};
use outlast_store_testkit::model::ModelStore;
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
        let action = JobAction::Cancel;
        let order = JobOrder { job, action, tenant: None, by: "test".into(), expected: None };
        matches!(self.engine.submit(order).await, Ok(Ok(_)))
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

fn model() -> ModelStore {
    ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))))
}

fn engine(store: ModelStore) -> Engine {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    Engine::start(Arc::new(store), settings)
}

/// One slow statement was once an outage: it failed its whole batch and closed every session.
#[tokio::test]
async fn command_that_takes_too_long_is_refused_alone() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let is_slow = |command: &Command| matches!(command, Command::Enqueue(it) if it.id == job(7));
    let store = model().failing(move |batch| {
        let slow = batch.commands.iter().any(is_slow);
        slow.then(|| {
            AtomicUsize::fetch_add(&count, 1, Ordering::Relaxed);
            StoreError::Slow("a statement".into())
        })
    });
    let engine = engine(store);
    let mut outputs = attach_sdk_worker(&engine, WorkerId(Uuid::from_u128(1)), 0).await;
    let all = (1..=300).map(|n| engine.submit(Command::Enqueue(Box::new(noop_job(n)))));
    let stored = join_all(all).await;
    let refused: Vec<usize> = (1..=300).filter(|n| stored[n - 1].is_err()).collect();
    assert_eq!(refused, [7]);
    let tries = tries.load(Ordering::Relaxed);
    assert!(tries <= 4, "{tries} tries");
    assert!(outputs.try_recv().is_err(), "the session was closed");
    assert!(engine.health().ready, "{:?}", engine.health());
}

/// A report that is thrown away is not repeated.
#[tokio::test]
async fn report_that_takes_too_long_is_tried_again() {
    use outlast_store::command::{EndDetail, Finish, ReportedOutcome};

    use crate::engine::input::{Input, SessionReport};
    use crate::engine::output::Output;
    use crate::session::convert::native_fence;

    let slow = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&slow);
    let store = model().failing(move |batch| {
        let reports = batch.commands.iter().any(|it| matches!(it, Command::Finish(_)));
        let slow = reports && AtomicUsize::fetch_add(&count, 1, Ordering::Relaxed) < 3;
        slow.then(|| StoreError::Slow("a statement".into()))
    });
    let engine = engine(store);
    let worker = WorkerId(Uuid::from_u128(1));
    let mut outputs = attach_sdk_worker(&engine, worker, 1).await;
    engine.submit(Command::Enqueue(Box::new(noop_job(1)))).await.unwrap();
    let sent = outputs.recv().await.unwrap();
    let Output::Deliveries(claimed) = sent.output else { panic!("{sent:?}") };
    let (job, epoch) = (claimed[0].job.id, claimed[0].epoch);
    let finish = Finish {
        job,
        fence: native_fence(worker, epoch),
        reported: ReportedOutcome::Completed,
        detail: EndDetail::default(),
        by: "test".into(),
    };
    let command = Command::Finish(Box::new(finish));
    let reports = vec![SessionReport { job, epoch, command, finished: true }];
    engine.send(Input::Reports { worker, session: 1, reports }).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), outputs.recv()).await;
    let answer = answer.expect("an answer").unwrap().output;
    assert!(matches!(answer, Output::Answers(_)), "{answer:?}");
}

/// If nothing goes through, no command is to blame.
#[tokio::test]
async fn store_that_is_slow_with_everything_is_given_up_after_a_few_tries() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let store = model().failing(move |batch| {
        (!batch.commands.is_empty()).then(|| {
            AtomicUsize::fetch_add(&count, 1, Ordering::Relaxed);
            StoreError::Slow("a statement".into())
        })
    });
    let engine = engine(store);
    let all = (1..=64).map(|n| {
        let mut job = noop_job(n);
        job.class.job_type = format!("type-{n}");
        engine.submit(Command::Enqueue(Box::new(job)))
    });
    assert!(join_all(all).await.iter().all(Result::is_err));
    let tries = tries.load(Ordering::Relaxed);
    assert!(tries <= 1 + super::super::SLOW_MAX, "{tries} tries");
}
