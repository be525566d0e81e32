//! What others do, or a network does, between two statements of a batch.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast_cluster::Database;
use outlast_core::keys::Keys;
use outlast_core::limit::Scope;
use outlast_core::queue::{Change, QueueChange};
use outlast_core::time::Span;
use outlast_store::command::{AskedByQueues, Claim, ClaimFrom, Claimant, NewJob, SetQueue};
use outlast_store::reply::Claims;
use outlast_store::{Command, Reply};
use outlast_store_postgres::Options;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::hand::{Server, check_gates, check_places, job, limit, number, per_tenant, run, sql};
use crate::held::WAITING_COMMIT;

fn claims(reply: Reply) -> Claims {
    match reply {
        Reply::Claimed(Ok(claims)) => claims,
        other => panic!("nothing may be claimed: {other:?}"),
    }
}

fn fetch(max: u32) -> Command {
    Command::Claim(Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(60) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::new(max).unwrap(),
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    })
}

fn of_type(job_type: &str) -> NewJob {
    let mut job = job();
    job.class.job_type = job_type.into();
    job
}

const WAITING: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'";

/// The fetch once gave the job out as if there were no limit: another server had stored the first
/// job of a limited type after it had read that the queue has none.
#[test]
fn fetch_passes_no_limit_of_a_class_that_is_new_since_it_looked() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        a.one(limit("none", Scope::Type("limited".into()), 0)).await;
        a.one(Command::Enqueue(Box::new(of_type("free")))).await;
        b.one(Command::Enqueue(Box::new(of_type("limited")))).await;
        // As if that job were stored between the two statements of the fetch.
        let client = sql(&database.url).await;
        let rename = |from: &str, to: &str| {
            format!(
                "update class set queue = '{to}' where queue = '{from}' and job_type = 'limited'"
            )
        };
        client.batch_execute(&rename("default", "later")).await.unwrap();
        let holder = sql(&database.url).await;
        holder.batch_execute("begin; lock table ready in access exclusive mode").await.unwrap();
        let fetching = tokio::spawn(async move { claims(a.one(fetch(10)).await) });
        while number(&client, WAITING).await == 0 {}
        holder.batch_execute(&rename("later", "default")).await.unwrap();
        holder.batch_execute("commit").await.unwrap();
        let claimed = fetching.await.unwrap().jobs;
        let types: Vec<&str> = claimed.iter().map(|it| it.job.key.job_type.as_str()).collect();
        assert_eq!(types, ["free"]);
        check_places(&client).await;
        check_gates(&client).await;
    });
}

/// Two servers that changed settings once waited for each other: one held its own row, which the
/// other wanted.
#[test]
fn change_of_settings_holds_nothing_while_it_waits_for_another() {
    let database = Database::new().unwrap();
    run(async {
        let server = Arc::new(Server::open(&database.url).await);
        server.add(1).await;
        let client = sql(&database.url).await;
        let fair = QueueChange { fair_by: Change::Set("tenant".into()), ..QueueChange::default() };
        let (queue, by) = ("default".to_owned(), "operator".to_owned());
        let settings = Command::SetQueue(Box::new(SetQueue { queue, change: fair, by }));
        for command in [per_tenant(1), settings] {
            let holder = sql(&database.url).await;
            holder.batch_execute("begin").await.unwrap();
            // `limits` as a number.
            holder
                .query("select pg_advisory_xact_lock($1)", &[&0x6c69_6d69_7473_i64])
                .await
                .unwrap();
            let changing = Arc::clone(&server);
            let changing = tokio::spawn(async move { changing.one(command).await });
            while number(&client, WAITING).await == 0 {}
            let free = "select count(*) from (select 1 from server_batch for update skip locked) x";
            assert_eq!(number(&client, free).await, 1);
            holder.batch_execute("rollback").await.unwrap();
            let changed = changing.await.unwrap();
            assert!(
                matches!(changed, Reply::LimitChanged(Ok(_)) | Reply::QueueSet(Ok(_))),
                "{changed:?}"
            );
        }
    });
}

/// Passes connections on to PostgreSQL. While it is cut, nothing that PostgreSQL says comes
/// through, and the connection ends.
async fn link(url: &str, cut: Arc<AtomicBool>) -> String {
    let (before, rest) = url.split_once('@').unwrap();
    let (address, database) = rest.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    let address = address.to_owned();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(&address).await.unwrap();
            let (mut near_in, mut near_out) = near.into_split();
            let (mut far_in, mut far_out) = far.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut near_in, &mut far_out).await });
            let cut = Arc::clone(&cut);
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                loop {
                    let read = far_in.read(&mut buffer).await.unwrap_or(0);
                    if read == 0 || cut.swap(false, Ordering::SeqCst) {
                        return;
                    }
                    let _gone = near_out.write_all(&buffer[..read]).await;
                }
            });
        }
    });
    format!("{before}@{here}/{database}")
}

/// The slot time that such a batch had charged was once given back.
#[test]
fn shares_are_charged_for_what_a_batch_took_whose_answer_was_lost() {
    let database = Database::new().unwrap();
    run(async {
        let cut = Arc::new(AtomicBool::new(false));
        let url = link(&database.url, Arc::clone(&cut)).await;
        let options = Options { unsafe_no_fsync: true, ..Options::default() };
        let server = Arc::new(Server::with(&url, &options).await);
        let fair = QueueChange { fair_by: Change::Set("tenant".into()), ..QueueChange::default() };
        let (queue, by) = ("default".into(), "operator".into());
        server.one(Command::SetQueue(Box::new(SetQueue { queue, change: fair, by }))).await;
        let of = |tenant: &str| {
            let keys = Keys::new([("tenant".into(), tenant.into())].into()).unwrap();
            NewJob { keys, ..job() }
        };
        let jobs = ["a", "a", "a", "b", "b"].map(of).into();
        server.one(Command::EnqueueAll(jobs)).await;
        let worker = server.worker().await;
        let claim = server.claiming(worker, 1).await;
        let (holder, client) = (sql(&database.url).await, sql(&database.url).await);
        client.batch_execute(WAITING_COMMIT).await.unwrap();
        holder.batch_execute("select pg_advisory_lock(77)").await.unwrap();
        let (claiming, command) = (Arc::clone(&server), claim.clone());
        let claiming = tokio::spawn(async move { claims(claiming.one(command).await) });
        while number(&client, WAITING).await == 0 {}
        cut.store(true, Ordering::SeqCst);
        holder.batch_execute("select pg_advisory_unlock(77)").await.unwrap();
        let first = claiming.await.unwrap().jobs.remove(0);
        assert!(!cut.load(Ordering::SeqCst), "the answer came through");
        let second = claims(server.one(claim).await).jobs.remove(0);
        assert_ne!(first.job.keys, second.job.keys, "one share got both slots");
        check_places(&client).await;
    });
}
