//! Unique keys that several servers want at the same time, and keys and jobs that another session
//! has locked.

use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::id::JobId;
use outlast_store::command::NewJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::unique::{OnConflict, States, Unique};
use outlast_store::{Command, Reply, StoreError};
use tokio::time::Instant;

use crate::hand::{Server, check_places, enqueue, job, number, run, sql};

const PRODUCERS: usize = 50;

fn unique(key: u8, on_conflict: OnConflict) -> NewJob {
    let (states, period) = (States::LIVE, None);
    let unique = Unique { fingerprint: [key; 32], states, period, on_conflict };
    NewJob { unique: Some(unique), ..job() }
}

async fn store(server: &Server, job: NewJob) -> Result<Enqueued, EnqueueRefusal> {
    match server.one(enqueue(job)).await {
        Reply::Enqueued(outcome) => outcome,
        other => panic!("not an enqueue's reply: {other:?}"),
    }
}

/// Sends a job of one key from each of many producers to three servers at once. Returns those that
/// were stored.
async fn race(url: &str, key: u8, on_conflict: OnConflict) -> Vec<JobId> {
    let mut tasks = Vec::new();
    for at in 0..3 {
        let server = Server::open(url).await;
        let mine = PRODUCERS / 3 + usize::from(at < PRODUCERS % 3);
        tasks.push(tokio::spawn(async move {
            let mut stored = Vec::new();
            for _ in 0..mine {
                // A server's requests are in one batch, or in several.
                match store(&server, unique(key, on_conflict)).await {
                    Ok(new) if !new.is_old() => stored.push(new.id),
                    Ok(_) | Err(EnqueueRefusal::NotUnique { .. } | EnqueueRefusal::Busy(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            stored
        }));
    }
    let mut stored = Vec::new();
    for task in tasks {
        stored.extend(task.await.unwrap());
    }
    stored
}

#[test]
fn of_many_producers_at_several_servers_one_has_its_job() {
    let database = Database::new().unwrap();
    run(async {
        let client = sql(&database.url).await;
        for (key, on_conflict) in (1..).zip(OnConflict::ALL) {
            let stored = race(&database.url, key, on_conflict).await;
            let live = "select count(*) from ready";
            assert_eq!(number(&client, live).await, i64::from(key), "{on_conflict:?}");
            match on_conflict {
                OnConflict::Reject | OnConflict::Ignore => assert_eq!(stored.len(), 1),
                OnConflict::Replace | OnConflict::ReplaceExceptSchedule => {
                    assert!(stored.len() > 1, "{on_conflict:?} stored {}", stored.len());
                }
            }
        }
        let keys = "select count(*) from unique_key u join ready r on r.seq = u.seq";
        assert_eq!(number(&client, keys).await, 4);
        check_places(&client).await;
    });
}

/// Tries a command; returns what came of it, and how long that took.
async fn timed(server: &Server, command: Command) -> (Result<Reply, StoreError>, Duration) {
    let begun = Instant::now();
    let tried = server.try_apply(vec![command]).await;
    (tried.map(|mut applied| applied.replies.remove(0)), begun.elapsed())
}

#[test]
fn key_that_an_open_transaction_holds_delays_no_other_enqueue() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        store(&server, unique(2, OnConflict::Reject)).await.unwrap();
        let other = Server::open(&database.url).await;
        other.one(enqueue(job())).await;
        let holder = sql(&database.url).await;
        let hold = "begin; insert into unique_key values (decode(repeat('01', 32), 'hex'), 0)";
        holder.batch_execute(hold).await.unwrap();
        let waiting = tokio::spawn(async move {
            let (tried, took) = timed(&server, enqueue(unique(1, OnConflict::Reject))).await;
            (server, tried, took)
        });
        // Whatever else comes meanwhile goes through: at the same server too, since the request has
        // a connection of its own.
        let mut done = 0;
        while !waiting.is_finished() {
            let (tried, took) = timed(&other, enqueue(job())).await;
            assert!(matches!(tried, Ok(Reply::Enqueued(Ok(_)))), "{tried:?}");
            assert!(took < Duration::from_millis(90), "an enqueue took {took:?}");
            done += 1;
        }
        let (server, tried, took) = waiting.await.unwrap();
        assert!(matches!(tried, Err(StoreError::Locked(_))), "{tried:?}");
        assert!(took >= Duration::from_millis(100) && done > 2, "{took:?}, {done} others");
        holder.batch_execute("rollback").await.unwrap();
        store(&server, unique(1, OnConflict::Reject)).await.unwrap();
    });
}

#[test]
fn job_that_is_locked_is_looked_at_and_not_replaced() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let old = store(&server, unique(1, OnConflict::Reject)).await.unwrap().id;
        let holder = sql(&database.url).await;
        holder.batch_execute("begin; select 1 from ready for update").await.unwrap();
        let replaced = store(&server, unique(1, OnConflict::Replace)).await;
        assert_eq!(replaced, Err(EnqueueRefusal::Busy(old)));
        assert_eq!(store(&server, unique(1, OnConflict::Ignore)).await.unwrap().id, old);
        let refused = store(&server, unique(1, OnConflict::Reject)).await;
        assert!(matches!(refused, Err(EnqueueRefusal::NotUnique { .. })), "{refused:?}");
        holder.batch_execute("rollback").await.unwrap();
        assert!(store(&server, unique(1, OnConflict::Replace)).await.is_ok());
        check_places(&holder).await;
    });
}

/// Enqueues once had a round trip for each key.
#[test]
fn keys_of_a_batch_are_read_and_written_at_once() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let of = |n: u8| enqueue(unique(n, OnConflict::Ignore));
        server.try_apply(vec![of(0)]).await.unwrap();
        let trips = async || {
            let client = sql(&database.url).await;
            number(&client, "select count(*) from unique_key").await
        };
        server.try_apply((1..=100).map(of).collect()).await.unwrap();
        assert_eq!(trips().await, 101);
        let again = server.try_apply((0..=100).map(of).collect()).await.unwrap().replies;
        let is_old = |reply: &Reply| matches!(reply, Reply::Enqueued(Ok(job)) if job.is_old());
        assert!(again.iter().all(is_old));
    });
}
