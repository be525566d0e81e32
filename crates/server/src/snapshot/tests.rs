use std::sync::Arc;

use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::{Command, SetQueue};
use outlast_store::store::{ManualClock, Store as _};
use outlast_store_testkit::job::plain_job;
use outlast_store_testkit::model::ModelStore;

use super::*;
use crate::settings::Settings;

fn start() -> (ModelStore, Engine) {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(5_000))));
    (store.clone(), Engine::start(Arc::new(store), settings))
}

async fn enqueue(engine: &Engine, n: u128) {
    let job = plain_job(outlast_core::id::JobId(uuid::Uuid::from_u128(n)));
    engine.submit(Command::Enqueue(Box::new(job))).await.unwrap();
}

const fn at(millis: u64) -> BootTime {
    BootTime(1_000_000 + millis)
}

#[tokio::test]
async fn all_who_look_within_a_second_share_one_read_and_without_one_there_is_none() {
    let (store, engine) = start();
    let mut latest = Latest::None;
    enqueue(&engine, 1).await;
    assert_eq!(store.lists_of_queues(), 0);
    let first = Snapshots::at(at(0), at(0), &mut latest, &engine).await.unwrap();
    enqueue(&engine, 2).await;
    for later in [1, 500, 999] {
        let shared = Snapshots::at(at(later), at(later), &mut latest, &engine).await.unwrap();
        assert!(Arc::ptr_eq(&first, &shared), "{later} ms later");
    }
    assert_eq!((store.lists_of_queues(), first.totals.available), (1, 1));
    let next = Snapshots::at(at(1_000), at(1_000), &mut latest, &engine).await.unwrap();
    assert_eq!((store.lists_of_queues(), next.totals.available), (2, 2));
    assert_eq!(next.queues, store.queues().await.unwrap());
    // The store's time as the server knows it, which goes on since the last answer.
    assert!(next.counted_at.since(Timestamp(5_000)) < Span::from_secs(60), "{:?}", next.counted_at);
}

/// While a slow store is read, other requests wait for that read and make none of their own.
#[tokio::test]
async fn who_had_to_wait_takes_what_was_read_meanwhile() {
    let (store, engine) = start();
    let mut latest = Latest::None;
    let first = Snapshots::at(at(0), at(500), &mut latest, &engine).await.unwrap();
    let shared = Snapshots::at(at(700), at(5_000), &mut latest, &engine).await.unwrap();
    assert!(Arc::ptr_eq(&first, &shared));
    assert_eq!(store.lists_of_queues(), 1);
}

#[tokio::test]
async fn store_that_does_not_answer_is_not_asked_for_each_who_looks() {
    let (store, engine) = start();
    let mut latest = Latest::None;
    store.close().await.unwrap();
    for later in [0, 999] {
        Snapshots::at(at(later), at(later), &mut latest, &engine).await.unwrap_err();
    }
    assert!(matches!(latest, Latest::Failed(since, _) if since == at(0)), "{latest:?}");
    Snapshots::at(at(1_000), at(1_000), &mut latest, &engine).await.unwrap_err();
    assert!(matches!(latest, Latest::Failed(since, _) if since == at(1_000)), "{latest:?}");
}

#[tokio::test]
async fn setting_that_was_changed_here_is_seen_at_once() {
    let (_, engine) = start();
    let snapshots = Snapshots::default();
    assert!(snapshots.latest(&engine).await.unwrap().settings.is_empty());
    let change = outlast_core::queue::QueueChange {
        max_depth: outlast_core::queue::Change::Set(7),
        ..Default::default()
    };
    let order = SetQueue { queue: "mail".into(), change, by: "test".into() };
    engine.submit(order).await.unwrap().unwrap();
    snapshots.forget().await;
    assert!(snapshots.latest(&engine).await.unwrap().settings.contains_key("mail"));
}

#[tokio::test]
async fn jobs_that_no_worker_can_run_have_their_type() {
    let (_, engine) = start();
    enqueue(&engine, 1).await;
    enqueue(&engine, 2).await;
    let mut latest = Latest::None;
    let snapshot = Snapshots::at(at(0), at(0), &mut latest, &engine).await.unwrap();
    let [group] = snapshot.waiting.groups.as_slice() else { panic!("{:?}", snapshot.waiting) };
    assert_eq!((group.reason, group.jobs, &*group.queue), (Reason::NoWorker, 2, "default"));
    assert!(group.job_type.is_some());
    assert_eq!(snapshot.waiting.others, 0);
}
