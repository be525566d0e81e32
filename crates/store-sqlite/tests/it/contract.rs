//! The contract suite and random sequences against the model, on real files.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use outlast_store::conformance::{self, Harness};
use outlast_store::{Clock, Store as _};
use outlast_store_sqlite::{Options, SqliteStore};

pub(crate) struct Files {
    runtime: tokio::runtime::Runtime,
    folders: Mutex<HashMap<PathBuf, tempfile::TempDir>>,
}

impl Files {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, folders: Mutex::default() }
    }
}

fn options(clock: Arc<dyn Clock>) -> Options {
    // What is tested here is meaning; the end-to-end tests pull the plug.
    Options { unsafe_no_fsync: true, clock: Some(clock) }
}

impl Harness for Files {
    type Store = SqliteStore;

    fn open(&self, clock: Arc<dyn Clock>) -> SqliteStore {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        self.folders.lock().unwrap().insert(path.clone(), folder);
        SqliteStore::open(&path, &options(clock)).unwrap()
    }

    fn reopen(&self, store: SqliteStore, clock: Arc<dyn Clock>) -> SqliteStore {
        let path = store.path().to_owned();
        self.runtime.block_on(store.close()).unwrap();
        SqliteStore::open(&path, &options(clock)).unwrap()
    }

    fn block_on<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }
}

macro_rules! families {
    ($($family:ident),* $(,)?) => {$(
        #[test]
        fn $family() {
            conformance::check(&Files::new(), &conformance::$family::cases());
        }
    )*};
}

families!(
    enqueue,
    idempotency,
    claim,
    report,
    race,
    worker,
    plain,
    order,
    sweep,
    leadership,
    read,
    events,
    durable,
);

#[test]
fn random_sequences_do_what_the_model_does() {
    conformance::random::check(&Files::new());
}
