use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::Renew;
use outlast_store::store::ManualClock;
use outlast_store_testkit::model::ModelStore;

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

/// A log in memory.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Each heartbeat of the worker was an error in the log.
#[tokio::test]
async fn a_locked_row_of_a_worker_is_logged_once_until_it_is_free() {
    let log = Kept::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let locked = Arc::new(AtomicBool::new(true));
    let is_locked = Arc::clone(&locked);
    let store = model().failing(move |batch| {
        let beats = batch.commands.iter().any(|command| matches!(command, Command::Renew(_)));
        let fails = beats && is_locked.load(Ordering::Relaxed);
        fails.then(|| StoreError::Locked("a row".into()))
    });
    let engine = Engine::start(Arc::new(store), settings());
    for (holds, times) in [(true, 4), (false, 2), (true, 3)] {
        locked.store(holds, Ordering::Relaxed);
        for _ in 0..times {
            assert_eq!(engine.beat(renew(worker(1))).await.is_err(), holds);
        }
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let count = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!((count("are not stored"), count("are stored again")), (2, 1), "{log}");
    assert_eq!(count("ERROR"), 0, "{log}");
}

/// Ten thousand plain workers once cost five commits a second.
#[tokio::test(start_paused = true)]
async fn heartbeats_of_many_plain_workers_share_two_commits_a_second() {
    const SECONDS: usize = 20;
    let commits = Arc::new(Mutex::new(0));
    let count = Arc::clone(&commits);
    let store = model().failing(move |_batch| {
        *count.lock().unwrap() += 1;
        None
    });
    let engine = Engine::start(Arc::new(store), settings());
    let lease = settings().ojs_lease;
    let beating = (1..=100).map(async |n| {
        let renew = Renew { worker: worker(n), lease, in_flight: 0 };
        tokio::time::sleep(millis(Span(50 * u64::try_from(n).unwrap()))).await;
        for _ in 0..SECONDS / 5 {
            engine.beat(Command::Renew(renew.clone())).await.unwrap();
            tokio::time::sleep(millis(Span::from_secs(5))).await;
        }
    });
    join_all(beating).await;
    let commits = *commits.lock().unwrap();
    assert!(commits <= 2 * (SECONDS + 10), "{commits} commits");
}

/// A heartbeat that waits long for company is of no use to a short lease.
#[test]
fn heartbeats_wait_for_others_for_a_small_part_of_the_shortest_lease() {
    let beat = |lease| {
        (Command::Renew(Renew { worker: worker(1), lease, in_flight: 0 }), oneshot::channel().0)
    };
    let of = |leases: &[u64]| apart(&leases.iter().map(|ms| beat(Span(*ms))).collect::<Vec<_>>());
    assert_eq!(of(&[30_000, 60_000]), APART);
    assert_eq!(of(&[30_000, 600]), Span(10));
}
