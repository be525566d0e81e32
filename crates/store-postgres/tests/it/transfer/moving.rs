//! Stores for the contract suite: an embedded one, and a shared one that is moved to an
//! embedded one and back whenever it is opened again.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use outlast_cluster::Database;
use outlast_store::{Clock, Store as _};
use outlast_store_postgres::{Options, PostgresSource, PostgresStore, PostgresTarget};
use outlast_store_sqlite::{SqliteSource, SqliteStore, SqliteTarget};
use outlast_store_testkit::conformance::{Harness, random};
use tokio::runtime::Runtime;

use super::{empty, export, import};
use crate::hand::sql;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Embedded stores in temporary folders.
pub(crate) struct Embedded {
    runtime: Runtime,
    folders: Mutex<HashMap<PathBuf, tempfile::TempDir>>,
}

impl Embedded {
    pub(crate) fn new() -> Self {
        Self { runtime: runtime(), folders: Mutex::default() }
    }
}

fn embedded(clock: Arc<dyn Clock>) -> outlast_store_sqlite::Options {
    outlast_store_sqlite::Options { unsafe_no_fsync: true, clock: Some(clock) }
}

fn shared(clock: Arc<dyn Clock>) -> Options {
    Options { unsafe_no_fsync: true, clock: Some(clock) }
}

impl Harness for Embedded {
    type Store = SqliteStore;

    fn open(&self, clock: Arc<dyn Clock>) -> SqliteStore {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        self.folders.lock().unwrap().insert(path.clone(), folder);
        SqliteStore::open(&path, &embedded(clock)).unwrap()
    }

    fn reopen(&self, store: SqliteStore, clock: Arc<dyn Clock>) -> SqliteStore {
        let path = store.path().to_owned();
        self.runtime.block_on(store.close()).unwrap();
        SqliteStore::open(&path, &embedded(clock)).unwrap()
    }

    fn block_on<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }
}

/// A shared store.
pub(crate) struct Moving {
    runtime: Runtime,
    database: Database,
}

impl Moving {
    pub(crate) fn new() -> Self {
        Self { runtime: runtime(), database: Database::new().unwrap() }
    }

    async fn there_and_back(&self, clock: &Arc<dyn Clock>) {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let options = shared(Arc::clone(clock));
        let source = PostgresSource::open(&self.database.url, &options).await.unwrap();
        let there = export(source, &place("there")).await;
        let options = embedded(Arc::clone(clock));
        let mut target = SqliteTarget::open(&place("between.db"), &options).unwrap();
        import(&mut target, &place("there")).await.unwrap();
        target.close().unwrap();
        let back = export(SqliteSource::open(&place("between.db")).unwrap(), &place("back")).await;
        assert_eq!(there.sections, back.sections);
        empty(&self.database.url).await;
        let options = shared(Arc::clone(clock));
        let mut target = PostgresTarget::open(&self.database.url, &options).await.unwrap();
        import(&mut target, &place("back")).await.unwrap();
        // The model does not know that counts are taken over from other servers.
        let counted = sql(&self.database.url).await;
        for sql in ["update tally set server = $1", "update depth set server = $1"] {
            counted.execute(sql, &[&random::SERVER]).await.unwrap();
        }
    }
}

impl Harness for Moving {
    type Store = PostgresStore;

    fn open(&self, clock: Arc<dyn Clock>) -> PostgresStore {
        self.runtime.block_on(async {
            empty(&self.database.url).await;
            PostgresStore::open(&self.database.url, &shared(clock)).await.unwrap()
        })
    }

    fn reopen(&self, store: PostgresStore, clock: Arc<dyn Clock>) -> PostgresStore {
        self.runtime.block_on(async {
            store.close().await.unwrap();
            drop(store);
            self.there_and_back(&clock).await;
            PostgresStore::open(&self.database.url, &shared(clock)).await.unwrap()
        })
    }

    fn block_on<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }
}
