//! Interpreters: found, asked, used; and named when they are missing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use outlast_worker::attempt::{Attempt, AttemptSpec, EndKind};
use outlast_worker::runtime::{Interpreters, Runtime};

use crate::support::shell;

/// The PATH of the test's own process, where this machine keeps its interpreters.
fn host_path() -> String {
    std::env::var_os("PATH").unwrap().into_string().unwrap()
}

async fn run_script(runtime: Runtime, name: &str, body: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join(name);
    fs::write(&script, body).unwrap();
    let interpreters = Interpreters::find(&host_path()).await;
    let line = interpreters.command_line(runtime, &script).unwrap();
    let spec = AttemptSpec {
        program: line.program.to_str().unwrap().to_owned(),
        args: line.args,
        ..shell("")
    };
    let ending = Attempt::spawn(spec).finished().await;
    let message = String::from_utf8_lossy(&ending.output.stderr.bytes).into_owned();
    assert_eq!(ending.kind, EndKind::Exited { code: 0 }, "{message}");
    String::from_utf8(ending.output.stdout.bytes).unwrap()
}

#[tokio::test]
async fn shell_script_runs_in_the_plain_shell() {
    assert_eq!(
        run_script(Runtime::Shell, "a.sh", "echo plain${BASH_VERSION:+bash}").await,
        "plain\n"
    );
}

#[tokio::test]
async fn shell_script_that_asks_for_bash_gets_it() {
    let body = "#!/usr/bin/env bash\nwords=(a b); echo ${#words[@]}\n";
    assert_eq!(run_script(Runtime::Shell, "a.sh", body).await, "2\n");
}

#[tokio::test]
async fn python_and_node_scripts_run_where_their_interpreters_are() {
    let interpreters = Interpreters::find(&host_path()).await;
    for (runtime, name, body) in
        [(Runtime::Python, "a.py", "print('hi')"), (Runtime::Node, "a.js", "console.log('hi')")]
    {
        let Ok(found) = interpreters.get(runtime) else { continue };
        assert!(!found.version.is_empty());
        assert!(found.program.is_absolute());
        assert_eq!(run_script(runtime, name, body).await, "hi\n");
    }
}

#[tokio::test]
async fn missing_interpreter_is_named_with_where_it_was_looked_for() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    let interpreters = Interpreters::find(path).await;
    assert!(interpreters.found().is_empty());
    let error = interpreters.command_line(Runtime::Python, empty.path()).unwrap_err();
    let expected = format!("no python interpreter: looked for python3, python in PATH {path}");
    assert_eq!(error.to_string(), expected);
}

/// Puts a program called `python3` into a folder; each start adds a line to `asked` there.
fn fake_python(folder: &Path, answer: &str) {
    let path = folder.join("python3");
    let asked = folder.join("asked").display().to_string();
    fs::write(&path, format!("#!/bin/sh\necho asked >> {asked}\n{answer}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
}

fn times_asked(folder: &Path) -> usize {
    fs::read_to_string(folder.join("asked")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn interpreter_that_does_not_start_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    fake_python(folder.path(), "exit 1");
    let interpreters = Interpreters::find(folder.path().to_str().unwrap()).await;
    assert!(interpreters.get(Runtime::Python).is_err());
}

#[tokio::test]
async fn broken_interpreter_is_asked_less_and_less_often_and_found_once_it_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    fake_python(folder.path(), "exit 1");
    let mut interpreters = Interpreters::find(folder.path().to_str().unwrap()).await;
    for _ in 0..30 {
        interpreters = interpreters.look(&[Runtime::Python]).await;
    }
    // At the start, and in looks 1, 3, 7, 15 and 27.
    assert_eq!(times_asked(folder.path()), 6);
    fake_python(folder.path(), "echo /bin/sh; echo 3.14");
    let again = interpreters.again().await;
    assert_eq!(again.get(Runtime::Python).unwrap().version, "3.14", "a request does not wait");
    for _ in 0..12 {
        interpreters = interpreters.look(&[Runtime::Python]).await;
    }
    assert_eq!(interpreters.get(Runtime::Python).unwrap().version, "3.14");
    assert_eq!(times_asked(folder.path()), 8, "what was found is not asked again");
}

#[test]
fn runtime_names_are_read_back() {
    for runtime in Runtime::ALL {
        assert_eq!(runtime.name().parse(), Ok(runtime));
    }
    assert_eq!("nodejs".parse(), Ok(Runtime::Node));
    assert!("ruby".parse::<Runtime>().is_err());
}
