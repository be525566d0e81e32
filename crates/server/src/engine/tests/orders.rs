//! Orders to workers that attach, or whose server has missed signals.

use outlast_core::evidence::Evidence;
use outlast_core::worker::order::WorkerOrder;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;

type Outputs = UnboundedReceiver<SessionOutput>;

fn engine() -> (Engine, ModelStore) {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    (Engine::start(Arc::new(store.clone()), settings), store)
}

async fn next_order(outputs: &mut Outputs) -> WorkerOrder {
    let found = async {
        loop {
            let Some(sent) = outputs.recv().await else { panic!("session was closed") };
            let Output::Orders(orders) = sent.output else { continue };
            for order in orders {
                if let SessionOrder::Phase { order, .. } = order {
                    return order;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found).await.unwrap()
}

fn is_ordered(outputs: &mut Outputs) -> bool {
    std::iter::from_fn(|| outputs.try_recv().ok())
        .any(|sent| matches!(sent.output, Output::Orders(_)))
}

/// A worker that was unhealthy while the signals of others were lost was once ordered to be quiet, and
/// took no job after it had recovered.
#[tokio::test]
async fn worker_that_is_quiet_by_itself_is_not_ordered_to_be_by_a_read_of_missed_signals() {
    let (engine, store) = engine();
    let [itself, ordered] = [1, 2].map(|n| WorkerId(Uuid::from_u128(n)));
    let mut of_itself = attach_sdk_worker(&engine, itself, 1).await;
    let mut of_ordered = attach_sdk_worker(&engine, ordered, 1).await;
    let unhealthy = WorkerMove {
        worker: itself,
        event: WorkerEvent::Quiet,
        ordered: None,
        session: Some(1),
        by: "worker".into(),
        evidence: Evidence::default(),
    };
    engine.submit(unhealthy).await.unwrap().unwrap();
    engine.send(Input::Running { worker: itself, session: 1, running: false }).await.unwrap();
    let order = WorkerMove::ordered(ordered, WorkerOrder::Quiet, "tom");
    store.apply_now(&from_elsewhere(vec![Command::Worker(order)])).unwrap();
    engine.send(Input::Heard(Heard::Missed)).await.unwrap();
    assert_eq!(next_order(&mut of_ordered).await, WorkerOrder::Quiet);
    assert!(!is_ordered(&mut of_itself));
}

/// The session attached with what was stored before, and the order was lost for good.
#[tokio::test]
async fn order_that_is_given_while_a_worker_attaches_reaches_it() {
    let (engine, _store) = engine();
    let worker = WorkerId(Uuid::from_u128(1));
    for (order, by) in [(WorkerOrder::Quiet, "tom"), (WorkerOrder::Resume, "eve")] {
        engine.send(Input::Order { worker, order, by: by.into() }).await.unwrap();
    }
    let mut outputs = attach_sdk_worker(&engine, worker, 1).await;
    assert_eq!(next_order(&mut outputs).await, WorkerOrder::Resume);
}
