//! A waiting fetch finds jobs even if its server got no signal: signals between servers are hints.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::JobId;
use outlast_core::time::{Span, Timestamp};
use outlast_packs::PackSet;
use outlast_server::{Engine, Reserved, Server, Settings};
use outlast_store::command::{AskedByQueues, Claim, ClaimFrom, Claimant};
use outlast_store::store::ManualClock;
use outlast_store::{Command, Reply};
use outlast_store_testkit::job::plain_job;
use outlast_store_testkit::model::ModelStore;
use uuid::Uuid;

/// Longer than any test waits: who is woken comes back long before.
const WAIT: Span = Span::from_secs(600);

/// Starts a server. No store of maps tells one server what another does.
async fn server(store: &ModelStore) -> Engine {
    let settings = Settings::with_packs(Arc::new(PackSet::default()));
    let address = "127.0.0.1:0".parse().expect("an address");
    let reserved = Reserved::new(address).expect("a free port");
    let server = Server::bind(Arc::new(store.clone()), settings, reserved).await.expect("a server");
    let engine = server.engine();
    tokio::spawn(server.run(std::future::pending()));
    engine
}

async fn enqueue(engine: &Engine) -> JobId {
    let job = plain_job(JobId(Uuid::now_v7()));
    let id = job.id;
    match engine.submit(Command::Enqueue(Box::new(job))).await.expect("an answer") {
        Reply::Enqueued(Ok(_)) => id,
        other => panic!("{other:?}"),
    }
}

async fn fetch(engine: &Engine) -> Vec<JobId> {
    let claim = Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(30) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    let fetching = engine.claim_plain(claim, Some(WAIT));
    let claimed = tokio::time::timeout(Duration::from_secs(60), fetching).await;
    claimed.expect("woken").expect("an answer").iter().map(|claimed| claimed.job.id).collect()
}

#[tokio::test]
async fn fetch_that_waits_finds_a_job_of_another_server_though_no_signal_came() {
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))));
    let (here, there) = (server(&store).await, server(&store).await);
    // The class is known here, and its jobs were once counted.
    let first = enqueue(&here).await;
    assert_eq!(fetch(&here).await, [first]);
    for _ in 0..2 {
        let (fetched, job) = tokio::join!(fetch(&here), async {
            // The fetch looks first, and then waits.
            tokio::task::yield_now().await;
            enqueue(&there).await
        });
        assert_eq!(fetched, [job]);
    }
}
