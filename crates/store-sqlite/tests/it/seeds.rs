//! The SQL that the seed documents show works as written, but for INTERVAL arithmetic.

use std::collections::BTreeMap;

use outlast_core::budget::Budgets;
use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_store::command::{Registration, WorkerRole};
use outlast_store::{Batch, BatchId, Command, Store as _};
use outlast_store_sqlite::{Options, SqliteStore};
use rusqlite::Connection;
use uuid::Uuid;

fn with_a_worker(check: impl FnOnce(&Connection)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let store = SqliteStore::open(&path, &Options::default()).unwrap();
    let registration = Registration {
        id: WorkerId(Uuid::from_u128(7)),
        name: "shell-1".into(),
        role: WorkerRole::Action,
        concurrency: 10,
        queues: vec!["default".into()],
        runtimes: vec!["shell".into()],
        labels: BTreeMap::new(),
        lease: Span::from_secs(15),
        about: "{}".into(),
        plain_id: None,
        previous: Vec::new(),
    };
    let batch = Batch {
        id: BatchId { server: Uuid::from_u128(1), n: 1 },
        jitter_seed: 0,
        budgets: Budgets::DEFAULT,
        commands: vec![Command::Register(Box::new(registration))],
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.apply(batch.into())).unwrap();
    check(&Connection::open(&path).unwrap());
}

#[test]
fn active_workers_are_listed_by_the_seeds_query() {
    with_a_worker(|db| {
        let row: (String, String, String, String) = db
            .query_row(
                "SELECT name, worker_role, status, last_heartbeat
                 FROM worker
                 WHERE status = 'active'
                 ORDER BY last_heartbeat DESC;",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )
            .unwrap();
        assert_eq!(
            (row.0.as_str(), row.1.as_str(), row.2.as_str()),
            ("shell-1", "action", "active")
        );
        assert!(row.3.ends_with('Z') && row.3.contains('T'), "{} is ISO-8601 in UTC", row.3);
    });
}

#[test]
fn workers_are_counted_and_old_ones_deleted_by_the_seeds_queries() {
    with_a_worker(|db| {
        let count: (String, u32) = db
            .query_row("SELECT status, COUNT(*) FROM worker GROUP BY status;", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(count, ("active".into(), 1));
        let gone = db
            .execute(
                "DELETE FROM worker WHERE status = 'inactive'
                 AND updated < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-7 days');",
                [],
            )
            .unwrap();
        assert_eq!(gone, 0);
    });
}

#[test]
fn views_that_people_query_are_there() {
    with_a_worker(|db| {
        for view in ["job", "attempt", "event", "dead_letter"] {
            let count: u32 = db
                .query_row(&format!("select count(*) from {view}"), [], |row| row.get(0))
                .unwrap();
            assert_eq!(count, u32::from(view == "event"), "{view}");
        }
    });
}
