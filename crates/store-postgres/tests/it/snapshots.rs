//! While a transaction holds an old snapshot, PostgreSQL removes no version of any row. What a batch
//! reads must not grow with the batches since.

use std::num::NonZeroU32;

use outlast_cluster::Database;
use outlast_core::id::WorkerId;
use outlast_store::command::{AskedByQueues, Claim, ClaimFrom, Claimant, ClassId, ReportedOutcome};
use outlast_store::{Command, Reply, Store as _};
use tokio_postgres::Client;

use crate::hand::{Server, check_places, enqueue, finish, job, run, sql};

/// How many jobs are stored, claimed and finished between the first and the last measurement. Each
/// takes three batches, so a slot ends a dozen times; 20,000 batches would take a minute.
const JOBS: u32 = 1000;
/// How many a measurement takes.
const MEASURED: u32 = 100;

/// Opens a transaction that keeps all versions of rows from now on, as `pg_dump` does.
pub(crate) async fn hold_snapshot(url: &str) -> Client {
    let client = sql(url).await;
    let hold = "begin isolation level repeatable read; select count(*) from outlast.migration";
    client.batch_execute(hold).await.unwrap();
    client
}

/// Returns how many pages of these tables and their indexes this session and all that have ended have
/// read. PostgreSQL counts what a session has read up to a second later, a `vacuum` of this one say,
/// unless it is asked.
pub(crate) async fn pages_read(client: &Client, tables: &[&str]) -> i64 {
    client.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    let read = "select coalesce(sum(heap_blks_hit + heap_blks_read
             + coalesce(idx_blks_hit + idx_blks_read, 0)), 0)::bigint
         from pg_statio_all_tables where schemaname = 'outlast' and relname = any($1)";
    client.query_one(read, &[&tables]).await.unwrap().get(0)
}

/// Keeps PostgreSQL from tending these tables in between, and waits until it no longer does: what it
/// reads for that would count, too.
pub(crate) async fn tend_no_longer(client: &Client, tables: &[&str]) {
    for table in tables {
        let off = format!("alter table outlast.{table} set (autovacuum_enabled = false)");
        client.batch_execute(&off).await.unwrap();
    }
    let tended = "select count(*) from pg_stat_activity
         where backend_type = 'autovacuum worker' and datname = current_database()";
    while client.query_one(tended, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
}

/// Ends the connections of all servers: what they have read is known only then. A server opens new
/// ones at any time, and forgets nothing.
pub(crate) async fn end_connections(client: &Client) {
    let end = "select coalesce(array_agg(pid) filter (where pg_terminate_backend(pid)), '{}')
         from pg_stat_activity
         where datname = current_database() and application_name like 'outlast%'";
    let ended: Vec<i32> = client.query_one(end, &[]).await.unwrap().get(0);
    let left = "select count(*) from pg_stat_activity where pid = any($1)";
    while client.query_one(left, &[&ended]).await.unwrap().get::<_, i64>(0) > 0 {
        tokio::task::yield_now().await;
    }
}

/// A server and a worker that stores, claims and finishes one job after the other.
pub(crate) struct Cycle {
    server: Server,
    worker: WorkerId,
    class: ClassId,
}

impl Cycle {
    pub(crate) async fn new(url: &str) -> Self {
        let server = Server::open(url).await;
        let worker = server.worker().await;
        let Reply::Enqueued(Ok(stored)) = server.one(enqueue(job())).await else {
            panic!("not stored");
        };
        let cycle = Self { server, worker, class: stored.class };
        cycle.claim_and_finish().await;
        cycle
    }

    pub(crate) async fn run(&self, jobs: u32) {
        for _ in 0..jobs {
            self.server.one(enqueue(job())).await;
            self.claim_and_finish().await;
        }
    }

    async fn claim_and_finish(&self) {
        let claim = Command::Claim(Claim {
            claimant: Claimant::Native { worker: self.worker, session: 1 },
            from: ClaimFrom::Classes(vec![self.class].into()),
            max: NonZeroU32::MIN,
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        });
        let Reply::Claimed(Ok(claimed)) = self.server.one(claim).await else {
            panic!("not claimed");
        };
        let claimed = &claimed.jobs[0];
        let end = finish(self.worker, claimed.job.id, claimed.epoch, ReportedOutcome::Completed);
        assert!(matches!(self.server.one(end).await, Reply::Moved(Ok(_))));
    }

    /// Returns how many pages of these tables and their indexes a job reads from when it is stored
    /// until it has ended.
    pub(crate) async fn pages_of_a_job(&self, client: &Client, tables: &[&str]) -> i64 {
        end_connections(client).await;
        let before = pages_read(client, tables).await;
        self.run(MEASURED).await;
        end_connections(client).await;
        (pages_read(client, tables).await - before) / i64::from(MEASURED)
    }
}

#[test]
fn batches_read_as_much_of_their_own_rows_however_old_a_snapshot_is() {
    const OWN: [&str; 7] = [
        "server_batch",
        "batch_slot",
        "tally",
        "tally_slot",
        "queue_tally",
        "ready_second",
        "ready_second_slot",
    ];
    let database = Database::new().unwrap();
    run(async {
        let url = &database.url;
        let cycle = Cycle::new(url).await;
        let client = sql(url).await;
        tend_no_longer(&client, &OWN).await;
        let snapshot = hold_snapshot(url).await;
        let first = cycle.pages_of_a_job(&client, &OWN).await;
        cycle.run(JOBS).await;
        let last = cycle.pages_of_a_job(&client, &OWN).await;
        println!("{first} pages a job at first, {last} at last");
        assert!(last <= 2 * first, "{last} pages of its own rows, {first} at first");

        // So do readers of the counts.
        let before = pages_read(&client, &OWN).await;
        for _ in 0..10 {
            cycle.server.store.tally().await.unwrap();
        }
        end_connections(&client).await;
        let read = (pages_read(&client, &OWN).await - before) / 10;
        assert!(read <= 2 * first, "{read} pages for all counts");
        snapshot.batch_execute("commit").await.unwrap();
        check_places(&client).await;
    });
}
