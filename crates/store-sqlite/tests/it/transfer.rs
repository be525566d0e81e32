//! Moving a store: what is damaged, not empty, half there or in use is refused by name, and
//! nothing that a store holds is forgotten.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use outlast_store::Store as _;
use outlast_store_rules::transfer::drive::{self, Label};
use outlast_store_rules::transfer::folder::Manifest;
use outlast_store_rules::transfer::section::{SECTIONS, Section, Sort};
use outlast_store_rules::transfer::{Page, TransferError};
use outlast_store_sqlite::{OpenError, Options, SqliteSource, SqliteStore, SqliteTarget};
use outlast_store_testkit::conformance::random;
use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;

use crate::contract::Files;

/// Tables that are not moved.
const TABLES_LEFT_OUT: &[(&str, &str)] = &[
    ("meta", "the store's own: its time goes with the manifest, its migrations are its own"),
    ("tally", "follows from where the jobs are"),
    ("queue_tally", "follows from where the jobs are"),
    ("ready_second", "follows from where the jobs are"),
    ("class_block", "follows from the jobs' numbers"),
    ("transfer", "how far imports into this store came"),
    ("gate", "limits count from zero after an import"),
    ("browser_session", "who is signed in signs in again at the new store"),
    (
        "operation",
        "what had not ended when the store was exported is asked for again at the new one",
    ),
];

/// Columns that are not moved.
const COLUMNS_LEFT_OUT: &[(&str, &str)] = &[
    ("ready.lane", "a copy of job_row.lane"),
    ("active.gates", "limits begin again with an import"),
    ("worker.last_heartbeat", "for people; made of last_heartbeat_ms"),
    ("worker.created", "for people; made of created_ms"),
    ("worker.updated", "for people; made of updated_ms"),
];

const LAX: Options = Options { unsafe_no_fsync: true, clock: None };

fn wait<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(call)
}

fn label(n: u128) -> Label {
    Label { export: Uuid::from_u128(n), outlast: "0".into(), taken: "now".into() }
}

/// A store that a random script has filled, and its export.
struct Filled {
    folder: TempDir,
    manifest: Manifest,
}

impl Filled {
    fn new(seed: u64) -> Self {
        let files = Files::new();
        let store = random::fill(&files, seed);
        let source = store.path().to_owned();
        let folder = tempfile::tempdir().unwrap();
        // While the store is open: a copy needs no stop.
        let manifest = export(&source, &folder.path().join("export"), u128::from(seed)).unwrap();
        wait(store.close()).unwrap();
        Self { folder, manifest }
    }

    fn export(&self) -> PathBuf {
        self.folder.path().join("export")
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("target.db")
    }

    fn import(&self) -> Result<Manifest, TransferError> {
        import(&self.target(), &self.export())
    }
}

fn export(store: &Path, folder: &Path, n: u128) -> Result<Manifest, TransferError> {
    let mut source = SqliteSource::open(store).unwrap();
    wait(drive::export(&mut source, folder, label(n), Page::STANDARD, &mut |_, _, _| {}))
}

fn import(store: &Path, folder: &Path) -> Result<Manifest, TransferError> {
    let mut target = SqliteTarget::open(store, &LAX).unwrap();
    let done = wait(drive::import(&mut target, folder, Page::STANDARD, &mut |_, _, _| {}));
    target.close().unwrap();
    done
}

#[test]
fn every_table_and_column_is_moved_or_left_out_for_a_reason() {
    let mut db = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut db).unwrap();
    let mut select = db
        .prepare(
            "select t.name, c.name from sqlite_schema t, pragma_table_info(t.name) c
             where t.type = 'table'",
        )
        .unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows {
        let (table, column): (String, String) = row.unwrap();
        found.entry(table).or_default().push(column);
    }
    for section in SECTIONS {
        let columns = found.remove(section.name).unwrap_or_default();
        for column in section.columns {
            assert!(columns.iter().any(|name| name == column.name), "{section:?}: {column:?}");
        }
        for column in &columns {
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

/// The key that pages are read by is one by which no two rows are the same.
#[test]
fn keys_of_sections_are_keys_of_tables() {
    let mut db = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut db).unwrap();
    for section in SECTIONS {
        let sql = "select name from pragma_table_info(?) where pk > 0 order by pk";
        let mut select = db.prepare(sql).unwrap();
        let rows = select.query_map([section.name], |row| row.get::<_, String>(0)).unwrap();
        let key: Vec<String> = rows.map(Result::unwrap).collect();
        let ours: Vec<&str> = section.key_columns().iter().map(|column| column.name).collect();
        assert_eq!(key, ours, "{}", section.name);
    }
}

#[test]
fn a_store_goes_through_an_export_into_another_and_says_so_only_once() {
    let filled = Filled::new(11);
    assert!(filled.manifest.rows() > 50, "{:?}", filled.manifest);
    let imported = filled.import().unwrap();
    assert_eq!(imported, filled.manifest);
    let again = export(&filled.target(), &filled.folder.path().join("again"), 2).unwrap();
    assert_eq!(again.sections, filled.manifest.sections);
    assert!(matches!(filled.import(), Err(TransferError::AlreadyImported)));
    // A server may use it now.
    wait(SqliteStore::open(&filled.target(), &LAX).unwrap().close()).unwrap();
}

#[test]
fn an_export_takes_a_folder_that_is_empty_or_that_it_was_begun_in_and_no_other() {
    let filled = Filled::new(12);
    let (source, there) = (filled.target(), filled.export());
    filled.import().unwrap();
    let error = export(&source, &there, 3).unwrap_err();
    assert!(error.to_string().ends_with("already holds an export"), "{error}");
    // As if it had been cut off.
    std::fs::remove_file(there.join("manifest.json")).unwrap();
    let error = import(&filled.folder.path().join("new.db"), &there).unwrap_err();
    assert!(matches!(error, TransferError::Unfinished { .. }), "{error}");
    export(&source, &there, 3).unwrap();
    std::fs::write(filled.folder.path().join("letter"), "dear").unwrap();
    let error = export(&source, filled.folder.path(), 4).unwrap_err();
    assert!(matches!(error, TransferError::Occupied { .. }), "{error}");
    assert!(filled.folder.path().join("letter").exists());
}

fn damage(filled: &Filled, file: &str, harm: impl FnOnce(Vec<u8>) -> Vec<u8>) -> String {
    let path = filled.export().join(file);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, harm(whole.clone())).unwrap();
    let error = filled.import().unwrap_err();
    let check = drive::check(&filled.export(), &mut |_, _, _| {}).unwrap_err();
    assert_eq!(error.to_string(), check.to_string());
    std::fs::write(&path, whole).unwrap();
    error.to_string()
}

#[test]
fn a_damaged_file_is_told_by_name_and_line_and_nothing_of_it_is_stored() {
    let filled = Filled::new(13);
    let lines = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    };
    let rows = filled.manifest.digest("job_row").unwrap().rows;
    assert!(rows > 3, "{rows}");
    let flipped = |at: usize| {
        move |mut text: Vec<u8>| {
            let start: usize = lines(&text).iter().take(2).map(Vec::len).sum();
            text[start + at] ^= 1;
            text
        }
    };
    // In its frame, its sum, and its row.
    for at in [0, 10, 40, 60] {
        let said = damage(&filled, "job_row.jsonl", flipped(at));
        assert!(said.contains("job_row.jsonl is damaged at line 3: "), "byte {at}: {said}");
    }
    let cut_in_line = damage(&filled, "job_row.jsonl", |mut text| {
        text.truncate(text.len() - 5);
        text
    });
    assert!(cut_in_line.contains(&format!("at line {rows}: it is cut off")), "{cut_in_line}");
    let cut = damage(&filled, "job_row.jsonl", |text| lines(&text)[..2].concat());
    assert!(cut.contains(&format!("at line 3: it ends here, {rows} lines were")), "{cut}");
    let swapped = damage(&filled, "job_row.jsonl", |text| {
        let mut lines = lines(&text);
        lines.swap(0, 1);
        lines.concat()
    });
    assert!(swapped.contains("at line 1: its sum"), "{swapped}");
    let added = damage(&filled, "job_row.jsonl", |text| {
        let mut lines = lines(&text);
        lines.push(lines[0].clone());
        lines.concat()
    });
    assert!(added.contains(&format!("at line {}: the export has", rows + 1)), "{added}");
    let emptied = damage(&filled, "event_batch.jsonl", |_| Vec::new());
    assert!(emptied.contains("event_batch.jsonl is damaged at line 1"), "{emptied}");
    let manifest = damage(&filled, "manifest.json", |text| {
        let text = String::from_utf8(text).unwrap();
        text.replacen("\"rows\":", "\"rows\":1", 1).into_bytes()
    });
    assert!(manifest.contains("manifest.json is damaged: its sum"), "{manifest}");
    // The target was never touched.
    assert_eq!(filled.import().unwrap(), filled.manifest);
}

#[test]
fn a_file_that_is_missing_is_named() {
    let filled = Filled::new(14);
    std::fs::remove_file(filled.export().join("log.jsonl")).unwrap();
    let said = filled.import().unwrap_err().to_string();
    assert!(said.ends_with("log.jsonl is damaged: the file is missing"), "{said}");
}

#[test]
fn a_store_with_data_or_with_a_server_is_no_target() {
    let filled = Filled::new(15);
    let store = SqliteStore::open(&filled.target(), &LAX).unwrap();
    let error = SqliteTarget::open(&filled.target(), &LAX).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    wait(store.close()).unwrap();
    let db = Connection::open(filled.target()).unwrap();
    db.execute_batch("insert into queue (name, paused) values ('q', 1)").unwrap();
    let error = filled.import().unwrap_err();
    assert!(
        matches!(&error, TransferError::NotEmpty { tables } if tables == &["queue", "event_lane"]),
        "{error}"
    );
    let marks: u32 = db.query_row("select count(*) from transfer", [], |row| row.get(0)).unwrap();
    assert_eq!(marks, 0, "a store that is refused is not marked");
}

#[test]
fn what_was_stored_otherwise_than_exported_is_found() {
    let filled = Filled::new(16);
    filled.import().unwrap();
    let db = Connection::open(filled.target()).unwrap();
    db.execute_batch(
        "update job_row set args = args || ' ' where seq = (select min(seq) from job_row)",
    )
    .unwrap();
    let mut source = SqliteSource::open(&filled.target()).unwrap();
    let hear = &mut |_, _, _| {};
    let compared = wait(drive::compare(&mut source, &filled.manifest, Page::STANDARD, hear));
    let error = compared.unwrap_err();
    assert!(matches!(&error, TransferError::Differs { section: "job_row", .. }), "{error}");
}

#[test]
fn a_store_of_an_older_build_is_not_exported_by_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.db");
    let mut old = Connection::open(&path).unwrap();
    outlast_store_sqlite::migrate(&mut old).unwrap();
    old.execute_batch("delete from meta where key like 'migration %'").unwrap();
    let error = SqliteSource::open(&path).unwrap_err();
    assert!(error.to_string().contains("`outlast export` of that build"), "{error}");
}

#[test]
fn sorts_of_columns_are_those_of_the_tables() {
    let mut db = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut db).unwrap();
    let type_of = |section: &Section, column: &str| -> String {
        let sql = "select type from pragma_table_info(?) where name = ?";
        db.query_row(sql, [section.name, column], |row| row.get(0)).unwrap()
    };
    for section in SECTIONS {
        for column in section.columns {
            let expected = match column.sort {
                Sort::Int | Sort::Flag => "integer",
                Sort::Text => "text",
                Sort::Id if section.name == "worker" => "text",
                Sort::Id | Sort::Bytes => "blob",
            };
            let found = type_of(section, column.name).to_lowercase();
            assert_eq!(found, expected, "{}.{}", section.name, column.name);
        }
    }
}
