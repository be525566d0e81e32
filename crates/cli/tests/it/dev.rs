//! `outlast dev` and what it says when it cannot start.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::outlast;

#[test]
fn port_that_is_taken_is_named_and_nothing_is_left_running() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let said = outlast(&["dev", "--listen", &address, "--data", data.to_str().unwrap()]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains(&format!("cannot listen on {address}")), "{}", said.err);
    assert!(said.err.contains("--listen 127.0.0.1:0"), "it says the way out: {}", said.err);
    assert!(!data.exists(), "nothing was begun");
}

/// It once printed a command that asked port 8080, whatever port it had.
#[test]
fn command_that_is_printed_works_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut dev = Command::new(env!("CARGO_BIN_EXE_outlast"))
        .args(["dev", "--listen", "127.0.0.1:0", "--data", "data"])
        .current_dir(folder.path())
        .env_remove("OUTLAST_SERVER")
        .env_remove("OJS_URL")
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(dev.stderr.take().unwrap()).lines().map_while(Result::ok);
    let command = |line: String| line.split_once("try: outlast ").map(|it| it.1.to_owned());
    let printed = lines.into_iter().find_map(command).unwrap();
    let said = outlast(&printed.split(' ').collect::<Vec<_>>());
    kill_process(Pid::from_child(&dev), Signal::TERM).unwrap();
    let ended = dev.wait().unwrap();
    assert_eq!((said.code, said.out.as_str()), (0, "hi\n"), "{printed}: {}", said.err);
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn data_folder_that_cannot_be_made_is_named() {
    let said = outlast(&["dev", "--data", "/proc/nowhere/data"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("/proc/nowhere/data cannot be created"), "{}", said.err);
}

#[test]
fn reason_why_the_server_did_not_start_is_never_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Its end and its last words race to us: often enough to see both come first.
    for _ in 0..10 {
        let given = ["dev", "--listen", "127.0.0.1:0", "--packs", "/nowhere/packs", "--data"];
        let said = outlast(&[&given[..], &[data.to_str().unwrap()]].concat());
        assert_eq!(said.code, 1, "{}", said.err);
        assert!(said.err.contains("/nowhere/packs: cannot find pack folder"), "{}", said.err);
        assert!(said.err.contains("the server did not start"), "{}", said.err);
    }
}
