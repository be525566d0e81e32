//! The schema is what the snapshot says: a change of it is seen in review.

use rusqlite::Connection;

fn schema(db: &Connection) -> String {
    let mut select = db
        .prepare("select sql from sqlite_schema where sql is not null order by type, name")
        .unwrap();
    let rows = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|sql| format!("{};\n\n", sql.unwrap())).collect()
}

#[test]
fn migrations_from_empty_make_the_schema_of_the_snapshot() {
    let mut db = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut db).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.sql");
    let snapshot = std::fs::read_to_string(path).unwrap_or_default();
    let found = schema(&db);
    if found != snapshot {
        let fresh = std::env::temp_dir().join("outlast-schema.sql");
        std::fs::write(&fresh, found).unwrap();
        panic!("schema.sql is out of date: review and copy {}", fresh.display());
    }
}

/// A store of the first version has data in it; what comes later must not need it empty.
#[test]
fn migrations_from_the_first_version_make_the_same_schema() {
    let mut old = Connection::open_in_memory().unwrap();
    old.execute_batch(include_str!("../../migrations/0001_first.sql")).unwrap();
    old.execute_batch("insert into queue (name, paused) values ('q', 1)").unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let ran = outlast_store_sqlite::migrate(&mut old).unwrap();
    assert_eq!(ran, outlast_store_sqlite::SCHEMA_VERSION - 1);
    let mut new = Connection::open_in_memory().unwrap();
    outlast_store_sqlite::migrate(&mut new).unwrap();
    assert_eq!(schema(&old), schema(&new));
    let queues: u32 = old.query_row("select count(*) from queue", [], |row| row.get(0)).unwrap();
    assert_eq!(queues, 1);
}

#[test]
fn migrating_twice_changes_nothing() {
    let mut db = Connection::open_in_memory().unwrap();
    assert_eq!(
        outlast_store_sqlite::migrate(&mut db).unwrap(),
        outlast_store_sqlite::SCHEMA_VERSION
    );
    assert_eq!(outlast_store_sqlite::migrate(&mut db).unwrap(), 0);
}
