//! The contract suite and random sequences against the model, on real files.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use outlast_store::event::EventName;
use outlast_store::{Clock, Store as _};
use outlast_store_rules::apply::claim::scan_budget::ScanBudget;
use outlast_store_rules::codec;
use outlast_store_sqlite::{Options, SqliteStore};
use outlast_store_testkit::conformance::{self, Harness};
use rusqlite::Connection;

pub(crate) struct Files {
    runtime: tokio::runtime::Runtime,
    folders: Mutex<HashMap<PathBuf, tempfile::TempDir>>,
    reach: ScanBudget,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self::with_reach(ScanBudget::STANDARD)
    }

    fn with_reach(reach: ScanBudget) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, folders: Mutex::default(), reach }
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
        SqliteStore::open_with_reach(&path, &options(clock), self.reach).unwrap()
    }

    fn reopen(&self, store: SqliteStore, clock: Arc<dyn Clock>) -> SqliteStore {
        let path = store.path().to_owned();
        self.runtime.block_on(store.close()).unwrap();
        check_lanes(&path);
        SqliteStore::open_with_reach(&path, &options(clock), self.reach).unwrap()
    }

    fn miscount(&self, store: &SqliteStore, by: i32) {
        let db = Connection::open(store.path()).unwrap();
        db.execute("update gate set in_flight = in_flight + ?", [by]).unwrap();
    }

    fn misname(&self, store: &SqliteStore, name: EventName) {
        let db = Connection::open(store.path()).unwrap();
        let rename = "update event_batch set body = replace(body, ?1, '\"k\":\"job.invented\"')";
        db.execute(rename, [format!("\"k\":\"{}\"", name.word())]).unwrap();
    }

    fn block_on<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }
}

/// Checks that keys, lanes and classes of all jobs agree.
fn check_lanes(path: &Path) {
    let rows = "select j.keys, j.lane, c.keyed, coalesce(k.keyed, c.keyed),
                    coalesce(r.lane, j.lane, 0)
                from job_row j join class c on c.id = j.class
                    left join ready r on r.seq = j.seq left join class k on k.id = r.class";
    let db = Connection::open(path).unwrap();
    let mut select = db.prepare(rows).unwrap();
    let mut rows = select.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let keys: Option<String> = row.get(0).unwrap();
        let keys = codec::keys_of(keys.as_deref()).unwrap();
        let (lane, keyed) = (keys.lane(), !keys.is_empty());
        assert_eq!(row.get::<_, Option<i64>>(1).unwrap(), keyed.then_some(lane));
        let of_tables: (bool, bool, i64) =
            (row.get(2).unwrap(), row.get(3).unwrap(), row.get(4).unwrap());
        assert_eq!(of_tables, (keyed, keyed, lane));
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
    keys,
    placement,
    idempotency,
    unique,
    claim,
    report,
    race,
    standing,
    worker,
    plain,
    operation,
    order,
    failover,
    sweep,
    leadership,
    lanes,
    crowd,
    limit,
    recount,
    queue,
    fair,
    depth,
    read,
    bytes,
    events,
    durable,
);

#[test]
fn random_sequences_do_what_the_model_does() {
    conformance::random::check(&Files::new());
}

#[test]
fn random_claims_that_look_less_far_take_only_what_may_start() {
    let harness = Files::with_reach(ScanBudget::SHORT);
    (4..=6).for_each(|seed| conformance::random::check_seed_of_short_looks(&harness, seed, 16));
}
