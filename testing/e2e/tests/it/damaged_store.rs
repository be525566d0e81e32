//! A store that lost something is refused with the way out, and a backup is that way: what
//! workers hold from before it is void.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_cluster::Database;
use outlast_e2e::process::{Finished, run_to_end};
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Run, Scene, ServerOptions};

const PATIENCE: Duration = Duration::from_secs(60);

fn outlast(arguments: &[&str]) -> Finished {
    run_to_end(arguments, PATIENCE)
}

fn address(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// A server on an embedded store, whatever the others of this run are on.
fn embedded(folder: &Path) -> Scene {
    let database = address(&folder.join("outlast.db"));
    Scene::with(ServerOptions::default().database(&database))
}

/// Does something to the folder of a store.
type Damage = fn(&Path);

/// Copies the files of a store, and damages the copy.
fn damaged(from: &Path, name: &str, damage: Damage) -> PathBuf {
    let to = from.join(name);
    std::fs::create_dir(&to).expect("a folder");
    for suffix in ["", "-wal", ".mark"] {
        let file = format!("outlast.db{suffix}");
        let copied = std::fs::copy(from.join(&file), to.join(&file));
        // A store from before there were marks has none.
        assert!(copied.is_ok() || suffix == ".mark", "{file}: {copied:?}");
    }
    damage(&to);
    to.join("outlast.db")
}

#[test]
fn a_server_refuses_a_store_that_lost_something_and_says_the_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut scene = embedded(folder);
    for _ in 0..3 {
        scene.run(Run::short());
    }
    scene.server_mut().kill();
    let damages: [(&str, Damage); 5] = [
        ("emptied", |it| std::fs::write(it.join("outlast.db"), "").expect("cut")),
        ("removed", |it| std::fs::remove_file(it.join("outlast.db")).expect("removed")),
        ("no-log", |it| std::fs::remove_file(it.join("outlast.db-wal")).expect("removed")),
        ("zero-log", |it| {
            let log = it.join("outlast.db-wal");
            let length = std::fs::metadata(&log).expect("a log").len();
            let zeros = vec![0; usize::try_from(length).expect("a length")];
            std::fs::write(log, zeros).expect("zeroed");
        }),
        ("broken-head", |it| {
            let log = it.join("outlast.db-wal");
            let mut bytes = std::fs::read(&log).expect("a log");
            bytes[..4].fill(7);
            std::fs::write(log, bytes).expect("broken");
        }),
    ];
    for (name, damage) in damages {
        let store = address(&damaged(folder, name, damage));
        let said = outlast(&["server", "--listen", "127.0.0.1:0", "--database", &store]);
        assert_eq!(said.code, Some(1), "{name}: {said:?}");
        assert!(said.stderr.contains("is damaged: "), "{name}: {said:?}");
        assert!(said.stderr.contains("outlast restore FILE"), "{name}: {said:?}");
        let looked =
            ["doctor", "--server", "http://127.0.0.1:1", "--database", &store, "-o", "json"];
        let looked = outlast(&looked);
        assert!(looked.stdout.contains("is damaged: "), "{name}: {looked:?}");
    }
    // What is left can be accepted on request; an empty store cannot.
    let store = address(&folder.join("emptied/outlast.db"));
    assert_eq!(outlast(&["restore", "--mark-only", "--database", &store]).code, Some(1));
    let whole = damaged(folder, "whole", |it| {
        let mark = it.join("outlast.db.mark");
        let line = std::fs::read_to_string(&mark).expect("a mark");
        assert!(line.contains("log=1"), "{line}");
    });
    let (whole, backup) = (address(&whole), folder.join("backup.db").display().to_string());
    assert_eq!(outlast(&["backup", "--database", &whole, &backup]).code, Some(0));
    let said = outlast(&["restore", "--database", &store, &backup]);
    assert!(said.code == Some(0) && said.stderr.contains("generation 1"), "{said:?}");
    scene.server_mut().start_again_on(&store);
    await_ready(scene.api(), within(LEASE));
    let _worker = scene.worker("late");
    scene.judge();
}

#[test]
fn the_database_of_another_program_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let scene = embedded(folder.path());
    let backup = folder.path().join("other.db");
    let theirs = backup.display().to_string();
    let store = scene.server().database().to_owned();
    assert_eq!(outlast(&["backup", "--database", &store, &theirs]).code, Some(0));
    // The head of the file has the application id at byte 68.
    let mut bytes = std::fs::read(&backup).expect("a copy");
    bytes[68..72].fill(9);
    std::fs::write(&backup, &bytes).expect("a foreign file");
    let database = address(&backup);
    let said = outlast(&["server", "--listen", "127.0.0.1:0", "--database", &database]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("another program (application id 151587081"), "{said:?}");
    let looked = outlast(&["migrate", "--check", "--database", &database]);
    assert!(looked.code == Some(1) && looked.stderr.contains("another program"), "{looked:?}");
    assert_eq!(std::fs::read(&backup).expect("the file"), bytes);
}

#[test]
fn what_workers_hold_from_before_a_restore_is_void() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut scene = embedded(folder.path());
    let store = scene.server().database().to_owned();
    let backup = folder.path().join("backup.db").display().to_string();
    // One worker is in the backup, the other comes after it.
    let known = scene.worker("known");
    let held = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_status(&held, "running", within(LEASE));
    let later = scene.run(Run::short().with("queue", serde_json::json!("later")));
    let said = outlast(&["backup", "--database", &store, &backup]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(outlast(&["backup", "--database", &store, &backup]).code, Some(4));
    assert_eq!(outlast(&["restore", "--database", &store, &backup]).code, Some(4), "in use");
    let options = outlast_e2e::WorkerOptions::named("unknown").flag("--queues", "later");
    let unknown = scene.worker_with(&options);
    scene.await_status(&later, "completed", within(LEASE));
    assert_eq!(scene.server_mut().stop(), Some(0));
    let said = outlast(&["restore", "--database", &store, &backup]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let generation =
        said.stderr.split("generation ").nth(1).and_then(|rest| rest.split(';').next());
    let generation = generation.expect("a generation").to_owned();
    assert!(said.stderr.contains("; workers given up: 1"), "{said:?}");
    scene.server_mut().start_again();
    await_ready(scene.api(), within(LEASE));
    let done = scene.await_status(&held, "completed", within(LEASE));
    assert_eq!(scene.api().outcomes(&held), ["lost", "completed"], "{done}");
    let evidence = scene.api().attempts(&held)[0]["evidence"].to_string();
    assert!(evidence.contains("the store was restored"), "{evidence}");
    assert_eq!(scene.api().attempts(&held)[0]["evidence_code"], "restored");
    // It had completed after the backup, under a worker that this store never heard of.
    let done = scene.await_status(&later, "completed", within(LEASE));
    assert_ne!(done["worker"]["id"], unknown.id(), "{done}");
    for worker in [&known, &unknown] {
        eventually("the worker was turned away", within(LEASE), || {
            worker.log().contains("worker lapsed").then_some(())
        });
    }
    let reason = format!("it is of generation {generation}");
    assert!(unknown.log().contains(&reason), "{reason}: {}", unknown.log());
}

#[test]
fn a_restored_postgresql_is_marked_once_no_server_uses_it() {
    let database = Database::new().expect("PostgreSQL");
    let mut scene = Scene::with(ServerOptions::default().database(&database.url));
    let mark = || outlast(&["restore", "--mark-only", "--database", &database.url]);
    let said = mark();
    assert!(said.code == Some(4) && said.stderr.contains("stop the servers"), "{said:?}");
    assert_eq!(scene.server_mut().stop(), Some(0));
    let said = mark();
    assert!(said.code == Some(0) && said.stderr.contains("generation 1"), "{said:?}");
    for command in [["backup", "file"], ["restore", "file"]] {
        let said = outlast(&[&command[..], &["--database", &database.url]].concat());
        assert!(said.code == Some(2) && said.stderr.contains("its own tools"), "{said:?}");
    }
    scene.server_mut().start_again();
    await_ready(scene.api(), within(LEASE));
}
