//! `outlast migrate`, with and without `--check`, by itself, beside a server, and by many.

use std::path::Path;
use std::time::Duration;

use outlast_cluster::{Database, Session};
use outlast_e2e::Scene;
use outlast_e2e::process::{Finished, run_to_end};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

fn check(database: &str) -> (Finished, Vec<String>) {
    let said = run_to_end(&["migrate", "--check", "-o", "json", "--database", database], PATIENCE);
    let items: Vec<Value> = serde_json::from_str(&said.stdout).unwrap_or_default();
    let pending = items.iter().filter(|item| item["state"] == "pending");
    let pending = pending.map(|item| item["migration"].to_string()).collect();
    (said, pending)
}

fn embedded(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("outlast.db").display())
}

/// Checks, migrates by several processes at once, and checks again.
fn migrate_by_many(database: &str) {
    let (said, pending) = check(database);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("`outlast migrate` applies them"), "{said:?}");
    assert!(pending.iter().any(|name| name.contains("0001_first")), "{pending:?}");
    let all: Vec<Finished> = std::thread::scope(|threads| {
        let migrating: Vec<_> = (0..6)
            .map(|_| threads.spawn(|| run_to_end(&["migrate", "--database", database], PATIENCE)))
            .collect();
        migrating.into_iter().map(|it| it.join().expect("a process")).collect()
    });
    assert!(all.iter().all(|said| said.code == Some(0)), "{all:?}");
    let applied = all.iter().filter(|said| said.stderr.contains("applied 0001_first"));
    assert_eq!(applied.count(), 1, "{all:?}");
    let (said, pending) = check(database);
    assert_eq!((said.code, pending.len()), (Some(0), 0), "{said:?}");
}

#[test]
fn embedded_store_is_migrated_once_by_whoever_comes_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = embedded(folder.path());
    let (said, _) = check(&database);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    migrate_by_many(&database);
}

#[test]
fn database_is_migrated_once_by_whoever_comes_first() {
    let database = Database::new().expect("PostgreSQL");
    migrate_by_many(&database.url);
}

#[test]
fn store_of_a_running_server_may_be_checked() {
    let scene = Scene::start();
    let database = scene.server().database();
    let (said, pending) = check(database);
    assert_eq!((said.code, pending.len()), (Some(0), 0), "{said:?}");
    let again = run_to_end(&["migrate", "--database", database], PATIENCE);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("was up to date"), "{again:?}");
}

#[test]
fn store_that_cannot_be_looked_at_is_no_pending_migration() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("outlast.db"), "x".repeat(4096)).expect("a file");
    for database in [embedded(folder.path()), "postgres://me@127.0.0.1:1/none".to_owned()] {
        let (said, _) = check(&database);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.starts_with("error: "), "{said:?}");
    }
}

/// The SQL of `docs/operate/deploy.md` removes all that a server made, and nothing else.
#[test]
fn uninstalling_leaves_nothing_behind_in_a_shared_database() {
    let page = include_str!("../../../../docs/operate/deploy.md");
    let statements = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next());
    let statements = statements.expect("SQL on the page");
    let database = Database::new().expect("PostgreSQL");
    let session = Session::open(&database.url).expect("a session");
    session.run("create table public.theirs (id int)").expect("a table");
    let made = "select (select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace
            where nspname not in ('pg_catalog', 'information_schema', 'pg_toast'))
        + (select count(*) from pg_proc p join pg_namespace n on n.oid = pronamespace
            where nspname not in ('pg_catalog', 'information_schema'))
        + (select count(*) from pg_type t join pg_namespace n on n.oid = typnamespace
            where nspname not in ('pg_catalog', 'information_schema', 'pg_toast'))";
    let before = session.number(made).expect("a number");
    let migrated = run_to_end(&["migrate", "--database", &database.url], PATIENCE);
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    assert!(session.number(made).expect("a number") > before + 50);
    session.run(statements).expect("the statements of the page");
    assert_eq!(session.number(made).expect("a number"), before);
    let again = run_to_end(&["migrate", "--database", &database.url], PATIENCE);
    assert_eq!(again.code, Some(0), "{again:?}");
}
