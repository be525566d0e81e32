//! Slots of batches: what a server counts stays right when it begins another one, no batch of an
//! ended slot takes effect, and a look for a batch waits for it.

use outlast_cluster::Database;
use outlast_core::budget::Budgets;
use outlast_store::{Batch, BatchId, Store as _};
use tokio_postgres::Client;

use crate::hand::{Server, check_places, enqueue, job, number, run, sql};

/// More batches than a slot has.
const MANY: usize = 300;

async fn slots(client: &Client) -> (i64, i64) {
    let begun = "select coalesce(max(slot), 0) from batch_slot";
    (number(client, "select count(*) from batch_slot").await, number(client, begun).await)
}

/// Stores jobs until a second slot is begun; returns the first.
async fn begin_second_slot(server: &Server, client: &Client) -> i64 {
    server.add(1).await;
    let (_, first) = slots(client).await;
    for _ in 0..MANY {
        server.add(1).await;
    }
    let (count, second) = slots(client).await;
    assert_eq!(count, 1);
    assert!(second > first);
    first
}

/// Returns the code of the error.
async fn refused(client: &Client, sql: &str) -> String {
    let error = client.batch_execute(sql).await.unwrap_err();
    error.code().unwrap().code().to_owned()
}

#[test]
fn server_begins_a_new_slot_now_and_then_and_counts_as_before() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        begin_second_slot(&server, &client).await;
        assert_eq!(server.store.tried_again().await, 0);
        let kept = "select count(*) from tally_slot where slot <>
             (select slot from server_batch where slot is not null)";
        assert_eq!(number(&client, kept).await, 0, "counts of the slot before");
        check_places(&client).await;
        // Another store that the same server opens does not know the slot.
        let server = server.reopen(&database.url).await;
        server.add(1).await;
        assert_eq!(server.store.tried_again().await, 0);
        assert_eq!(slots(&client).await.0, 1);
        check_places(&client).await;
    });
}

#[test]
fn batch_of_an_ended_slot_stores_nothing() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        let first = begin_second_slot(&server, &client).await;
        let jobs = number(&client, "select count(*) from job_row").await;
        // As PostgreSQL would carry it out that has it yet to read.
        let late = |n: i64, slot: i64| {
            format!("select outlast.open_batch('{}', {n}, null, {slot})", server.id)
        };
        assert_eq!(refused(&client, &late(first, first)).await, "OL004");
        assert_eq!(refused(&client, &late(first + 1, first)).await, "OL004");
        let again = Batch {
            id: BatchId { server: server.id, n: 2 },
            jitter_seed: 1,
            budgets: Budgets::DEFAULT,
            commands: vec![enqueue(job())],
        };
        assert!(server.store.apply(again.into()).await.is_err());
        // Without a lane, too.
        let close = "select outlast.close_lanes(gen_random_uuid(), 9223372036854775807)";
        client.batch_execute(close).await.unwrap();
        assert_eq!(slots(&client).await.0, 0);
        assert_eq!(refused(&client, &late(first + 1, first)).await, "OL004");
        assert_eq!(refused(&client, &late(first + 1, first + 1)).await, "OL004");
        // The next one is not late: the server needs a lane, and a slot.
        assert_eq!(refused(&client, &late(5000, first)).await, "OL005");
        assert_eq!(number(&client, "select count(*) from job_row").await, jobs);
        server.add(1).await;
        check_places(&client).await;
    });
}

#[test]
fn look_for_a_batch_that_begins_a_slot_waits_for_it() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        server.add(1).await;
        let (begun, client) = (sql(&database.url).await, sql(&database.url).await);
        for (ends, latest) in [("rollback", 1), ("commit", 5000)] {
            // As another try of the batch does.
            let begin =
                format!("begin; select outlast.open_batch('{}', 5000, null, 5000)", server.id);
            begun.batch_execute(&begin).await.unwrap();
            let looked = sql(&database.url).await;
            let look = format!("select outlast.latest_batch('{}')", server.id);
            let looking = tokio::spawn(async move { number(&looked, &look).await });
            let waits = "select count(*) from pg_stat_activity
                 where wait_event_type = 'Lock' and query like '%latest_batch%'";
            while number(&client, waits).await == 0 {
                tokio::task::yield_now().await;
            }
            begun.batch_execute(ends).await.unwrap();
            assert_eq!(looking.await.unwrap(), latest);
        }
    });
}
