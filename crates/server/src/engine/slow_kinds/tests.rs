use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use outlast_core::id::JobId;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::{JobAction, JobOrder};
use outlast_store::store::ManualClock;
use outlast_store::{Batch, StoreError};
use outlast_store_testkit::model::ModelStore;
use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use crate::engine::Engine;
use crate::engine::batcher::{Op, ReplyTo};
use crate::engine::tests::noop_job;
use crate::settings::Settings;

/// How long a slow statement takes.
const SLOW: Duration = Duration::from_millis(40);
/// Slow producers at once.
const PRODUCERS: u128 = 12;

/// A server whose store is slow with some batches, and how many of these there were.
fn engine(
    is_slow: impl Fn(&Command) -> bool + Send + Sync + 'static,
) -> (Engine, Arc<AtomicUsize>) {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let store = store.failing(move |batch: &Batch| {
        if !batch.commands.iter().any(&is_slow) {
            return None;
        }
        AtomicUsize::fetch_add(&count, 1, Ordering::Relaxed);
        #[expect(clippy::disallowed_methods, reason = "a statement takes that long")]
        std::thread::sleep(SLOW);
        Some(StoreError::Slow("a statement".into()))
    });
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    (Engine::start(Arc::new(store), settings), tries)
}

fn slow_job(n: u128) -> NewJob {
    let mut job = noop_job(n);
    job.class.queue = "slow".into();
    job.payload.args = r#"["slow"]"#.into();
    job
}

fn stores_slow(command: &Command) -> bool {
    command.new_jobs().iter().any(|job| job.payload.args.contains("slow"))
}

fn cancel(n: u128) -> Command {
    let job = JobId(Uuid::from_u128(n));
    let action = JobAction::Cancel;
    Command::Order(JobOrder { job, action, tenant: None, by: "test".into(), expected: None })
}

/// Has a dozen callers repeat slow commands, and checks that others are carried out meanwhile.
async fn check(engine: &Engine, tries: &AtomicUsize, slow: impl Fn(u128) -> Command) {
    const OTHERS: u128 = 100;
    let began = Instant::now();
    let end = began + Duration::from_secs(4);
    let retrying = join_all((0..PRODUCERS).map(|n| {
        let slow = &slow;
        async move {
            while Instant::now() < end {
                let asked = Instant::now();
                assert!(engine.submit(slow(n)).await.is_err(), "{n}");
                assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
            }
        }
    }));
    let others = async {
        for n in 0..OTHERS {
            let stored = engine.submit(Command::Enqueue(Box::new(noop_job(1_000 + n)))).await;
            assert!(stored.is_ok(), "{stored:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        began.elapsed()
    };
    let (_, took) = tokio::join!(retrying, others);
    assert!(took < Duration::from_secs(4), "{took:?}");
    // Alone they would be as many as fit: five times as many as their part of the time.
    let most = Duration::from_secs(4).as_millis() / SLOW.as_millis();
    let tries = u128::try_from(tries.load(Ordering::Relaxed)).unwrap();
    assert!((2..most / 2).contains(&tries), "{tries} tries, {most} would fit");
}

/// Each of them took its time alone, one after another, and all others waited for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_enqueues_of_a_kind_leave_most_of_the_time_to_others() {
    let (engine, tries) = engine(stores_slow);
    check(&engine, &tries, |n| Command::Enqueue(Box::new(slow_job(n)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_requests_with_several_jobs_leave_most_of_the_time_to_others() {
    let (engine, tries) = engine(stores_slow);
    check(&engine, &tries, |n| Command::EnqueueAll(vec![noop_job(100 + n), slow_job(n)])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_orders_about_jobs_leave_most_of_the_time_to_others() {
    let (engine, tries) = engine(|command| matches!(command, Command::Order(_)));
    check(&engine, &tries, cancel).await;
}

/// Other jobs of the kind are stored, also those that come with slow ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_known_kind_that_are_not_slow_are_stored() {
    let (engine, tries) = engine(stores_slow);
    assert!(engine.submit(Command::Enqueue(Box::new(slow_job(0)))).await.is_err());
    assert_eq!(tries.load(Ordering::Relaxed), 1);
    let jobs = (1..=600).map(|n| {
        let mut job = slow_job(n);
        if n != 300 {
            job.payload.args = "[]".into();
        }
        engine.submit(Command::Enqueue(Box::new(job)))
    });
    let stored = join_all(jobs).await;
    let refused: Vec<usize> = (1..=600).filter(|n| stored[n - 1].is_err()).collect();
    assert_eq!(refused, [300]);
    let tries = tries.load(Ordering::Relaxed);
    assert!(tries <= 12, "{tries} tries to find one of 256");
}

fn op(n: u128) -> Op {
    let (caller, _) = tokio::sync::oneshot::channel();
    let reply_to = ReplyTo::Caller(caller);
    Op { command: Command::Enqueue(Box::new(slow_job(n))), reply_to }
}

#[test]
fn kind_is_forgotten_when_none_of_it_has_been_slow_for_a_while() {
    let mut kinds = SlowKinds::default();
    let now = BootTime(1_000);
    kinds.failed_alone(&op(1), now);
    assert!(kinds.divert(vec![op(2)], now).is_empty());
    kinds.tidy(now.after(KNOWN_FOR));
    // The one that waited was refused, and the kind is not kept for it.
    assert_eq!((kinds.known.len(), kinds.weight), (0, 0));
    assert_eq!(kinds.divert(vec![op(2)], now).len(), 1);
}

#[test]
fn what_waits_for_a_try_is_bounded() {
    let mut kinds = SlowKinds::default();
    let now = BootTime(1_000);
    kinds.failed_alone(&op(0), now);
    let all = (0..WEIGHT_MAX as u128 * 2).map(op).collect();
    assert!(kinds.divert(all, now).is_empty(), "they wait or are refused");
    let waiting: usize = kinds.known.values().map(|known| known.waiting.len()).sum();
    assert_eq!((waiting, kinds.weight), (WEIGHT_MAX, WEIGHT_MAX));
    kinds.tidy(now.after(WAITS));
    assert_eq!((kinds.wait(), kinds.weight), (None, 0));
}
