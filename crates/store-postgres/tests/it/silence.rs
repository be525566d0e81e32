//! Connections that are open and no longer answer, while new ones work: they are thrown away within
//! seconds. One on which PostgreSQL is at work is not.

use std::sync::Arc;
use std::time::Duration;

use outlast_cluster::{Cluster, Database};
use outlast_store::Store as _;
use outlast_store::signal::{Heard, Signal};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::hand::{Server, check_places, enqueue, job, number, run, sql};

/// Longest that the store may need to come back on a loaded machine.
const BACK: Duration = Duration::from_secs(20);

/// Every process that serves the store.
const BACKENDS: &str = "select pid from pg_stat_activity
    where datname = current_database() and application_name like 'outlast%'";

/// Freezes every process that serves the store.
async fn freeze(cluster: &Cluster, client: &Client) -> Vec<i32> {
    let rows = client.query(BACKENDS, &[]).await.unwrap();
    let pids: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    pids.iter().for_each(|pid| cluster.freeze(*pid).unwrap());
    pids
}

/// Reads took as long as their longest limit, one connection after the other.
#[test]
fn reads_and_batches_are_back_when_every_open_connection_has_fallen_silent() {
    let cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        let server = Server::open(&url).await;
        let beats = server.lane();
        server.store.beats_come_from(beats.id);
        let (say, mut heard) = tokio::sync::mpsc::unbounded_channel();
        server.store.listen(Arc::new(move |it| drop(say.send(it))));
        assert_eq!(heard.recv().await, Some(Heard::Missed), "the line is there");
        // All connections are open.
        let read = || async { server.store.queues().await.map(drop) };
        let (a, b, c, d) = tokio::join!(read(), read(), read(), read());
        assert!([a, b, c, d].iter().all(Result::is_ok));
        let (a, b) = tokio::join!(server.store.now(), server.store.next_due());
        assert!(a.is_ok() && b.is_ok());
        server.add(1).await;
        let client = sql(&url).await;
        let frozen = freeze(&cluster, &client).await;
        assert!(frozen.len() >= 8, "{}", frozen.len());
        let began = Instant::now();
        // What runs into the silence may fail; the same call goes through soon.
        let reads = async {
            while server.store.next_due().await.is_err() {}
            for _ in 0..4 {
                read().await.unwrap();
            }
        };
        let lost = job();
        let writes = async {
            let stored = server.try_apply(vec![enqueue(lost.clone())]).await;
            assert!(stored.is_ok(), "{stored:?}");
        };
        tokio::join!(reads, writes);
        assert_eq!(heard.recv().await, Some(Heard::Missed), "a new line");
        server.store.signal(vec![Signal::Missed]);
        let took = began.elapsed();
        assert!(took < BACK, "{took:?}");
        frozen.iter().for_each(|pid| cluster.thaw(*pid).unwrap());
        server.add(1).await;
        assert_eq!(number(&client, "select count(*) from job_row").await, 3);
        check_places(&client).await;
    });
}

#[test]
fn slow_read_is_waited_for_and_ends_when_its_asker_has_gone() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        server.store.queues().await.unwrap();
        let (holder, client) = (sql(&database.url).await, sql(&database.url).await);
        let hold = "begin; lock table outlast.class in access exclusive mode";
        holder.batch_execute(hold).await.unwrap();
        let free = async {
            // Long enough for PostgreSQL to be asked what it does.
            tokio::time::sleep(Duration::from_millis(4_000)).await;
            holder.batch_execute("rollback").await.unwrap();
        };
        let (read, ()) = tokio::join!(server.store.queues(), free);
        read.unwrap();
        holder.batch_execute(hold).await.unwrap();
        let gone = tokio::time::timeout(Duration::from_millis(200), server.store.queues()).await;
        assert!(gone.is_err());
        let asking = "select count(*) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        let began = Instant::now();
        while number(&client, asking).await > 0 {
            assert!(began.elapsed() < Duration::from_secs(3), "it still waits");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        holder.batch_execute("rollback").await.unwrap();
        server.store.queues().await.unwrap();
    });
}
