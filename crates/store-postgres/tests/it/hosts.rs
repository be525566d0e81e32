//! Several hosts, of which one is the primary; poolers in between.

use std::net::TcpListener;

use outlast_cluster::{Bouncer, Cluster, Pooling, Stop};
use outlast_core::budget::Budgets;
use outlast_core::id::JobId;
use outlast_store::{Batch, BatchId, Command, Store as _};
use outlast_store_postgres::{OpenError, Options, PostgresStore};
use outlast_store_testkit::job::plain_job;
use tokio::time::Instant;
use uuid::Uuid;

use crate::hand::{number, run, sql};

/// Returns the address of a database on several ports of this host.
fn on_ports(database: &str, own: u16, ports: &[u16]) -> String {
    let hosts: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    database.replace(&format!("127.0.0.1:{own}"), &hosts.join(","))
}

async fn open(url: &str) -> Result<PostgresStore, OpenError> {
    PostgresStore::open(url, &Options::default()).await
}

#[test]
fn primary_is_found_among_hosts_wherever_it_is_named() {
    let primary = Cluster::start(&[]).unwrap();
    let database = primary.create_database().unwrap();
    let standby = primary.standby().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // Accepts connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (silent, address.port())).unwrap();
    run(async {
        for ports in [
            vec![primary.port(), standby.port()],
            vec![standby.port(), primary.port()],
            vec![closed, standby.port(), primary.port()],
            vec![silent.1, standby.port(), primary.port()],
        ] {
            let url = on_ports(&database, primary.port(), &ports);
            let store = open(&url).await.unwrap();
            assert!(store.now().await.is_ok(), "{url}");
            store.close().await.unwrap();
        }
        let url = on_ports(&database, primary.port(), &[primary.port(), standby.port()]);
        open(&format!("{url}?target_session_attrs=primary")).await.unwrap();
        let words = open(&format!("{url}?target_session_attrs=standby")).await.unwrap_err();
        assert!(words.to_string().contains("target_session_attrs=standby"), "{words}");
    });
}

#[test]
fn hosts_without_a_primary_are_named_with_what_each_said() {
    let primary = Cluster::start(&[]).unwrap();
    let database = primary.create_database().unwrap();
    let standby = primary.standby().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    run(async {
        let url = on_ports(&database, primary.port(), &[closed, standby.port()]);
        let error = open(&url).await.unwrap_err();
        let words = error.to_string();
        assert!(matches!(error, OpenError::NoPrimary { has_standby: true, .. }), "{words}");
        assert!(words.contains(&format!("127.0.0.1:{closed},")), "{words}");
        assert!(words.contains("refused") && words.contains("read-only (standby)"), "{words}");
    });
}

/// A store moves to the standby that was promoted, and stays there when the old primary comes back
/// as if nothing had happened.
#[test]
fn promoted_standby_is_used_and_the_old_primary_is_not() {
    let mut primary = Cluster::start(&[]).unwrap();
    let database = primary.create_database().unwrap();
    let standby = primary.standby().unwrap();
    let url = on_ports(&database, primary.port(), &[primary.port(), standby.port()]);
    run(async {
        let store = open(&url).await.unwrap();
        store.now().await.unwrap();
        primary.stop(Stop::Kill).unwrap();
        assert!(store.now().await.is_err());
        let beside = on_ports(&database, primary.port(), &[standby.port()]);
        sql(&beside).await.batch_execute("select pg_promote()").await.unwrap();
        let began = Instant::now();
        store.now().await.unwrap();
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        primary.start_again().unwrap();
        let old = on_ports(&database, primary.port(), &[primary.port()]);
        let alone = open(&old).await.unwrap();
        assert!(alone.now().await.is_ok(), "by itself it looks like a primary");
        // The new one goes: the old one must not be taken for it.
        let mut standby = standby;
        standby.stop(Stop::Kill).unwrap();
        let error = store.now().await.unwrap_err().to_string();
        let error = match error.contains("replaced") {
            true => error,
            false => store.now().await.unwrap_err().to_string(),
        };
        assert!(error.contains("was replaced by another primary"), "{error}");
    });
}

#[test]
fn pooler_may_lend_sessions() {
    let cluster = Cluster::start(&[]).unwrap();
    let database = cluster.create_database().unwrap();
    for more in ["", "ignore_startup_parameters = options"] {
        let bouncer = Bouncer::start(&cluster, Pooling::Session, more).unwrap();
        run(async {
            let store = open(&bouncer.before(&cluster, &database)).await.unwrap();
            store.now().await.unwrap();
            store.tally().await.unwrap();
            store.close().await.unwrap();
        });
    }
}

#[test]
fn pooler_that_lends_transactions_is_refused_and_named() {
    let cluster = Cluster::start(&[]).unwrap();
    let database = cluster.create_database().unwrap();
    for (pooling, more) in [
        (Pooling::Transaction, ""),
        (Pooling::Transaction, "ignore_startup_parameters = options\nserver_round_robin = 1"),
        (Pooling::Statement, ""),
    ] {
        let bouncer = Bouncer::start(&cluster, pooling, more).unwrap();
        run(async {
            for _ in 0..3 {
                let error = open(&bouncer.before(&cluster, &database)).await.unwrap_err();
                let words = error.to_string();
                assert!(matches!(error, OpenError::TransactionPooling { .. }), "{words}");
                assert!(words.contains("pool_mode=session"), "{words}");
            }
        });
    }
}

/// What promotes standbys has promoted one, and has not ended the old primary. A store that has not
/// seen the new one connects again, at first to the host that answered last.
#[test]
fn promoted_standby_is_used_though_the_old_primary_runs_on() {
    let primary = Cluster::start(&[]).unwrap();
    let database = primary.create_database().unwrap();
    let standby = primary.standby().unwrap();
    let url = on_ports(&database, primary.port(), &[primary.port(), standby.port()]);
    let at = |port| on_ports(&database, primary.port(), &[port]);
    run(async {
        let store = open(&url).await.unwrap();
        store.now().await.unwrap();
        store.tally().await.unwrap();
        let (old, new) = (sql(&at(primary.port())).await, sql(&at(standby.port())).await);
        new.batch_execute("select pg_promote()").await.unwrap();
        let end = "select pg_terminate_backend(pid) from pg_stat_activity
            where application_name = 'outlast'";
        old.batch_execute(end).await.unwrap();
        let job = plain_job(JobId(Uuid::now_v7()));
        let id = job.id;
        let server = Uuid::now_v7();
        let mut n = 0;
        let began = Instant::now();
        loop {
            n += 1;
            let batch = Batch {
                id: BatchId { server, n },
                jitter_seed: 0,
                budgets: Budgets::DEFAULT,
                commands: vec![Command::Enqueue(Box::new(job.clone()))],
            };
            match store.apply(batch.into()).await {
                Ok(_) => break,
                Err(error) => assert!(began.elapsed().as_secs() < 20, "{error}"),
            }
        }
        let jobs = "select count(*) from job_row";
        assert_eq!((number(&new, jobs).await, number(&old, jobs).await), (1, 0));
        for _ in 0..8 {
            assert!(store.job(id).await.unwrap().is_some(), "reads find the new one, too");
        }
    });
}

/// Commits at the old primary wait for the standby that follows it no more.
#[test]
fn batch_that_a_replaced_primary_does_not_answer_ends_at_the_new_one() {
    let primary = Cluster::start(&[]).unwrap();
    let database = primary.create_database().unwrap();
    let standby = primary.standby().unwrap();
    let url = on_ports(&database, primary.port(), &[primary.port(), standby.port()]);
    let at = |port| on_ports(&database, primary.port(), &[port]);
    run(async {
        let store = open(&url).await.unwrap();
        let (old, new) = (sql(&at(primary.port())).await, sql(&at(standby.port())).await);
        old.batch_execute("alter system set synchronous_standby_names = '*'").await.unwrap();
        old.batch_execute("select pg_reload_conf()").await.unwrap();
        new.batch_execute("select pg_promote()").await.unwrap();
        let job = plain_job(JobId(Uuid::now_v7()));
        let (server, mut n, began) = (Uuid::now_v7(), 0, Instant::now());
        loop {
            n += 1;
            let batch = Batch {
                id: BatchId { server, n },
                jitter_seed: 0,
                budgets: Budgets::DEFAULT,
                commands: vec![Command::Enqueue(Box::new(job.clone()))],
            };
            match store.apply(batch.into()).await {
                Ok(_) => break,
                Err(error) => assert!(began.elapsed().as_secs() < 15, "{error}"),
            }
        }
        assert_eq!(number(&new, "select count(*) from job_row").await, 1);
    });
}
