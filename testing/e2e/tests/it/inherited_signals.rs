//! F40: the state of signals that a process inherits, and a stop right after the start.

use std::process::Command;
use std::time::{Duration, Instant};

use outlast_e2e::process::{below, command};
use outlast_e2e::process_table::{self, ProcessId};
use outlast_e2e::wait::{KILL_AFTER, LEASE, within};
use outlast_e2e::{Process, Run, Scene, Worker, WorkerOptions};
use rustix::process::Signal;

const EXIT: Duration = Duration::from_secs(2);

const IGNORING: [&str; 2] = ["env", "--ignore-signal=CHLD"];
const BLOCKING: [&str; 2] = ["env", "--block-signal"];

fn worker_below(parent: &[&str], scene: &Scene, name: &str) -> Worker {
    scene.worker_with(&WorkerOptions::named(name).below(parent))
}

/// A command line below a parent that ignores or blocks signals.
fn started_by(parent: &[&str], arguments: &[&str]) -> Command {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut command = below(&owned(parent), &command(&owned(arguments)));
    // It makes the process start itself again, with the variable out of sight.
    command.env("OUTLAST_TOKEN", TOKEN);
    command
}

const TOKEN: &str = "outlast_0123456789abcdefghij";

/// Waits without a pause: the moment is short.
fn await_blocked(pid: ProcessId) {
    let began = Instant::now();
    while !process_table::is_blocked(pid, Signal::TERM) {
        assert!(began.elapsed() < within(EXIT), "it never held SIGTERM back");
        std::thread::yield_now();
    }
}

// The kernel reaped the engine by itself, and the guardian never ended.
#[test]
fn a_worker_drains_and_exits_whatever_its_parent_does_with_signals() {
    let scene = Scene::start();
    for parent in [IGNORING, BLOCKING] {
        let mut worker = worker_below(&parent, &scene, "leaver");
        let job = scene.run(Run::holding(Duration::from_secs(1)));
        scene.await_start(&job, 1, within(LEASE));
        worker.terminate();
        assert_eq!(worker.await_end(within(EXIT)), Some(0), "{parent:?}");
        assert_eq!(scene.api().outcomes(&job), ["completed"]);
    }
    scene.judge();
}

#[test]
fn the_death_of_an_engine_is_noticed_and_reported_whatever_its_parent_does_with_signals() {
    let scene = Scene::start();
    let worker = worker_below(&IGNORING, &scene, "victim");
    let job = scene.run(Run::holding_once(Duration::from_secs(120)));
    scene.await_start(&job, 1, within(LEASE));
    worker.kill_engine();
    scene.await_status(&job, "completed", within(LEASE));
    let first = scene.api().attempts(&job)[0].to_string();
    assert!(first.contains("engine_killed"), "{first}");
    scene.judge();
}

#[test]
fn server_and_dev_stop_whatever_their_parent_does_with_signals() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("outlast.db").display());
    let data = folder.path().join("data").display().to_string();
    for parent in [IGNORING, BLOCKING] {
        for (arguments, up) in [
            (["server", "--listen", "127.0.0.1:0", "--database", &store], "listening on"),
            (["dev", "--listen", "127.0.0.1:0", "--data", &data], "Outlast is at"),
        ] {
            let command = started_by(&parent, &arguments);
            let mut process = Process::spawn(arguments[0], command, folder.path());
            let _line = process.await_line(up, within(KILL_AFTER));
            process.signal(Signal::TERM);
            assert_eq!(process.await_end(within(KILL_AFTER)), Some(0), "{parent:?} {arguments:?}");
        }
    }
}

/// Its parent has blocked SIGTERM, which closes the moment before the program begins.
#[test]
fn a_stop_that_comes_first_of_all_ends_server_worker_and_dev_with_code_zero() {
    let scene = Scene::start();
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("outlast.db").display());
    let data = folder.path().join("data").display().to_string();
    let url = scene.server().url();
    for arguments in [
        ["server", "--listen", "127.0.0.1:0", "--database", &store],
        ["dev", "--listen", "127.0.0.1:0", "--data", &data],
        ["worker", "--server", &url, "--name", "brief"],
    ] {
        let command = started_by(&["env", "--block-signal=TERM"], &arguments);
        let mut process = Process::spawn("brief", command, folder.path());
        await_blocked(process.pid());
        process.signal(Signal::TERM);
        let code = process.await_end(within(KILL_AFTER));
        assert_eq!(code, Some(0), "{arguments:?}: {}", process.log());
    }
}

// It was killed by a SIGTERM that came while it read its arguments, or lost it as process 1.
#[test]
fn stops_are_held_back_before_a_process_starts_itself_again() {
    let scene = Scene::start();
    let folder = tempfile::tempdir().expect("a folder");
    let url = scene.server().url();
    let is_seen = (0..100).any(|_| {
        let command = started_by(&["env"], &["worker", "--server", &url, "--name", "brief"]);
        let mut process = Process::spawn("brief", command, folder.path());
        let pid = process.pid();
        await_blocked(pid);
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        process.signal(Signal::TERM);
        assert_eq!(process.await_end(within(EXIT)), Some(0), "{}", process.log());
        String::from_utf8_lossy(&variables).contains(TOKEN)
    });
    assert!(is_seen, "SIGTERM was held back only by a process that had started itself again");
}
