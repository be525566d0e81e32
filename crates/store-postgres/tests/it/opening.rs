//! What is refused when a store is opened, and in which words.

use std::sync::Arc;

use outlast_cluster::{Cluster, Database};
use outlast_core::time::Span;
use outlast_store::command::Renew;
use outlast_store::store::ManualClock;
use outlast_store::{Clock as _, Command, Reply, Store as _};
use outlast_store_postgres::{OpenError, Options, PostgresStore};

use crate::hand::{run, sql};

async fn refusal(url: &str) -> OpenError {
    PostgresStore::open(url, &Options::default()).await.unwrap_err()
}

/// Checks that the address is refused for `setting`, unless losing jobs was asked for.
async fn check_not_durable(url: &str, setting: &str) {
    let error = refusal(url).await;
    let words = error.to_string();
    assert!(matches!(error, OpenError::NotDurable { .. }), "{words}");
    assert!(words.contains(&format!("{setting} = off")), "{words}");
    let lax = Options { unsafe_no_fsync: true, ..Options::default() };
    PostgresStore::open(url, &lax).await.unwrap();
}

#[test]
fn database_that_loses_commits_is_refused() {
    let cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        PostgresStore::open(&url, &Options::default()).await.unwrap();
        let name = url.rsplit('/').next().unwrap();
        let set = format!("alter database {name} set synchronous_commit = off");
        sql(&url).await.batch_execute(&set).await.unwrap();
        check_not_durable(&url, "synchronous_commit").await;
    });
}

#[test]
fn server_that_does_not_wait_for_the_disk_is_refused() {
    for setting in ["fsync", "full_page_writes"] {
        let cluster = Cluster::start(&[&format!("{setting}=off")]).unwrap();
        let url = cluster.create_database().unwrap();
        run(check_not_durable(&url, setting));
    }
}

#[test]
fn old_server_is_told_from_what_is_needed() {
    let error = OpenError::TooOld { found: "14.2".into() };
    assert_eq!(error.to_string(), "PostgreSQL is version 14.2; 15 or later is needed");
}

#[test]
fn refused_addresses_are_shown_without_their_password() {
    run(async {
        for url in ["postgres://me:secret@127.0.0.1:99999/jobs", "postgres://me:secret@127.0.0.1/"]
        {
            let error = refusal(url).await;
            let words = error.to_string();
            assert!(matches!(error, OpenError::Address { .. }), "{words}");
            assert!(words.contains("postgres://me@127.0.0.1"), "{words}");
            assert!(!words.contains("secret") && words.contains("looks like"), "{words}");
        }
    });
}

#[test]
fn database_that_is_not_there_is_named() {
    let database = Database::new().unwrap();
    let url = format!("{}_not_there", database.url);
    let words = run(refusal(&url)).to_string();
    assert!(words.contains("does not exist") && words.contains("127.0.0.1:"), "{words}");
}

/// A role or database may have been given settings of its own.
#[test]
fn settings_of_the_database_do_not_change_what_a_batch_sees() {
    let database = Database::new().unwrap();
    run(async {
        let name = database.url.rsplit('/').next().unwrap();
        let client = sql(&database.url).await;
        for setting in [
            "default_transaction_isolation = 'serializable'",
            "default_transaction_read_only = on",
            "search_path = pg_catalog",
            "statement_timeout = 1",
        ] {
            let set = format!("alter database {name} set {setting}");
            client.batch_execute(&set).await.unwrap();
        }
        let server = crate::hand::Server::open(&database.url).await;
        let jobs = server.add(3).await;
        let worker = server.worker().await;
        assert_eq!(server.claim(worker, 10).await.len(), jobs.len());
    });
}

/// Servers started, and then refused all text that the encoding lacks, forever.
#[test]
fn database_that_cannot_hold_every_text_is_refused() {
    let database = Database::new().unwrap();
    run(async {
        let client = sql(&database.url).await;
        let name = database.url.rsplit('/').next().unwrap();
        for encoding in ["LATIN1", "SQL_ASCII"] {
            let other = format!("{name}_{}", encoding.to_lowercase());
            let create =
                format!("create database {other} template template0 encoding '{encoding}'");
            client.batch_execute(&create).await.unwrap();
            let url = database.url.replace(name, &other);
            for error in [
                refusal(&url).await,
                PostgresStore::migrate(&url).await.unwrap_err(),
                PostgresStore::schema_status(&url).await.unwrap_err(),
            ] {
                let words = error.to_string();
                assert!(matches!(error, OpenError::Encoding { .. }), "{words}");
                assert!(words.contains(encoding) && words.contains("UTF8"), "{words}");
            }
            let found = outlast_store_postgres::diagnose(&url).await.unwrap();
            assert_eq!(found.bad_encoding.as_deref(), Some(encoding));
        }
        let found = outlast_store_postgres::diagnose(&database.url).await.unwrap();
        assert_eq!(found.bad_encoding, None);
    });
}

/// A server that was started after PostgreSQL's clock was set back began an hour before the others,
/// and could end no lease of theirs for as long.
#[test]
fn store_does_not_open_in_its_own_past() {
    let database = Database::new().unwrap();
    run(async {
        let before = crate::hand::Server::open(&database.url).await;
        let now = before.store.now().await.unwrap();
        let ahead = ManualClock::at(now.after(Span::from_secs(3600)));
        let options = Options { unsafe_no_fsync: true, clock: Some(Arc::new(ahead.clone())) };
        let other = crate::hand::Server::with(&database.url, &options).await;
        other.add(1).await;
        let worker = other.worker().await;
        let opened = crate::hand::Server::open(&database.url).await;
        assert!(opened.store.now().await.unwrap() >= ahead.now());
        // What only beats leaves no event.
        ahead.advance(60_000);
        let lease = Span::from_secs(15);
        let beat = Command::Renew(Renew { worker, lease, in_flight: 0 });
        assert!(matches!(other.one(beat).await, Reply::Renewed(Ok(_))));
        let opened = crate::hand::Server::open(&database.url).await;
        assert!(opened.store.now().await.unwrap() >= ahead.now());
    });
}
