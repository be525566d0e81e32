//! An old snapshot keeps the index entries of deleted rows. Scans do not walk over them, and still
//! find every job that comes back where they no longer begin.

use std::sync::Arc;
use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::id::{JobId, WorkerId};
use outlast_store::command::{ClassId, NewJob, ReportedOutcome};
use outlast_store::reply::Claimed;
use outlast_store::signal::Signal;
use outlast_store::{Command, Store as _};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::hand::{Server, finish, goodbye, job, number, renew, run, sql};

/// Longest that something is waited for.
const WAIT: Duration = Duration::from_secs(30);

/// Opens a transaction that keeps what is deleted from now on.
async fn old_snapshot(url: &str) -> Client {
    let client = sql(url).await;
    client
        .batch_execute("begin isolation level repeatable read; select count(*) from class")
        .await
        .unwrap();
    client
}

async fn complete(server: &Server, worker: WorkerId, claimed: Vec<Claimed>) {
    let done = ReportedOutcome::Completed;
    let ends = claimed.into_iter().map(|it| finish(worker, it.job.id, it.epoch, done.clone()));
    server.apply(ends.collect()).await;
}

/// Stores jobs, takes them and completes them.
async fn work(server: &Server, worker: WorkerId, jobs: usize) -> usize {
    server.add(jobs).await;
    let claimed = server.claim(worker, u32::try_from(jobs).unwrap()).await;
    let count = claimed.len();
    complete(server, worker, claimed).await;
    count
}

/// Works until so many jobs are done that a scan of their entries is costly, and floors are in force.
async fn work_until_floors(server: &Server, worker: WorkerId) {
    let end = Instant::now() + WAIT;
    for _ in 0..20 {
        work(server, worker, 500).await;
    }
    let class = class(server).await;
    while !server.store.has_floors() || server.store.reads_place(class, 0, 400) {
        assert!(Instant::now() < end, "no floors");
        work(server, worker, 10).await;
    }
}

/// Works until floors have risen behind nearly all jobs that were done by now. On a busy machine looks
/// are rare, and floors wait until no earlier transaction can commit.
async fn work_until_floors_are_near(server: &Server, worker: WorkerId, watch: &Client) {
    let (class, end) = (class(server).await, Instant::now() + 2 * WAIT);
    let done = number(watch, "select last_value - 500 from outlast.job_seq").await;
    while server.store.reads_place(class, 0, done) {
        assert!(Instant::now() < end, "floors do not rise");
        work(server, worker, 1).await;
    }
}

async fn class(server: &Server) -> ClassId {
    server.store.backlog().await.unwrap()[0].id
}

/// Returns how many pages were read of the tables that jobs pass through, and of their indexes.
async fn pages(client: &Client) -> i64 {
    let sql = "select sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
               from pg_statio_user_tables where relname in ('ready', 'active', 'waiting')";
    number(client, sql).await
}

/// Works for a few seconds; returns how many pages a job costs.
async fn pages_of_a_job(server: &Server, worker: WorkerId, watch: &Client) -> i64 {
    let (before, end) = (pages(watch).await, Instant::now() + Duration::from_secs(4));
    let mut jobs = 0;
    while Instant::now() < end {
        jobs += i64::try_from(work(server, worker, 1).await).unwrap();
        server.apply(vec![renew(worker)]).await;
    }
    // Sessions say what they read once a second.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    work(server, worker, 1).await;
    (pages(watch).await - before) / jobs.max(1)
}

#[test]
fn a_job_costs_as_many_pages_as_before_while_an_old_snapshot_is_held() {
    let database = Database::new().unwrap();
    let url = &database.url;
    run(async {
        let (server, watch) = (Server::open(url).await, sql(url).await);
        let worker = server.worker().await;
        work(&server, worker, 500).await;
        let _old = old_snapshot(url).await;
        let first = pages_of_a_job(&server, worker, &watch).await;
        for _ in 0..40 {
            assert_eq!(work(&server, worker, 500).await, 500);
        }
        work_until_floors(&server, worker).await;
        work_until_floors_are_near(&server, worker, &watch).await;
        let last = pages_of_a_job(&server, worker, &watch).await;
        assert!(last < first + 250, "pages of a job: first {first}, then {last}");
    });
}

/// How often something is done of which the pages are counted.
const ROUNDS: i64 = 100;

/// Returns how many pages one round reads of what a server reads again and again.
async fn pages_of_reads(server: &Server, watch: &Client) -> i64 {
    let before = pages(watch).await;
    for _ in 0..ROUNDS {
        server.store.claimable(2_000).await.unwrap();
        server.store.fleet().await.unwrap();
    }
    // Sessions say what they read once a second, as their transactions end.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    server.store.claimable(2_000).await.unwrap();
    server.store.fleet().await.unwrap();
    (pages(watch).await - before) / ROUNDS
}

/// Returns how many pages one renewal of a worker reads.
async fn pages_of_renewals(server: &Server, worker: WorkerId, watch: &Client) -> i64 {
    let before = pages(watch).await;
    for _ in 0..ROUNDS {
        server.one(renew(worker)).await;
    }
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    server.one(renew(worker)).await;
    (pages(watch).await - before) / ROUNDS
}

#[test]
fn workers_and_types_that_are_gone_cost_little_while_an_old_snapshot_is_held() {
    const GONE: usize = 4;
    let database = Database::new().unwrap();
    let url = &database.url;
    run(async {
        let watch = sql(url).await;
        let server = Server::open(url).await;
        let _old = old_snapshot(url).await;
        for nth in 0..GONE {
            let worker = server.worker().await;
            let of_type = |mut job: NewJob| {
                job.class.job_type = format!("type-{nth}");
                job
            };
            let jobs = (0..5_000).map(|_| of_type(job())).collect();
            server.one(Command::EnqueueAll(jobs)).await;
            let mut done = 0;
            while done < 5_000 {
                let claimed = server.claim(worker, 500).await;
                done += claimed.len();
                complete(&server, worker, claimed).await;
            }
            server.one(goodbye(worker)).await;
        }
        // As autovacuum may meet them: all attempts were of one worker, and now there are none.
        let worker = server.worker().await;
        server.add(500).await;
        let claimed = server.claim(worker, 500).await;
        watch.batch_execute("vacuum analyze").await.unwrap();
        complete(&server, worker, claimed).await;
        watch.batch_execute("vacuum").await.unwrap();
        let server = server.reopen(url).await;
        let end = Instant::now() + WAIT;
        // A scan of all that is gone reads some hundreds of pages each time.
        while pages_of_reads(&server, &watch).await > 100 {
            assert!(Instant::now() < end, "every read passes what is gone");
        }
        let pages = pages_of_renewals(&server, worker, &watch).await;
        assert!(pages < 100, "a renewal reads {pages} pages");
    });
}

/// A job whose place is below the floor of a server, and what the test needs of it.
struct Low {
    job: JobId,
    seq: i64,
    class: ClassId,
    /// Holds it.
    holder: WorkerId,
}

/// A worker of `holding` takes a job. Then so many others are done on `server` that floors are far
/// above it.
async fn low(holding: &Server, server: &Server, watch: &Client) -> Low {
    let holder = holding.worker().await;
    let job = holding.add(1).await[0];
    assert_eq!(holding.claim(holder, 1).await.len(), 1);
    let seq = number(watch, "select max(seq) from active").await;
    let class = class(server).await;
    let worker = server.worker().await;
    work_until_floors(server, worker).await;
    assert!(!server.store.reads_place(class, -1, seq));
    Low { job, seq, class, holder }
}

/// Claims until a job is found; returns after how long.
async fn claim_until_found(server: &Server, worker: WorkerId, job: JobId) -> Duration {
    let began = Instant::now();
    loop {
        let claimed = server.claim(worker, 10).await;
        if claimed.iter().any(|it| it.job.id == job) {
            return began.elapsed();
        }
        assert!(began.elapsed() < WAIT, "the job is not found");
        complete(server, worker, claimed).await;
    }
}

#[test]
fn a_job_that_comes_back_below_a_floor_is_claimed_at_once() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        let watch = sql(&database.url).await;
        let _old = old_snapshot(&database.url).await;
        let Low { job, holder, .. } = low(&server, &server, &watch).await;
        server.apply(vec![goodbye(holder)]).await;
        let claimed = server.claim(worker, 1).await;
        assert_eq!(claimed.iter().map(|it| it.job.id).collect::<Vec<_>>(), [job]);
        assert!(server.store.has_floors());
    });
}

#[test]
fn a_job_that_another_server_puts_below_a_floor_is_found_without_a_signal() {
    let database = Database::new().unwrap();
    run(async {
        let (server, other) =
            (Server::open(&database.url).await, Server::open(&database.url).await);
        let worker = server.worker().await;
        let watch = sql(&database.url).await;
        let _old = old_snapshot(&database.url).await;
        let Low { job, holder, .. } = low(&other, &server, &watch).await;
        other.apply(vec![goodbye(holder)]).await;
        claim_until_found(&server, worker, job).await;
    });
}

#[test]
fn a_signal_says_where_another_server_put_a_job_below_a_floor() {
    let database = Database::new().unwrap();
    run(async {
        let (server, other) =
            (Server::open(&database.url).await, Server::open(&database.url).await);
        let watch = sql(&database.url).await;
        let _old = old_snapshot(&database.url).await;
        listen(&server).await;
        listen(&other).await;
        let Low { seq, class, holder, .. } = low(&other, &server, &watch).await;
        other.apply(vec![goodbye(holder)]).await;
        let rank = number(&watch, &format!("select rank from ready where seq = {seq}")).await;
        other.store.signal(vec![Signal::ready(class, 1)]);
        // Nothing is claimed, so no look is made.
        let end = Instant::now() + WAIT;
        while !server.store.reads_place(class, rank, seq) {
            assert!(Instant::now() < end, "the signal says nothing");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(server.store.has_floors());
    });
}

#[test]
fn a_job_that_is_stored_long_after_its_number_was_drawn_is_found() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        let (watch, late) = (sql(&database.url).await, sql(&database.url).await);
        work(&server, worker, 1).await;
        let _old = old_snapshot(&database.url).await;
        late.batch_execute(
            "begin; select nextval('job_seq');
             insert into job_row (seq, id, class, priority, origin, created, args, meta, extra)
                 select currval('job_seq'), '0190aaaa-0000-7000-8000-000000000001', id, 0, 1, 1,
                     '[{}]', '', '' from class;
             insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since)
                 select id, 0, currval('job_seq'), 0, 1, 0, 0, 0, 1 from class",
        )
        .await
        .unwrap();
        let seq = number(&watch, "select last_value from job_seq").await;
        work_until_floors(&server, worker).await;
        // A transaction that runs for so long is not waited for.
        let end = Instant::now() + WAIT;
        while server.store.reads_place(class(&server).await, 0, seq) {
            assert!(Instant::now() < end, "the floor stays below the number");
            work(&server, worker, 10).await;
        }
        late.batch_execute("commit").await.unwrap();
        let job = JobId(uuid::Uuid::from_u128(0x0190_aaaa_0000_7000_8000_0000_0000_0001));
        claim_until_found(&server, worker, job).await;
    });
}

/// Waits until looks, or none, are under way.
async fn wait_for_looks(watch: &Client, any: bool) {
    let looks = "select count(*) from pg_stat_activity where datname = current_database()
        and state = 'active' and query like '%pg_current_snapshot%' and pid <> pg_backend_pid()";
    let end = Instant::now() + WAIT;
    while (number(watch, looks).await > 0) != any {
        assert!(Instant::now() < end, "looks under way: {}", !any);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_server_reads_what_it_needs_while_looks_wait_for_their_answers() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        let (holder, watch) = (sql(&database.url).await, sql(&database.url).await);
        server.add(10).await;
        let look = async || {
            server.claim(worker, 1).await;
            server.apply(vec![renew(worker)]).await;
        };
        look().await;
        // The next looks are made a second after the first ones.
        tokio::time::sleep(Duration::from_millis(300)).await;
        look().await;
        let lock = "begin; lock table ready, active in access exclusive mode";
        holder.batch_execute(lock).await.unwrap();
        wait_for_looks(&watch, true).await;
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            let now = tokio::time::timeout(Duration::from_secs(1), server.store.now());
            now.await.expect("no connection").unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        holder.batch_execute("rollback").await.unwrap();
    });
}

/// Listens, and waits until it does.
async fn listen(server: &Server) {
    let (say, mut heard) = tokio::sync::mpsc::unbounded_channel();
    server.store.listen(Arc::new(move |it| drop(say.send(it))));
    heard.recv().await.unwrap();
}

#[test]
fn a_server_whose_connection_for_signals_breaks_says_later_where_it_put_a_job() {
    let database = Database::new().unwrap();
    run(async {
        let (server, other) =
            (Server::open(&database.url).await, Server::open(&database.url).await);
        let watch = sql(&database.url).await;
        let _old = old_snapshot(&database.url).await;
        listen(&other).await;
        let line = "select pid::bigint from pg_stat_activity
            where datname = current_database() and application_name = 'outlast notify'";
        let line = number(&watch, line).await;
        listen(&server).await;
        let Low { seq, class, holder, .. } = low(&other, &server, &watch).await;
        other.apply(vec![goodbye(holder)]).await;
        let rank = number(&watch, &format!("select rank from ready where seq = {seq}")).await;
        let end = format!("select pg_terminate_backend({line}, 10000)::int::bigint");
        assert_eq!(number(&watch, &end).await, 1);
        other.store.signal(vec![Signal::ready(class, 1)]);
        let end = Instant::now() + WAIT;
        while !server.store.reads_place(class, rank, seq) {
            assert!(Instant::now() < end, "the blocks were lost");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(server.store.has_floors());
    });
}
