//! Moving between the embedded and the shared store: what is stored, and what it does next,
//! is the same; an import that ends anywhere goes on; nothing is forgotten.

mod cursors;
mod moving;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use outlast_cluster::Database;
use outlast_core::job::Outcome;
use outlast_core::time::Timestamp;
use outlast_store::{Command, Store as _, StoreError};
use outlast_store_postgres::{OpenError, Options, PostgresSource, PostgresStore, PostgresTarget};
use outlast_store_rules::transfer::drive::{self, Label};
use outlast_store_rules::transfer::folder::{Entry, Manifest};
use outlast_store_rules::transfer::row::Row;
use outlast_store_rules::transfer::section::{SECTIONS, Sort};
use outlast_store_rules::transfer::{
    Page, PageQuery, Part, Progress, Source, SourceFacts, Target, TransferError,
};
use outlast_store_sqlite::{SqliteSource, SqliteTarget};
use outlast_store_testkit::conformance::{self, random};
use uuid::Uuid;

use crate::hand::{Server, number, run, sql};
use moving::{Embedded, Moving};

/// Tables that are not moved.
const TABLES_LEFT_OUT: &[(&str, &str)] = &[
    ("server_batch", "is about the writing of servers that run, and none does then"),
    ("batch_slot", "is about the writing of servers that run, and none does then"),
    ("transfer", "how far imports into this store came"),
    ("tally", "follows from where the jobs are"),
    ("tally_slot", "follows from where the jobs are"),
    ("queue_tally", "follows from where the jobs are"),
    ("ready_second", "follows from where the jobs are"),
    ("ready_second_slot", "follows from where the jobs are"),
    ("depth", "follows from where the jobs are"),
    ("depth_slot", "follows from where the jobs are"),
    ("class_block", "follows from the jobs' numbers"),
    ("arrival", "an export waits until it is empty"),
    ("arrival_watch", "a promise of a moment"),
    ("migration", "is about the store's own schema"),
    ("generation", "is about the store's own restores"),
    ("failover", "is about the store's own hosts"),
    ("gate", "limits count from zero after an import"),
    ("gate_held", "limits count from zero after an import"),
    ("browser_session", "who is signed in signs in again at the new store"),
    (
        "operation",
        "what had not ended when the store was exported is asked for again at the new one",
    ),
    ("limit_version", "is about what the servers that run have read"),
];

/// Columns that are not moved.
const COLUMNS_LEFT_OUT: &[(&str, &str)] = &[
    ("ready.expires", "a copy of job_row.expires_at, which saves claims a join"),
    ("ready.lane", "a copy of job_row.lane"),
    ("class.plain", "follows from the route and the placement"),
    ("queue.labels_required", "follows from the settings"),
    ("active.gates", "limits begin again with an import"),
    ("log_size.chunks", "follows from log"),
    ("log_size.stored", "follows from log"),
    ("worker.last_heartbeat", "generated"),
    ("worker.created", "generated"),
    ("worker.updated", "generated"),
];

pub(crate) const LAX: Options = Options { unsafe_no_fsync: true, clock: None };
const LAX_FILE: outlast_store_sqlite::Options =
    outlast_store_sqlite::Options { unsafe_no_fsync: true, clock: None };
/// So that everything takes several pages.
const SMALL: Page = Page { rows: 3, bytes: 100_000 };

fn label() -> Label {
    Label { export: Uuid::now_v7(), outlast: "0".into(), taken: "now".into() }
}

pub(crate) async fn export<S: Source>(mut source: S, folder: &Path) -> Manifest {
    drive::export(&mut source, folder, label(), SMALL, &mut |_, _, _| {}).await.unwrap()
}

async fn import<T: Target>(target: &mut T, folder: &Path) -> Result<Manifest, TransferError> {
    drive::import(target, folder, SMALL, &mut |_, _, _| {}).await
}

pub(crate) async fn into_postgres(url: &str, folder: &Path) -> Result<Manifest, TransferError> {
    import(&mut PostgresTarget::open(url, &LAX).await.unwrap(), folder).await
}

async fn into_sqlite(path: &Path, folder: &Path) -> Result<Manifest, TransferError> {
    import(&mut SqliteTarget::open(path, &LAX_FILE).unwrap(), folder).await
}

/// Makes an embedded store by a random script, and exports it.
fn filled(seed: u64, folder: &Path) -> Vec<Entry> {
    let embedded = Embedded::new();
    let store = random::fill(&embedded, seed);
    run(async {
        let source = SqliteSource::open(store.path()).unwrap();
        let manifest = export(source, folder).await;
        store.close().await.unwrap();
        manifest.sections
    })
}

/// Scripts that fill something which none before them did, until everything was moved once.
#[test]
fn random_stores_come_back_from_postgresql_as_they_were() {
    let database = Database::new().unwrap();
    let mut missing: BTreeSet<&str> = SECTIONS.iter().map(|section| section.name).collect();
    for seed in 20..120 {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let first = filled(seed, &place("first"));
        let before = missing.len();
        for section in first.iter().filter(|section| section.rows > 0) {
            missing.remove(section.name.as_str());
        }
        if missing.len() == before {
            continue;
        }
        run(async {
            empty(&database.url).await;
            into_postgres(&database.url, &place("first")).await.unwrap();
            let source = PostgresSource::open(&database.url, &LAX).await.unwrap();
            assert_eq!(export(source, &place("second")).await.sections, first, "seed {seed}");
            into_sqlite(&place("back.db"), &place("second")).await.unwrap();
            let source = SqliteSource::open(&place("back.db")).unwrap();
            assert_eq!(export(source, &place("third")).await.sections, first, "seed {seed}");
        });
        if missing.is_empty() {
            return;
        }
    }
    panic!("no script ever filled {missing:?}");
}

async fn empty(url: &str) {
    let client = sql(url).await;
    client
        .batch_execute(
            "drop schema public cascade; create schema public;
             drop schema if exists outlast cascade",
        )
        .await
        .unwrap();
}

/// Every crash of a random script is a move to an embedded store and back, and the store
/// does after it what the model does.
#[test]
fn a_store_that_is_moved_does_what_the_model_does() {
    random::check_seed_of_moved(&Moving::new(), 7, 6);
}

#[test]
fn what_is_durable_is_so_across_a_move() {
    conformance::check(&Moving::new(), &conformance::durable::cases());
}

#[test]
fn bounded_queues_are_so_across_a_move() {
    conformance::check(&Moving::new(), &conformance::depth::cases());
}

#[test]
fn settings_of_queues_are_so_across_a_move() {
    conformance::check(&Moving::new(), &conformance::queue::cases());
    conformance::check(&Moving::new(), &conformance::placement::cases());
}

/// A store that ends after some writes, before or after they are committed.
struct Failing<T> {
    target: T,
    writes: u32,
    committed: bool,
}

impl<T: Target + Send> Source for Failing<T> {
    fn facts(&self) -> SourceFacts {
        self.target.facts()
    }

    async fn page(&mut self, query: PageQuery<'_>) -> Result<Vec<Row>, StoreError> {
        self.target.page(query).await
    }
}

impl<T: Target + Send> Target for Failing<T> {
    async fn progress(&mut self) -> Result<Option<Progress>, StoreError> {
        self.target.progress().await
    }

    async fn write(&mut self, part: Part<'_>) -> Result<(), StoreError> {
        let gone = || StoreError::Unavailable("gone".into());
        if self.writes > 0 || self.committed {
            self.target.write(part).await?;
        }
        self.writes = self.writes.checked_sub(1).ok_or_else(gone)?;
        Ok(())
    }

    async fn complete(&mut self, time: Timestamp) -> Result<(), StoreError> {
        self.target.complete(time).await
    }

    async fn keep(&mut self, progress: &Progress) -> Result<(), StoreError> {
        self.target.keep(progress).await
    }
}

/// Imports with an end after every few pages, and returns how often it ended.
async fn with_interruptions<T, F>(folder: &Path, mut open: impl FnMut() -> F) -> u32
where
    T: Target + Send,
    F: Future<Output = T>,
{
    let mut ended = 0;
    loop {
        let (writes, committed) = (2 + ended % 3, ended % 2 == 0);
        let mut target = Failing { target: open().await, writes, committed };
        match import(&mut target, folder).await {
            Ok(_) => return ended,
            Err(TransferError::Store(StoreError::Unavailable(why))) if why == "gone" => ended += 1,
            Err(other) => panic!("{other}"),
        }
        assert!(ended < 1000, "an import that never ends");
    }
}

#[test]
fn an_import_that_ends_after_any_page_goes_on_to_the_same_content() {
    let database = Database::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let first = filled(31, &place("first"));
    run(async {
        let open = || async { PostgresTarget::open(&database.url, &LAX).await.unwrap() };
        let ended = with_interruptions(&place("first"), open).await;
        assert!(ended > 5, "ended only {ended} times");
        let source = PostgresSource::open(&database.url, &LAX).await.unwrap();
        assert_eq!(export(source, &place("second")).await.sections, first);
        let open = || async { SqliteTarget::open(&place("back.db"), &LAX_FILE).unwrap() };
        let ended = with_interruptions(&place("second"), open).await;
        assert!(ended > 5, "ended only {ended} times");
        let source = SqliteSource::open(&place("back.db")).unwrap();
        assert_eq!(export(source, &place("third")).await.sections, first);
    });
}

#[test]
fn a_half_imported_store_is_refused_by_everyone_but_its_own_import() {
    let database = Database::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    filled(32, &place("first"));
    filled(33, &place("other"));
    run(async {
        let running = Server::open(&database.url).await;
        let target = PostgresTarget::open(&database.url, &LAX).await.unwrap();
        let mut target = Failing { target, writes: 3, committed: true };
        import(&mut target, &place("first")).await.unwrap_err();
        drop(target);
        let error = PostgresStore::open(&database.url, &LAX).await.unwrap_err();
        assert!(matches!(error, OpenError::HalfImported), "{error}");
        // One that opened the store before finds it out when it first writes.
        let error = running.try_apply(vec![Command::Reset]).await.unwrap_err();
        assert!(error.to_string().contains("half imported"), "{error}");
        let error = PostgresSource::open(&database.url, &LAX).await.unwrap_err();
        assert!(matches!(error, OpenError::HalfImported), "{error}");
        let error = into_postgres(&database.url, &place("other")).await.unwrap_err();
        assert!(matches!(error, TransferError::OtherImport { .. }), "{error}");
        into_postgres(&database.url, &place("first")).await.unwrap();
        PostgresStore::open(&database.url, &LAX).await.unwrap();
        let error = into_postgres(&database.url, &place("first")).await.unwrap_err();
        assert!(matches!(error, TransferError::AlreadyImported), "{error}");
        let error = into_postgres(&database.url, &place("other")).await.unwrap_err();
        assert!(matches!(error, TransferError::NotEmpty { .. }), "{error}");
    });
}

#[test]
fn a_database_in_use_is_no_target() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        // It has said something to the database, so it is connected.
        server.store.now().await.unwrap();
        let error = PostgresTarget::open(&database.url, &LAX).await.unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        server.store.close().await.unwrap();
        let first = PostgresTarget::open(&database.url, &LAX).await.unwrap();
        let error = PostgresTarget::open(&database.url, &LAX).await.unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        drop(first);
        PostgresTarget::open(&database.url, &LAX).await.unwrap();
    });
}

/// Numbers go on above those that were moved, and what was running can be finished.
#[test]
fn work_goes_on_where_it_was() {
    let (from, to) = (Database::new().unwrap(), Database::new().unwrap());
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let server = Server::open(&from.url).await;
        let worker = server.worker().await;
        let ids = server.add(5).await;
        let running = server.claim(worker, 1).await.remove(0);
        server.store.close().await.unwrap();
        let source = PostgresSource::open(&from.url, &LAX).await.unwrap();
        export(source, &folder.path().join("export")).await;
        into_sqlite(&folder.path().join("between.db"), &folder.path().join("export"))
            .await
            .unwrap();
        let source = SqliteSource::open(&folder.path().join("between.db")).unwrap();
        export(source, &folder.path().join("back")).await;
        into_postgres(&to.url, &folder.path().join("back")).await.unwrap();

        let server = Server::open(&to.url).await;
        let reported = outlast_store::command::ReportedOutcome::Completed;
        let (job, epoch) = (running.job.id, running.epoch);
        server.one(crate::hand::finish(worker, job, epoch, reported)).await;
        let attempts = server.store.attempts(job).await.unwrap();
        assert_eq!(attempts.len(), 1, "nothing ran again");
        assert_eq!(attempts[0].outcome, Some(Outcome::Completed));
        server.add(3).await;
        let client = sql(&to.url).await;
        assert_eq!(number(&client, "select count(distinct seq) from job_row").await, 8);
        assert_eq!(number(&client, "select max(id) - count(*) from class").await, 0);
        let left = server.claim(worker, 100).await;
        assert_eq!(left.len(), 7);
        assert!(ids.contains(&left[0].job.id), "the oldest first");
    });
}

#[test]
fn every_table_and_column_is_moved_or_left_out_for_a_reason() {
    let database = Database::new().unwrap();
    let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    run(async {
        PostgresStore::open(&database.url, &LAX).await.unwrap();
        let rows = sql(&database.url)
            .await
            .query(
                "select c.relname::text, a.attname::text, format_type(a.atttypid, null)
                 from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
                 where c.relnamespace in ('public'::regnamespace, 'outlast'::regnamespace) and c.relkind in ('r', 'p')
                     and not c.relispartition and not a.attisdropped",
                &[],
            )
            .await
            .unwrap();
        for row in rows {
            found.entry(row.get(0)).or_default().push((row.get(1), row.get(2)));
        }
    });
    for section in SECTIONS {
        let columns = found.remove(section.name).unwrap_or_default();
        for column in section.columns {
            let known = columns.iter().find(|(name, _)| name == column.name);
            let types: &[&str] = match column.sort {
                Sort::Int => &["bigint", "integer", "smallint"],
                Sort::Flag => &["boolean"],
                Sort::Text => &["text"],
                Sort::Id => &["uuid"],
                Sort::Bytes => &["bytea"],
            };
            let fits = known.is_some_and(|(_, found)| types.contains(&found.as_str()));
            assert!(fits, "{}.{column:?}: {known:?}", section.name);
        }
        for (column, _) in &columns {
            let name = format!("{}.{column}", section.name);
            let moved = section.columns.iter().any(|moved| moved.name == column);
            let left_out = COLUMNS_LEFT_OUT.iter().any(|(left_out, _)| *left_out == name);
            assert!(moved || left_out, "{name} is neither moved nor left out for a reason");
        }
    }
    for (table, _) in TABLES_LEFT_OUT {
        assert!(found.remove(*table).is_some(), "{table} is left out and not there");
    }
    assert!(found.is_empty(), "neither moved nor left out for a reason: {found:?}");
}
