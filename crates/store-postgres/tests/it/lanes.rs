//! Lanes of the event log: servers that are gone leave no trace in cursors, and one that comes
//! back is read like a new one.

use outlast_cluster::Database;
use outlast_store::Store as _;
use outlast_store::command::ReportedOutcome;
use outlast_store::event::EventQuery;
use outlast_store_postgres::PostgresStore;

use crate::hand::{Server, finish, renew, run, sql};

async fn read(server: &Server, after: Option<String>) -> (usize, String) {
    let names = vec!["job.enqueued".to_owned()];
    let query = EventQuery { after, names, ..EventQuery::all(1_000) };
    let page = server.store.events(query).await.unwrap();
    (page.events.len(), page.next)
}

/// A minute passes without a batch of any server.
const MINUTE_LATER: &str = "update server_batch set at = at - 61000;
     update batch_slot set at = at - 61000";

/// A reader who had followed the store that was lost once saw nothing of the restored one, until
/// that had written as much.
#[test]
fn what_is_written_after_a_restore_comes_after_all_that_was_read_before_it() {
    let database = Database::new().unwrap();
    run(async {
        let mut cursor = None;
        for jobs in 1..=3 {
            let server = Server::open(&database.url).await;
            server.add(jobs).await;
            cursor = Some(read(&server, cursor).await.1);
            server.store.close().await.unwrap();
        }
        // As it was when the first server had written.
        let lost = "delete from event_batch where lane > 1; update event_lane set latest = 1;
             delete from server_batch where lane > 1; delete from batch_slot where lane > 1";
        sql(&database.url).await.batch_execute(lost).await.unwrap();
        let generation = PostgresStore::accept(&database.url).await.unwrap();
        assert!(generation > 1_700_000_000, "{generation}");
        let server = Server::open(&database.url).await;
        server.add(2).await;
        let (found, next) = read(&server, cursor).await;
        assert_eq!((found, read(&server, None).await.0), (2, 3));
        server.store.close().await.unwrap();

        // The same backup once more: its generation, like its lanes, says nothing of the first.
        let client = sql(&database.url).await;
        client.batch_execute(lost).await.unwrap();
        client.batch_execute("update outlast.generation set number = 1").await.unwrap();
        drop(client);
        let again = PostgresStore::accept(&database.url).await.unwrap();
        assert!(again > generation, "{again} after {generation}");
        let server = Server::open(&database.url).await;
        server.add(2).await;
        assert_eq!(read(&server, Some(next)).await.0, 2);
    });
}

/// What it gave to workers, and what it remembers, is of the store that was lost.
#[test]
fn server_that_was_cut_off_while_its_store_was_restored_writes_nothing_more() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        server.add(1).await;
        let held = server.claim(worker, 1).await.remove(0);
        assert!(PostgresStore::accept(&database.url).await.is_err(), "it is in use");
        let cut_off = "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and application_name = 'outlast'";
        sql(&database.url).await.batch_execute(cut_off).await.unwrap();
        let generation = PostgresStore::accept(&database.url).await.unwrap();
        let end = finish(worker, held.job.id, held.epoch, ReportedOutcome::Completed);
        for command in [end, renew(worker)] {
            let refused = server.try_apply(vec![command]).await.unwrap_err().to_string();
            assert!(refused.contains("was restored"), "{refused}");
        }
        let again = Server::open(&database.url).await;
        again.add(1).await;
        assert_eq!(again.store.facts().generation, generation);
    });
}

#[test]
fn cursors_do_not_grow_with_servers_that_are_gone() {
    let database = Database::new().unwrap();
    run(async {
        let first = Server::open(&database.url).await;
        first.add(1).await;
        let mut cursor = None;
        for _ in 0..20 {
            let server = Server::open(&database.url).await;
            server.add(2).await;
            let (read, next) = read(&server, cursor).await;
            assert!(read >= 2, "{read}");
            cursor = Some(next);
            server.store.close().await.unwrap();
            // A minute passes.
            let client = sql(&database.url).await;
            client.batch_execute(MINUTE_LATER).await.unwrap();
        }
        // A server that writes again after a long silence gets a new lane.
        first.add(3).await;
        let (found, next) = read(&first, cursor).await;
        assert_eq!(found, 3);
        assert!(next.len() < 60, "{next}");
        assert_eq!(read(&first, Some(next)).await.0, 0);
        assert_eq!(read(&first, None).await.0, 44);
        let end = first.store.events_end().await.unwrap();
        assert!(end.len() < 60, "{end}");
        first.add(1).await;
        assert_eq!(read(&first, Some(end)).await.0, 1);
    });
}
