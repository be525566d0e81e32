//! Log lines.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A reader of the log that goes away must not take a server, or a worker and its jobs, with it.
#[test]
fn a_log_that_nobody_reads_any_more_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("jobs.db").display());
    let mut server = Command::new(env!("CARGO_BIN_EXE_outlast"))
        .args(["server", "--listen", "127.0.0.1:0", "--database", &database])
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&server);
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines();
    let listening = log.by_ref().map_while(Result::ok).any(|line| line.contains("listening on"));
    drop(log);
    // Both are logged.
    kill_process(pid, Signal::HUP).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = server.wait().unwrap();
    assert!(listening);
    assert_eq!((ended.code(), ended.signal()), (Some(0), None));
}
