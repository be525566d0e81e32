//! Readers of events keep their place when a store is moved under them.

use outlast_cluster::Database;
use outlast_core::id::JobId;
use outlast_store::event::EventQuery;
use outlast_store::{Batch, BatchId, Store};
use outlast_store_postgres::{PostgresSource, PostgresStore};
use outlast_store_sqlite::{SqliteSource, SqliteStore};
use uuid::Uuid;

use super::{LAX, LAX_FILE, export, into_postgres, into_sqlite};
use crate::hand::{Server, enqueue, job, run};

/// Stores a job as this server would.
async fn add(store: &impl Store, server: u128, n: u64) -> JobId {
    let job = job();
    let id = job.id;
    let batch = Batch {
        id: BatchId { server: Uuid::from_u128(server), n },
        jitter_seed: 0,
        budgets: outlast_core::budget::Budgets::DEFAULT,
        commands: vec![enqueue(job)],
    };
    store.apply(batch.into()).await.unwrap();
    id
}

/// Returns the jobs that events after a cursor are about, and the cursor after them.
async fn read(store: &impl Store, after: Option<String>, limit: u32) -> (Vec<JobId>, String) {
    let query = EventQuery { after, ..EventQuery::all(limit) };
    let page = store.events(query).await.unwrap();
    (page.events.into_iter().filter_map(|(_, event)| event.job).collect(), page.next)
}

#[test]
fn a_reader_of_an_embedded_store_reads_on_in_postgresql_without_gap_or_repeat() {
    let database = Database::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    run(async {
        let store = SqliteStore::open(&path, &LAX_FILE).unwrap();
        let mut jobs = Vec::new();
        // Three starts of the server; the ids of the last two are not in the order of time.
        for (server, n) in [(1, 1), (1, 2), (3, 1), (3, 2), (2, 1), (2, 2)] {
            jobs.push(add(&store, server, n).await);
            // The clock is in milliseconds.
            let begun = store.now().await.unwrap();
            while store.now().await.unwrap() == begun {}
        }
        let (seen, cursor) = read(&store, None, 3).await;
        assert_eq!(seen, jobs[..3]);
        let end = store.events_end().await.unwrap();
        store.close().await.unwrap();
        export(SqliteSource::open(&path).unwrap(), &folder.path().join("export")).await;
        into_postgres(&database.url, &folder.path().join("export")).await.unwrap();

        let server = Server::open(&database.url).await;
        let new = server.add(1).await.remove(0);
        jobs.push(new);
        let (rest, next) = read(&server.store, Some(cursor), 100).await;
        assert_eq!(rest, jobs[3..]);
        assert_eq!(read(&server.store, Some(next), 100).await.0, []);
        assert_eq!(read(&server.store, Some(end), 100).await.0, [new]);
        assert_eq!(read(&server.store, Some("-".into()), 100).await.0, jobs);
    });
}

#[test]
fn a_reader_of_several_servers_reads_on_in_an_embedded_store_without_gap_or_repeat() {
    let database = Database::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    run(async {
        let store = PostgresStore::open(&database.url, &LAX).await.unwrap();
        let mut jobs = Vec::new();
        for (server, n) in [(9, 1), (5, 1), (9, 2), (5, 2), (9, 3), (5, 3)] {
            jobs.push(add(&store, server, n).await);
            let begun = store.now().await.unwrap();
            while store.now().await.unwrap() == begun {}
        }
        let (seen, cursor) = read(&store, None, 3).await;
        assert_eq!(seen, jobs[..3]);
        let end = store.events_end().await.unwrap();
        store.close().await.unwrap();
        let source = PostgresSource::open(&database.url, &LAX).await.unwrap();
        export(source, &folder.path().join("export")).await;
        into_sqlite(&path, &folder.path().join("export")).await.unwrap();

        let store = SqliteStore::open(&path, &LAX_FILE).unwrap();
        assert_eq!(read(&store, None, 100).await.0, jobs, "in the order of time");
        assert_eq!(read(&store, Some(cursor), 100).await.0, jobs[3..]);
        jobs.push(add(&store, 10, 1).await);
        assert_eq!(read(&store, Some(end), 100).await.0, jobs[6..]);
        assert_eq!(read(&store, Some("-".into()), 100).await.0, jobs);
    });
}
