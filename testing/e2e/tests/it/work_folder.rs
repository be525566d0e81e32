//! W11, W18: the folder that a worker is given to work in.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_e2e::process::command;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Process, Run, Scene, process_table};
use rustix::process::Signal;
use serde_json::json;

const NOBODY: u32 = 65534;

/// Starts a worker without rights: root finds no folder shut.
fn worker(scene: &Scene, work: &Path) -> Process {
    let (url, work) = (scene.api().url(), work.display().to_string());
    let arguments = ["worker", "--server", url, "--work-dir", &work].map(str::to_owned);
    let mut command = command(&arguments);
    command.uid(NOBODY).gid(NOBODY);
    Process::spawn("worker", command, scene.folder())
}

fn completes(scene: &Scene) {
    let job = scene.run(Run::action("core.echo").parameter("message", json!("hello")));
    scene.await_status(&job, "completed", within(LEASE));
}

/// The private folder of the only engine there was.
fn of_engine(work: &Path) -> PathBuf {
    let mut entries = fs::read_dir(work).unwrap().flatten().map(|entry| entry.path());
    entries.find(|path| path.is_dir()).expect("the engine's folder")
}

#[test]
fn a_work_folder_of_the_workers_own_is_used_repaired_and_cleaned() {
    let scene = Scene::start();
    fs::set_permissions(scene.folder(), Permissions::from_mode(0o755)).unwrap();
    let work = scene.folder().join("work");
    fs::create_dir(&work).unwrap();
    chown(&work, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut first = worker(&scene, &work);
    completes(&scene);

    // As systemd-tmpfiles does with files that have not been used for long.
    let left = of_engine(&work);
    fs::remove_dir_all(left.join("packs")).unwrap();
    completes(&scene);

    first.signal(Signal::STOP);
    for engine in process_table::children(first.pid()) {
        process_table::signal(engine, Signal::KILL);
    }
    first.kill();
    let shut = left.join("attempts/of-a-killed-one/shut");
    fs::create_dir_all(shut.join("inner")).unwrap();
    for folder in [&left.join("attempts/of-a-killed-one"), &shut, &shut.join("inner")] {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(&shut, Permissions::from_mode(0o0)).unwrap();
    // A lock is left alone in its first seconds.
    let lock = File::open(left.with_extension("lock")).unwrap();
    let past = lock.metadata().unwrap().modified().unwrap() - Duration::from_secs(60);
    lock.set_modified(past).unwrap();
    let _second = worker(&scene, &work);
    eventually("the next worker removes what is left", within(LEASE), || {
        (!left.exists()).then_some(())
    });
    completes(&scene);
    scene.judge();
}

// Every action of the built-in pack failed with "No such file".
#[test]
fn a_relative_work_folder_works_as_a_flag_and_as_tmpdir() {
    let scene = Scene::start();
    fs::create_dir(scene.folder().join("work")).unwrap();
    for (flags, tmpdir) in [(vec!["--work-dir", "work"], None), (vec![], Some("work"))] {
        let url = scene.api().url().to_owned();
        let words = [vec!["worker", "--server", &url], flags].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let mut command = command(&words);
        command.current_dir(scene.folder());
        if let Some(tmpdir) = tmpdir {
            command.env("TMPDIR", tmpdir);
        }
        let worker = Process::spawn("worker", command, scene.folder());
        completes(&scene);
        assert!(of_engine(&scene.folder().join("work")).is_dir());
        drop(worker);
        fs::remove_dir_all(scene.folder().join("work")).unwrap();
        fs::create_dir(scene.folder().join("work")).unwrap();
    }
    scene.judge();
}
