//! Plain workers that fall silent together.

use std::num::NonZeroU32;

use outlast_cluster::Database;
use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_store::command::{AskedByQueues, Claim, ClaimFrom, Claimant, WorkerRole};
use outlast_store::reply::WorkerMoved;
use outlast_store::{Command, Reply};

use crate::hand::{Server, check_places, lapse, new_id, registration, run, sql};

/// Registers a plain worker that takes a job.
async fn holder(server: &Server, n: u32) -> WorkerId {
    let (worker, name) = (WorkerId(new_id()), format!("plain-{n}"));
    let mut registration = registration(worker, Span(1));
    (registration.role, registration.plain_id) = (WorkerRole::Ojs, Some(name.clone()));
    server.one(Command::Register(Box::new(registration))).await;
    let claim = Claim {
        claimant: Claimant::Plain { worker: Some(name), visibility: Span(60_000) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    match server.one(Command::Claim(claim)).await {
        Reply::Claimed(Ok(claimed)) => assert_eq!(claimed.jobs.len(), 1),
        other => panic!("{other:?}"),
    }
    worker
}

/// Gives workers up in one batch; returns how often it waited for PostgreSQL, and what each lost.
async fn give_up(server: &Server, workers: &[WorkerId]) -> (u64, Vec<usize>) {
    let before = server.store.round_trips().await;
    let lapses = workers.iter().map(|worker| lapse(*worker, 1)).collect();
    let lost = |reply| match reply {
        Reply::WorkerMoved(Ok(WorkerMoved { moved, .. })) => moved.len(),
        other => panic!("not given up: {other:?}"),
    };
    let lost = server.apply(lapses).await.into_iter().map(lost).collect();
    (server.store.round_trips().await - before, lost)
}

/// Each took two round trips of its own: ten thousand took a minute.
#[test]
fn plain_workers_that_fall_silent_together_take_as_many_round_trips_as_few() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        server.add(40).await;
        let mut workers = Vec::new();
        for n in 0..40 {
            workers.push(holder(&server, n).await);
        }
        let (few, many) = workers.split_at(5);
        let (for_few, lost) = give_up(&server, few).await;
        assert_eq!(lost, [1; 5]);
        let (for_many, lost) = give_up(&server, many).await;
        assert_eq!((for_many, lost), (for_few, vec![1; 35]));
        check_places(&sql(&database.url).await).await;
    });
}
