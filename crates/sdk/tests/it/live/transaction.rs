//! Jobs stored in transactions of programs: the example as a process, and what goes wrong.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use outlast_e2e::{Process, Scene, ServerOptions};
use outlast_sdk::postgres::{EnqueueError, enqueue, enqueue_all};
use outlast_sdk::{BoxError, Client, JobContext, JobId, JobState, NewJob, Worker, sql};
use serde::Deserialize;
use tokio_postgres::NoTls;

use super::with_options;

const PATIENCE: Duration = Duration::from_secs(30);

async fn connect(scene: &Scene) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(scene.server().database(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[derive(Deserialize)]
struct Confirmation {
    order: i64,
}

/// Runs the example; returns the jobs that it says it has placed and dropped.
#[expect(clippy::disallowed_methods, reason = "an example is seen from outside")]
fn example(scene: &Scene) -> (JobId, JobId) {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(Path::parent).unwrap().join("examples/transaction");
    assert!(built.is_file(), "cargo test -p outlast-sdk makes {}", built.display());
    let mut command = Command::new(built);
    command.arg(scene.server().database()).stdin(Stdio::null());
    let mut process = Process::spawn("transaction", command, scene.folder());
    assert_eq!(process.await_end(PATIENCE), Some(0), "{}", process.log());
    let log = process.log();
    let id = |word: &str| {
        let said = log.lines().find_map(|line| line.split_once(word)).unwrap().1;
        JobId(said.trim().parse().unwrap())
    };
    (id("placed job="), id("dropped job="))
}

#[test]
fn the_example_stores_the_job_of_the_order_that_was_placed_and_not_of_the_other() {
    with_options(ServerOptions::default().postgres(), async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let worker = Worker::builder(scene.server().url())
            .queues(["orders"])
            .handle("order.confirm", async |asked: Confirmation, _job: JobContext| {
                Ok::<_, BoxError>(asked.order * 100)
            });
        let worker = worker.build().unwrap();
        let worker = tokio::spawn(worker.run_until(std::future::pending()));
        let (placed, dropped) = tokio::task::block_in_place(|| example(scene));
        let done = client.wait(placed, PATIENCE).await.unwrap();
        assert_eq!((done.state, done.result), (JobState::Completed, Some(100.into())));
        assert!(client.get(dropped).await.unwrap_err().is_not_found());
        let orders = connect(scene).await.query("select id from orders", &[]).await.unwrap();
        assert_eq!(orders.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [1]);
        worker.abort();
    });
}

#[test]
fn jobs_of_one_transaction_keep_their_order_and_a_bad_one_says_what_is_wrong() {
    with_options(ServerOptions::default().postgres(), async |scene| {
        let client = Client::new(scene.server().url()).unwrap();
        let mut connection = connect(scene).await;
        let transaction = connection.transaction().await.unwrap();
        let jobs = (1..=3).map(|n| NewJob::new("count", n).priority(n));
        let ids = enqueue_all(&transaction, jobs).await.unwrap();
        transaction.commit().await.unwrap();
        for (id, n) in ids.iter().zip(1..) {
            let job = client.get(*id).await.unwrap();
            assert_eq!((job.args[0].as_i64(), i64::from(job.priority)), (Some(n), n));
        }
        let refused = enqueue(&connection, NewJob::new("Count", 1)).await.unwrap_err();
        assert!(matches!(&refused, EnqueueError::Invalid(words) if words.contains("`type`")));
        let keyed = NewJob::new("count", 1).idempotency_key("k");
        let refused = enqueue(&connection, keyed).await.unwrap_err();
        assert!(refused.to_string().contains("unique row of your own"), "{refused}");
        assert!(sql::parameter([]).unwrap_err().to_string().contains("0 jobs"));
        // As any other driver would do it.
        let parameter = sql::parameter([NewJob::new("count", 4)]).unwrap();
        let row = connection.query_one(sql::ENQUEUE, &[&parameter]).await.unwrap();
        assert_eq!(client.get(JobId(row.get("id"))).await.unwrap().args[0], 4);
    });
}

#[test]
fn role_without_rights_and_database_without_a_store_are_told_what_is_missing() {
    with_options(ServerOptions::default().postgres(), async |scene| {
        let connection = connect(scene).await;
        let role = format!("shop_{}", std::process::id());
        connection.batch_execute(&format!("create role {role}; set role {role}")).await.unwrap();
        let denied = enqueue(&connection, NewJob::new("count", 1)).await.unwrap_err();
        assert!(denied.to_string().contains("usage on schema outlast"), "{denied}");
        connection.batch_execute(&format!("reset role; drop role {role}")).await.unwrap();
        let (before, _name) = scene.server().database().rsplit_once('/').unwrap();
        let (elsewhere, line) =
            tokio_postgres::connect(&format!("{before}/postgres"), NoTls).await.unwrap();
        tokio::spawn(line);
        let missing = enqueue(&elsewhere, NewJob::new("count", 1)).await.unwrap_err();
        assert!(matches!(missing, EnqueueError::NoStore(_)), "{missing}");
    });
}
