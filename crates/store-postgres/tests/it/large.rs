//! Reads of a large store: every statement of the readers finds its rows by an index, and each
//! read looks at few of them. Rows are counted by PostgreSQL, so the speed of this machine
//! says nothing.

use outlast_cluster::Cluster;
use outlast_store::Store as _;
use outlast_store_testkit::conformance::large::{reads, sized};
use tokio_postgres::Client;

use crate::hand::{Server, number, run, sql};

/// A row that an index leads to counts twice. A walk through all jobs reads 484,000; through as
/// many blocks as a page may, 70,000.
const ROWS_MAX: i64 = 160_000;

/// A page of which every row that is walked is one; reading the counts of all 5,004 classes one by
/// one would be more.
const PAGE_ROWS_MAX: i64 = 10_000;

/// Pages of that kind, and one of which the counts say that it is empty.
const PAGES: [&str; 8] = [
    "all",
    "available",
    "scheduled",
    "active",
    "completed",
    "cancelled",
    "queue, most",
    "queue, none",
];

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
        let fill = sized(include_str!("../large.sql"), 200_000, 40_000, 1_000, now);
        client.batch_execute(&fill).await.unwrap();
        client.batch_execute("vacuum analyze").await.unwrap();
        // What a server reads as it opens its store, such as live workers, is part of no page.
        let before = settled(&client).await;
        Server::open(&url).await.store.close().await.unwrap();
        let opening = settled(&client).await - before;
        println!("open: {opening} rows");
        assert!(opening < PAGE_ROWS_MAX);
        let mut slow = Vec::new();
        for read in reads() {
            let before = settled(&client).await;
            let store = Server::open(&url).await.store;
            let answer = read.run(&store).await.unwrap();
            // What a connection has read is counted at the latest when it ends.
            store.close().await.unwrap();
            let rows = settled(&client).await - before - opening;
            println!("{}: {answer}, {rows} rows", read.name());
            let most = if PAGES.contains(&read.name()) { PAGE_ROWS_MAX } else { ROWS_MAX };
            if rows > most {
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

/// Jobs that wait, in many classes of few queues.
const READY: &str = "
    insert into class (id, queue, job_type, route, tenant, isolated, plain)
        select g, 'queue-' || g % 20, 'type-' || g, '', '', false, true from generate_series(1, CLASSES) g;
    insert into job_row (seq, id, class, priority, origin, created, args, meta, extra)
        select g, ('0190' || lpad(to_hex(g), 28, '0'))::uuid, 1 + g % CLASSES, 0, 1, 1, '[]', '', ''
        from generate_series(1, JOBS) g;
    insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since)
        select class, 0, seq, 0, 1, 0, 0, 0, 1 from job_row;
    insert into class_block select distinct class, seq >> 10, 0 from job_row;
    select outlast.count_tally()";

/// What a server reads when it starts, for the list of queues and for `/metrics`. Each of them looks
/// at a few jobs of each class at most, whatever waits there.
#[test]
fn no_read_of_a_start_of_queues_or_of_metrics_scans_100_000_jobs_that_wait() {
    const CLASSES: i64 = 500;
    const JOBS: i64 = 100_000;
    let cluster = Cluster::start(&["fsync=off", "full_page_writes=off", "autovacuum=off"]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        Server::open(&url).await.store.close().await.unwrap();
        let fill =
            READY.replace("CLASSES", &CLASSES.to_string()).replace("JOBS", &JOBS.to_string());
        let filling = sql(&url).await;
        filling.batch_execute(&fill).await.unwrap();
        filling.batch_execute("vacuum analyze").await.unwrap();
        // A connection tells what it has read when it ends, and otherwise some time later.
        drop(filling);
        let client = sql(&url).await;
        let names =
            ["open", "claimable", "backlog", "tally", "queues", "limits", "settings", "due"];
        let mut slow = Vec::new();
        for name in names {
            let before = settled(&client).await;
            let store = Server::open(&url).await.store;
            let count = match name {
                "claimable" => store.claimable(8).await.unwrap().len(),
                "backlog" => store.backlog().await.unwrap().len(),
                "tally" => store.tally().await.unwrap().len(),
                "queues" => store.queues().await.unwrap().len(),
                "limits" => store.limits().await.unwrap().len(),
                "settings" => store.queue_settings().await.unwrap().len(),
                "due" => usize::from(store.next_due().await.unwrap().is_some()),
                _ => 0,
            };
            store.close().await.unwrap();
            let rows = settled(&client).await - before;
            println!("{name}: {count}, {rows} rows");
            // A row that an index leads to counts twice. The list of queues looks at 20,000 jobs for the
            // oldest, whatever waits; all others at a few of each class. A look where rows begin (`floors`) may
            // run beside a read that takes long: a row of each class more.
            let most = if name == "queues" { 45_000 } else { 13 * CLASSES };
            if rows > most {
                slow.push(format!("{name}: {rows} rows"));
            }
        }
        assert!(slow.is_empty(), "{}", slow.join("\n"));
    });
}
