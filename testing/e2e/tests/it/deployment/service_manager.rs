//! What server and worker tell a service manager: systemd's protocol, without systemd.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use outlast_e2e::process::{Process, command, run_to_end};
use outlast_e2e::process_table;
use outlast_e2e::wait::{eventually, within};
use rustix::process::Signal;

const START: Duration = Duration::from_secs(30);

/// The manager's end: a socket, and the two variables that lead to it.
struct Manager {
    socket: UnixDatagram,
    variables: Vec<(String, String)>,
}

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(START)).unwrap();
        let variables = vec![
            ("NOTIFY_SOCKET".to_owned(), path.display().to_string()),
            ("WATCHDOG_USEC".to_owned(), "200000".to_owned()),
        ];
        Self { socket, variables }
    }

    fn start(&self, name: &str, words: &[&str], folder: &Path) -> Process {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut command = command(&words);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Process::spawn(name, command, folder)
    }

    /// Sends as many messages as the socket holds, so that the next one has to wait.
    fn fill(&self) {
        let filler = UnixDatagram::unbound().unwrap();
        filler.set_nonblocking(true).unwrap();
        let (_, path) = &self.variables[0];
        while filler.send_to(b"WATCHDOG=1", path).is_ok() {}
    }

    /// Reads messages up to this one, and returns those before it.
    fn await_message(&self, wanted: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let mut message = [0; 256];
            let read = self.socket.recv(&mut message);
            let read = read.unwrap_or_else(|error| panic!("no {wanted}: {error}, {before:?}"));
            let message = String::from_utf8_lossy(&message[..read]).trim().to_owned();
            if message == wanted {
                return before;
            }
            before.push(message);
        }
    }
}

#[test]
fn server_and_worker_say_when_they_are_ready_and_that_they_still_turn() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at(&folder.path().join("server.socket"));
    let database = format!("sqlite:{}", folder.path().join("outlast.db").display());
    let words = ["server", "--listen", "127.0.0.1:0", "--database", database.as_str()];
    let mut server = manager.start("server", &words, folder.path());
    manager.await_message("READY=1");
    let line = server.await_line("listening on http://", START);
    let url = line.split("listening on ").nth(1).unwrap().split_whitespace().next().unwrap();
    manager.await_message("WATCHDOG=1");

    let of_worker = Manager::at(&folder.path().join("worker.socket"));
    let words = ["worker", "--server", url, "--name", "one"];
    let mut worker = of_worker.start("worker", &words, folder.path());
    of_worker.await_message("READY=1");
    assert!(worker.log().contains("registered"), "{}", worker.log());
    of_worker.await_message("WATCHDOG=1");

    worker.signal(Signal::TERM);
    of_worker.await_message("STOPPING=1");
    assert_eq!(worker.await_end(within(START)), Some(0));
    server.signal(Signal::TERM);
    manager.await_message("STOPPING=1");
    assert_eq!(server.await_end(within(START)), Some(0));
}

/// A server once stood still while its service manager did not read what it was sent.
#[test]
fn service_manager_that_does_not_read_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at(&folder.path().join("server.socket"));
    let of_worker = Manager::at(&folder.path().join("worker.socket"));
    manager.fill();
    of_worker.fill();
    let database = format!("sqlite:{}", folder.path().join("outlast.db").display());
    let words = ["server", "--listen", "127.0.0.1:0", "--database", database.as_str()];
    let mut server = manager.start("server", &words, folder.path());
    let line = server.await_line("listening on http://", START);
    let url = line.split("listening on ").nth(1).unwrap().split_whitespace().next().unwrap();
    let mut worker =
        of_worker.start("worker", &["worker", "--server", url, "--name", "one"], folder.path());
    let _registered = worker.await_line("registered", START);
    let ran = run_to_end(&["run", "core.noop", "--server", url, "--wait"], START);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.await_end(within(START)), Some(0));
    server.signal(Signal::TERM);
    assert_eq!(server.await_end(within(START)), Some(0));
}

#[test]
fn a_worker_with_a_job_says_at_once_that_it_stops_and_the_job_knows_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("packs/spy");
    std::fs::create_dir_all(pack.join("actions")).unwrap();
    std::fs::write(pack.join("pack.yaml"), "ref: spy\n").unwrap();
    let action = "ref: spy.look\nrunner_type: shell\nentry_point: look.sh\n";
    std::fs::write(pack.join("actions/look.yaml"), action).unwrap();
    let script = "#!/bin/sh\nenv\nwhile [ ! -e \"$HOME/go\" ]; do sleep 0.05; done\n";
    std::fs::write(pack.join("actions/look.sh"), script).unwrap();
    let packs = folder.path().join("packs").display().to_string();
    let database = format!("sqlite:{}", folder.path().join("outlast.db").display());
    let words = ["server", "--listen", "127.0.0.1:0", "--packs", &packs, "--database", &database];
    let words: Vec<String> = words.map(ToOwned::to_owned).into();
    let mut server = Process::start("server", &words, folder.path());
    let line = server.await_line("listening on http://", START);
    let url = line.split("listening on ").nth(1).unwrap().split_whitespace().next().unwrap();

    let mut manager = Manager::at(&folder.path().join("worker.socket"));
    manager.variables.push(("HOME".to_owned(), folder.path().display().to_string()));
    let words = ["worker", "--server", url, "--packs", &packs, "--name", "one"];
    let mut worker = manager.start("worker", &words, folder.path());
    manager.await_message("READY=1");
    let started = run_to_end(&["run", "spy.look", "--server", url, "-o", "json"], START);
    let job: serde_json::Value = serde_json::from_str(&started.stdout).unwrap();
    let job = job["id"].as_str().unwrap().to_owned();
    let log = eventually("the job has looked around", START, || {
        let said = run_to_end(&["jobs", "logs", &job, "--server", url], START).stdout;
        said.contains("OUTLAST_JOB_ID").then_some(said)
    });
    for name in ["NOTIFY_SOCKET", "WATCHDOG"] {
        assert!(!log.contains(name), "{log}");
    }

    worker.signal(Signal::TERM);
    manager.await_message("STOPPING=1");
    // It asks for the time that the job may take, and still turns meanwhile.
    manager.await_message("EXTEND_TIMEOUT_USEC=20000000");
    manager.await_message("WATCHDOG=1");
    assert_eq!(worker.ended(), None, "its job runs");
    std::fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(worker.await_end(within(START)), Some(0));
}

#[test]
fn a_worker_whose_engine_is_stuck_does_not_say_that_it_turns() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at(&folder.path().join("worker.socket"));
    let words = ["worker", "--server", "http://127.0.0.1:1", "--name", "one"];
    let worker = manager.start("worker", &words, folder.path());
    manager.await_message("WATCHDOG=1");
    let engine = eventually("it has an engine", START, || {
        let below = process_table::descendants(worker.pid());
        below.into_iter().find(|pid| process_table::with_argument("engine").contains(pid))
    });
    process_table::signal(engine, Signal::STOP);
    // What was said before may still come.
    manager.socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let silence = (0..3).find(|_| manager.socket.recv(&mut [0; 256]).is_err());
    assert!(silence.is_some(), "a stopped engine goes on");
    process_table::signal(engine, Signal::CONT);
    manager.await_message("WATCHDOG=1");
}

#[test]
fn a_worker_that_no_server_knows_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::at(&folder.path().join("worker.socket"));
    let words = ["worker", "--server", "http://127.0.0.1:1", "--name", "one"];
    let _worker = manager.start("worker", &words, folder.path());
    for _ in 0..5 {
        assert_eq!(manager.await_message("WATCHDOG=1"), Vec::<String>::new());
    }
}
