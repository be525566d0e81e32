use std::sync::mpsc::channel;
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_store::Store as _;
use uuid::Uuid;

use crate::connection::Options;
use crate::read::ASKED;
use crate::sqlite_store::SqliteStore;

/// Four slow lists once stopped timers, lapses and claims for as long as they took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn monitors_read_on_while_every_reader_of_lists_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { unsafe_no_fsync: true, clock: None };
    let store = SqliteStore::open(&folder.path().join("jobs.db"), &options).unwrap();
    let (started, slow) = channel();
    let mut gates = Vec::new();
    for _ in 0..ASKED {
        let (gate, wait) = channel::<()>();
        let (store, started) = (store.clone(), started.clone());
        gates.push((
            gate,
            tokio::spawn(async move {
                let list = move |_: &rusqlite::Connection| {
                    started.send(()).unwrap();
                    Ok(wait.recv().is_err())
                };
                store.inner.readers.run(list).await
            }),
        ));
    }
    for _ in 0..ASKED {
        slow.recv().unwrap();
    }
    let unknown = WorkerId(Uuid::nil());
    let looks = async {
        store.next_due().await.unwrap();
        store.live_workers().await.unwrap();
        store.fleet().await.unwrap();
        store.claimable(1).await.unwrap();
        store.in_flight_of(unknown).await.unwrap();
        store.backlog().await.unwrap();
        store.tally().await.unwrap();
        store.pauses().await.unwrap();
    };
    // Far longer than it takes: before, it was the slowest list.
    tokio::time::timeout(Duration::from_secs(60), looks).await.unwrap();
    for (gate, list) in gates {
        drop(gate);
        assert!(list.await.unwrap().unwrap());
    }
}
