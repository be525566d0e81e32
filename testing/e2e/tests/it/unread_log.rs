//! F39: stderr is a pipe that nothing reads. A hung log driver must not decide when jobs end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use outlast_e2e::process::command;
use outlast_e2e::process_table::{self, ProcessId};
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{HEARTBEAT, KILL_AFTER, LEASE, eventually, poll, within};
use outlast_e2e::{Api, Run, Scene};
use rustix::process::Signal;
use serde_json::json;

/// A process whose stderr is a pipe that is full, and stays so while the reader is kept unread.
struct Unread {
    process: Child,
    reader: PipeReader,
}

impl Unread {
    fn start(mut command: Command) -> Self {
        let (reader, stderr) = io::pipe().expect("a pipe");
        fill(&stderr);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        Self { process: command.spawn().expect("the binary starts"), reader }
    }

    fn pid(&self) -> ProcessId {
        ProcessId::try_from(self.process.id()).expect("a process id")
    }

    fn signal(&self, signal: Signal) {
        process_table::signal(self.pid(), signal);
    }

    fn await_end(&mut self, bound: Duration) -> Option<i32> {
        let ended = poll(bound, || self.process.try_wait().expect("waiting for our child"));
        ended.unwrap_or_else(|| panic!("it did not end within {bound:?}")).code()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let below = process_table::descendants(self.pid());
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
        let alive = || below.iter().copied().filter(|pid| process_table::is_alive(*pid)).collect();
        let _left = process_table::kill_all(alive);
    }
}

/// Writes until nothing fits any more. The writer is opened again for that: not to wait is then
/// a property of this end alone.
fn fill(pipe: &PipeWriter) {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut writer: File =
        File::options().write(true).custom_flags(nonblocking).open(path).expect("the pipe");
    for piece in [&[b'.'; 4096][..], b"."] {
        while writer.write_all(piece).is_ok() {}
    }
}

fn worker(scene: &Scene) -> Unread {
    let packs = scene.folder().join("packs").display().to_string();
    let url = scene.server().url();
    let words = ["worker", "--server", &url, "--name", "unread", "--packs", &packs];
    let times = ["--heartbeat-interval", "200ms", "--shutdown-timeout", "120s"];
    let words: Vec<String> = words.iter().chain(&times).map(|word| (*word).to_owned()).collect();
    let mut command = command(&words);
    // Many lines, so that a queue of lines would be full as well.
    command.env("OUTLAST_LOG", "trace");
    Unread::start(command)
}

// The job ran on past its timeout, the first and second SIGTERM did nothing.
#[test]
fn a_worker_whose_log_is_not_read_ends_jobs_in_time_and_drains() {
    let scene = Scene::start();
    let mut worker = worker(&scene);
    let late = scene.run(Run::holding(Duration::from_secs(120)).with("timeout", json!(3)));
    scene.await_status(&late, "timeout", within(Duration::from_secs(3)));
    let cancelled = scene.run(Run::holding(Duration::from_secs(120)));
    scene.await_start(&cancelled, 1, within(LEASE));
    scene.cancel(&cancelled);
    scene.await_status(&cancelled, "cancelled", within(LEASE));
    let last = scene.run(Run::holding(Duration::from_secs(2)));
    scene.await_start(&last, 1, within(LEASE));
    worker.signal(Signal::TERM);
    scene.await_named_worker("unread", "draining", within(HEARTBEAT));
    assert_eq!(worker.await_end(within(Duration::from_secs(2))), Some(0));
    assert_eq!(scene.api().outcomes(&last), ["completed"]);
    scene.judge();
}

// The guardian waited for stderr as soon as an event did not fit into its socket to the engine, and
// then took no signal any more; SIGTERM was lost for good.
#[test]
fn a_termination_reaches_an_engine_that_was_stopped_behind_a_full_socket_and_a_full_log() {
    let scene = Scene::start();
    let mut worker = worker(&scene);
    scene.await_named_worker("unread", "running", within(LEASE));
    let engine = process_table::children(worker.pid())[0];
    process_table::signal(engine, Signal::STOP);
    let taken = |signal: Signal| {
        worker.signal(signal);
        eventually("the signal is taken", Duration::from_secs(10), || {
            (!process_table::is_pending(worker.pid(), signal)).then_some(())
        });
    };
    for _ in 0..700 {
        taken(Signal::TSTP);
        taken(Signal::CONT);
    }
    taken(Signal::TERM);
    process_table::signal(engine, Signal::CONT);
    assert_eq!(worker.await_end(within(LEASE)), Some(0));
    scene.judge();
}

/// An address that was free a moment ago: the log, which announces it, is not read.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    listener.local_addr().expect("its address").to_string()
}

#[test]
fn a_server_whose_log_is_not_read_serves_and_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let (address, store) = (free_address(), folder.path().join("outlast.db"));
    let store = format!("sqlite:{}", store.display());
    let words = ["server", "--listen", &address, "--database", &store].map(str::to_owned);
    let mut server = Unread::start(command(&words));
    let api = Api::new(&format!("http://{address}"));
    await_ready(&api, within(KILL_AFTER));
    // It says that it has reloaded its settings.
    server.signal(Signal::HUP);
    assert!(!api.ojs_enqueue("mail.send", &json!({})).is_empty());
    server.signal(Signal::TERM);
    assert_eq!(server.await_end(within(KILL_AFTER)), Some(0));
}

#[test]
fn lines_that_were_dropped_are_counted_once_the_log_is_read_again() {
    let scene = Scene::start();
    let mut worker = worker(&scene);
    let id = scene.await_named_worker("unread", "running", within(LEASE))["id"].clone();
    let id = id.as_str().expect("an id");
    // Each beat is some forty kilobytes at this level, and a megabyte is kept.
    let mut beats = BTreeSet::new();
    eventually("many beats", within(HEARTBEAT * 60), || {
        beats.insert(scene.api().try_worker(id)?["last_heartbeat"].to_string());
        (beats.len() > 60).then_some(())
    });
    let mut reader = worker.reader.try_clone().expect("the pipe");
    let reading = std::thread::spawn(move || {
        let mut log = Vec::new();
        reader.read_to_end(&mut log).map(|_| log)
    });
    worker.signal(Signal::TERM);
    assert_eq!(worker.await_end(within(LEASE)), Some(0));
    drop(worker);
    let log = reading.join().expect("a reader").expect("the pipe");
    let log = String::from_utf8_lossy(&log);
    let said = log.lines().find(|line| line.contains("log lines were dropped"));
    assert!(said.is_some_and(|line| line.contains("dropped")), "it never said so");
    scene.judge();
}
