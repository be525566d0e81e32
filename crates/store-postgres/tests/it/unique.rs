//! Unique keys that several servers want at the same time, and keys and jobs that another session
//! has locked.

use outlast_cluster::Database;
use outlast_core::id::JobId;
use outlast_store::command::NewJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::unique::{OnConflict, States, Unique};
use outlast_store::{Reply, StoreError};
use tokio_postgres::Client;

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

/// Sends an enqueue whose key another session holds, and meanwhile others to the same server and to
/// another one. Returns how many of each were stored while the first still waited for its key.
async fn stored_meanwhile(servers: [&Server; 2], watcher: &Client) -> [u32; 2] {
    let waits = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    let lane = servers[0].lane();
    let held =
        tokio::spawn(
            async move { lane.try_apply(vec![enqueue(unique(1, OnConflict::Reject))]).await },
        );
    let mut done = [0; 2];
    while !held.is_finished() {
        for (server, done) in servers.iter().zip(&mut done) {
            if number(watcher, waits).await == 1 {
                store(server, job()).await.unwrap();
                // It waits once and then gives up, so it has waited all the time.
                *done += u32::from(number(watcher, waits).await == 1);
            }
        }
    }
    let tried = held.await.unwrap();
    assert!(matches!(tried, Err(StoreError::Locked(_))), "{tried:?}");
    done
}

#[test]
fn key_that_an_open_transaction_holds_delays_no_other_enqueue() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        store(&server, unique(2, OnConflict::Reject)).await.unwrap();
        let other = Server::open(&database.url).await;
        other.one(enqueue(job())).await;
        let (holder, watcher) = (sql(&database.url).await, sql(&database.url).await);
        let hold = "begin; insert into unique_key values (decode(repeat('01', 32), 'hex'), 0)";
        holder.batch_execute(hold).await.unwrap();
        // The wait is short, so a busy machine may store nothing within one. If it delayed others,
        // nothing would ever be stored within one.
        let mut done = [0; 2];
        for _ in 0..50 {
            let more = stored_meanwhile([&server, &other], &watcher).await;
            done = [done[0] + more[0], done[1] + more[1]];
            if !done.contains(&0) {
                break;
            }
        }
        assert!(!done.contains(&0), "stored at the same server and at another one: {done:?}");
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
