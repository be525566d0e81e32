//! Reads of a large store: every statement of the readers finds its rows by an index, and each
//! read looks at few of them. Rows are counted by PostgreSQL, so the speed of this machine
//! says nothing.

use outlast_cluster::Cluster;
use outlast_store::Store as _;
use outlast_store::conformance::large::{Read, reads, sized};
use tokio_postgres::Client;

use crate::hand::{Server, number, run, sql};

/// A row that an index leads to counts twice. A walk through all jobs reads 484,000; through as
/// many blocks as a page may, 70,000.
const ROWS_MAX: i64 = 160_000;

/// Rows of tables and entries of indexes that were read so far, by everybody.
const READ: &str = "select (
        select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables)::bigint
    + (select sum(idx_tup_read) from pg_stat_user_indexes)::bigint";

async fn read_so_far(client: &Client) -> i64 {
    client.batch_execute("select pg_stat_clear_snapshot()").await.unwrap();
    number(client, READ).await
}

#[test]
fn no_read_scans_a_store_of_200_000_ended_jobs() {
    let cluster = Cluster::start(&["fsync=off", "full_page_writes=off", "autovacuum=off"]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        let first = Server::open(&url).await.store;
        let client = sql(&url).await;
        let now = first.now().await.unwrap().0;
        first.close().await.unwrap();
        let fill = sized(include_str!("../large.sql"), (200_000, 40_000, 1_000), now);
        client.batch_execute(&fill).await.unwrap();
        client.batch_execute("vacuum analyze").await.unwrap();
        let mut slow = Vec::new();
        for read in reads() {
            let before = settled(&client).await;
            let store = Server::open(&url).await.store;
            let answer = read.run(&store).await.unwrap();
            // What a connection has read is counted at the latest when it ends.
            store.close().await.unwrap();
            let rows = settled(&client).await - before;
            println!("{}: {answer}, {rows} rows", read.name());
            // A list by time may be several pages, until its order tells something.
            let pages = if matches!(read, Read::JobsOfTime(..)) { 2 } else { 1 };
            if rows > pages * ROWS_MAX {
                slow.push(format!("{}: {answer}, {rows} rows", read.name()));
            }
        }
        assert!(slow.is_empty(), "{}", slow.join("\n"));
    });
}

/// Waits until the store's connections have ended, and with that told what they read.
async fn settled(client: &Client) -> i64 {
    let others = "select count(*) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()
            and backend_type = 'client backend'";
    while number(client, others).await > 0 {
        tokio::task::yield_now().await;
    }
    read_so_far(client).await
}
