use std::collections::BTreeMap;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::Rules;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::{
    Attach, ClassKey, First, NewJob, Origin, Payload, Registration, Route, WorkerRole,
};
use outlast_store::event::EventQuery;
use outlast_store::model::ModelStore;
use outlast_store::once::Once;
use outlast_store::store::ManualClock;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::output::{Output, SessionOutput};
use crate::engine::profile::Profile;
use crate::engine::sessions::Session;

/// Every second job once waited for the monitor's next look.
#[tokio::test]
async fn job_is_pushed_to_a_waiting_worker_without_any_other_input() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let engine = Engine::start(Arc::new(store), settings);
    let worker = WorkerId(Uuid::from_u128(1));
    let mut outputs = attach_sdk_worker(&engine, worker, 10).await;
    for n in 1..=5 {
        engine.submit(Command::Enqueue(Box::new(noop_job(n)))).await.unwrap();
        let sent = tokio::time::timeout(Duration::from_secs(5), outputs.recv()).await;
        let sent = sent.expect("the job should be pushed at once").unwrap();
        assert!(matches!(sent.output, Output::Deliveries(_)), "{sent:?}");
    }
}

/// Enqueue and claim were once two commits, and an idle system twice as slow.
#[tokio::test]
async fn job_is_claimed_for_a_free_worker_in_the_batch_that_stores_it() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let engine = Engine::start(Arc::new(store), settings);
    let mut outputs = attach_sdk_worker(&engine, WorkerId(Uuid::from_u128(1)), 10).await;
    // The first of its class makes the class known.
    let once = Once { key: [1; 32], request: [1; 32], keep: Span(1_000), jobs: vec![noop_job(3)] };
    for command in [
        Command::Enqueue(Box::new(noop_job(1))),
        Command::Enqueue(Box::new(noop_job(2))),
        Command::EnqueueOnce(Box::new(once)),
    ] {
        engine.submit(command).await.unwrap();
        let sent = tokio::time::timeout(Duration::from_secs(5), outputs.recv()).await;
        assert!(matches!(sent, Ok(Some(_))));
    }
    for job in [2, 3] {
        let query = EventQuery {
            after: None,
            names: Vec::new(),
            queues: Vec::new(),
            job: Some(JobId(Uuid::from_u128(job))),
            worker: None,
            limit: 10,
        };
        let page = engine.store().events(query).await.unwrap();
        let batches: Vec<_> =
            page.events.iter().map(|(cursor, _)| cursor.rsplit_once('.').unwrap().0).collect();
        assert_eq!(batches.len(), 2, "enqueued and claimed: {page:?}");
        assert_eq!(batches[0], batches[1]);
    }
}

pub(crate) async fn attach_sdk_worker(
    engine: &Engine,
    worker: WorkerId,
    slots: u32,
) -> mpsc::UnboundedReceiver<SessionOutput> {
    let lease = Span::from_secs(15);
    let profile = register_sdk_worker(engine, (worker, slots), lease).await;
    engine.submit(Command::Attach(Attach { worker, attachment: 1, lease })).await.unwrap();
    let (outputs, received) = mpsc::unbounded_channel();
    let closer = CancellationToken::new().drop_guard();
    let session = Session::new((worker, 1), ("w", Arc::new(profile)), outputs, closer);
    engine.send(Input::Attached(Box::new(session))).await.unwrap();
    let capacity = Input::Capacity { worker, session: 1, slots, prefetch: 0 };
    engine.send(capacity).await.unwrap();
    received
}

pub(crate) async fn register_sdk_worker(
    engine: &Engine,
    (worker, slots): (WorkerId, u32),
    lease: Span,
) -> Profile {
    let profile = Profile {
        role: WorkerRole::Sdk,
        queues: vec!["default".into()],
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        types: ["noop".to_owned()].into(),
    };
    let registration = Registration {
        id: worker,
        name: "w".into(),
        role: profile.role,
        concurrency: slots,
        queues: profile.queues.clone(),
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        lease,
        about: r#"{"types":["noop"]}"#.into(),
        plain_id: None,
    };
    engine.submit(Command::Register(Box::new(registration))).await.unwrap();
    profile
}

pub(crate) fn noop_job(n: u128) -> NewJob {
    NewJob {
        id: JobId(Uuid::from_u128(n)),
        class: ClassKey {
            queue: "default".into(),
            job_type: "noop".into(),
            route: Route::Plain,
            tenant: None,
            isolated: false,
        },
        priority: 0,
        payload: Payload { args: "[]".into(), ..Payload::default() },
        rules: Rules::standard(),
        first: First::Now,
        timeout: None,
        visibility: None,
        scheduled_timeout: ScheduledTimeout::Never,
        origin: Origin::Ojs,
        by: String::new(),
    }
}
