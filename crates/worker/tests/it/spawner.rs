//! The process that forks shims may be killed or stopped at any moment, and shows no attempt anything
//! of another one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast_worker::OwnProgram;
use outlast_worker::attempt::{Attempt, AttemptSpec, EndKind};
use outlast_worker::clock::boot_now;
use outlast_worker::containment::Containment;
use rustix::process::{Pid, Signal, getpid, kill_process, test_kill_process};

use crate::support::{
    Host, arguments, children_of, escape_artist, eventually, gone_within, is_gone, is_zombie,
    marker, memory_of, shell, shell_marked, shims, spawners_of,
};

/// A script that says `ready` by making that file, and ends when there is `go`.
fn waits(folder: &Path) -> String {
    let folder = folder.display();
    format!(": > {folder}/ready; while [ ! -e {folder}/go ]; do sleep 0.02; done; echo done")
}

/// The spawner of this test, once an attempt has been run.
fn own_spawner() -> Pid {
    spawners_of(getpid())[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_is_forked_by_the_spawner_and_is_a_child_of_the_engine() {
    for containment in Containment::ALL {
        let folder = tempfile::tempdir().unwrap();
        let label = format!("forked-{}", marker());
        let spec = shell(&waits(folder.path()));
        let attempt = Attempt::spawn(AttemptSpec { containment, label: label.clone(), ..spec });
        eventually("the job runs", || folder.path().join("ready").exists());
        let halves = shims(&label);
        assert_eq!(halves.len(), 2, "{containment}");
        assert!(children_of(getpid()).contains(&halves[0]), "{containment}");
        assert_eq!(children_of(halves[0]), [halves[1]], "{containment}");
        assert_eq!(children_of(own_spawner()), [], "{containment}");
        fs::write(folder.path().join("go"), "").unwrap();
        assert_eq!(attempt.finished().await.kind, EndKind::Exited { code: 0 });
        assert!(children_of(getpid()).iter().all(|child| arguments(*child) != ["outlast", "shim"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_go_on_when_their_spawner_is_killed_and_others_start() {
    for containment in Containment::ALL {
        let folder = tempfile::tempdir().unwrap();
        let spec = AttemptSpec { containment, ..shell(&waits(folder.path())) };
        let attempt = Attempt::spawn(spec);
        eventually("the job runs", || folder.path().join("ready").exists());
        let killed = own_spawner();
        kill_process(killed, Signal::KILL).unwrap();
        // While it dies it may still be asked, twice, and then the program is executed.
        eventually("the spawner has ended", || is_gone(killed));
        let next = Attempt::spawn(AttemptSpec { containment, ..shell("echo next") }).finished();
        assert_eq!(next.await.output.stdout.bytes, b"next\n", "{containment}");
        assert_ne!(own_spawner(), killed, "{containment}: another one has taken its place");
        fs::write(folder.path().join("go"), "").unwrap();
        let ending = attempt.finished().await;
        assert_eq!(ending.kind, EndKind::Exited { code: 0 }, "{containment}");
        assert!(ending.tree_empty && ending.output.stdout.bytes == b"done\n", "{containment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spawner_that_stands_still_is_replaced_and_the_job_runs_once() {
    assert_eq!(Attempt::spawn(shell(":")).finished().await.kind, EndKind::Exited { code: 0 });
    let frozen = own_spawner();
    kill_process(frozen, Signal::STOP).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let ending = Attempt::spawn(shell(&format!("echo x >> {}", ran.display()))).finished().await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    assert_eq!(fs::read_to_string(&ran).unwrap(), "x\n");
    assert_ne!(own_spawner(), frozen);
    Attempt::spawn(shell(":")).finished().await;
    assert!(test_kill_process(frozen).is_err(), "it is reaped");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_runs_once_or_is_known_not_to_have_run_while_spawners_are_killed() {
    const JOBS: usize = 60;
    static DONE: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let mut expected = Vec::new();
    let killer = std::thread::spawn(|| {
        let mut killed = 0_u32;
        while !DONE.load(Ordering::Relaxed) {
            for spawner in spawners_of(getpid()) {
                killed += u32::from(kill_process(spawner, Signal::KILL).is_ok());
            }
        }
        killed
    });
    for round in 0..JOBS / 10 {
        let attempts: Vec<Attempt> = (0..10)
            .map(|number| {
                let script = format!("echo {round}-{number} >> {}", ran.display());
                let containment = Containment::ALL[number % 3];
                Attempt::spawn(AttemptSpec { containment, ..shell(&script) })
            })
            .collect();
        for (number, attempt) in (0..).zip(attempts) {
            let ending = attempt.finished().await;
            assert!(ending.tree_empty, "{:?}", ending.kind);
            let line = format!("{round}-{number}");
            match ending.kind {
                EndKind::Exited { code: 0 } => expected.push(line),
                // A shim that has just been forked looks like a spawner, and is killed like one.
                EndKind::SpawnFailed(_) if !ending.executed => {}
                other => panic!("{line}: {other}"),
            }
        }
    }
    DONE.store(true, Ordering::Relaxed);
    assert!(killer.join().unwrap() > 0, "some were killed");
    let text = fs::read_to_string(&ran).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected, "what was said to have run, once each");
    assert!(expected.len() > JOBS / 2, "most did: {expected:?}");
    Attempt::spawn(shell(":")).finished().await;
    eventually("no child is left as a zombie", || {
        children_of(getpid()).iter().all(|child| !is_zombie(*child))
    });
}

#[test]
fn spawner_shim_and_engine_killed_in_any_order_leave_nothing() {
    const ORDERS: [[usize; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for containment in Containment::ALL {
        let folder = tempfile::tempdir().unwrap();
        let running = ORDERS.map(|order| {
            let (marker, ready) =
                (marker(), folder.path().join(order.map(|it| it.to_string()).concat()));
            let script = escape_artist(&ready, "while :; do sleep 0.05; done");
            let engine = Host::start(&["engine", containment.name(), "0", &marker, &script]);
            (order, marker, ready, engine)
        });
        for (order, marker, ready, engine) in running {
            eventually("the artist is loose", || ready.exists());
            let label = format!("engine-{}", engine.pid().as_raw_nonzero());
            let all = [spawners_of(engine.pid())[0], shims(&label)[0], engine.pid()];
            let began = boot_now();
            for each in order {
                kill_process(all[each], Signal::KILL).unwrap();
            }
            gone_within(&marker, began, 2000);
            eventually("the spawner is gone", || is_gone(all[0]));
        }
    }
}

#[test]
fn a_spawner_ends_with_its_engine() {
    let engine = Host::start(&["engine", "pidns", "0", &marker(), "sleep 60"]);
    eventually("it has a spawner", || !spawners_of(engine.pid()).is_empty());
    let spawner = spawners_of(engine.pid())[0];
    // Those that ask a process to end are for the engine to obey.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::PIPE, Signal::USR1] {
        kill_process(spawner, signal).unwrap();
    }
    let label = format!("engine-{}", engine.pid().as_raw_nonzero());
    eventually("the shim is there", || shims(&label).len() == 2);
    assert_eq!(spawners_of(engine.pid()), [spawner]);
    engine.signal(Signal::KILL);
    eventually("the spawner is gone", || is_gone(spawner));
}

/// Runs an attempt that was given a secret in every way there is.
async fn run_with(secret: &str, containment: Containment) {
    let spec = shell_marked("cat > /dev/null", secret);
    let mut env = spec.env.clone();
    env.push(("SECRET".to_owned(), secret.to_owned()));
    let stdin = secret.as_bytes().to_vec();
    let ending = Attempt::spawn(AttemptSpec { containment, env, stdin, ..spec }).finished().await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_attempt_finds_nothing_of_the_one_before() {
    // It reads what it can of every process that it sees, itself excepted. Root may read the spawner's
    // environment and list of mappings, in which there is nothing.
    let looks = "for one in /proc/[0-9]*; do
            [ $one = /proc/$$ ] && continue
            tr '\\0' '\\n' < $one/environ; tr '\\0' '\\n' < $one/cmdline; readlink $one/fd/*
        done 2> /dev/null
        for file in mem fd/0; do
            (: < /proc/$SPAWNER/$file) 2> /dev/null && echo \"opened $file\"
        done; echo end";
    for containment in Containment::ALL {
        let (before, own) = (marker(), marker());
        run_with(&before, containment).await;
        let spec = shell_marked(&format!("sleep 60 & {looks}; kill $!"), "job");
        let mut env = spec.env.clone();
        env.push(("OWN".to_owned(), own.clone()));
        env.push(("SPAWNER".to_owned(), own_spawner().as_raw_nonzero().to_string()));
        let ending = Attempt::spawn(AttemptSpec { containment, env, ..spec }).finished().await;
        let said = String::from_utf8_lossy(&ending.output.stdout.bytes).into_owned();
        assert!(said.contains(&own), "{containment}: what can be seen is seen: {said}");
        assert!(said.ends_with("end\n") && !said.contains(&before), "{containment}: {said}");
        assert!(!said.contains("opened"), "{containment}: the spawner is closed: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spawner_keeps_nothing_of_an_attempt() {
    let secret = marker();
    for containment in Containment::ALL {
        run_with(&secret, containment).await;
    }
    let memory = memory_of(own_spawner());
    let has = |text: &str| memory.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("outlast\0spawner"), "the memory was read");
    assert!(!has(&secret));
    let folder = format!("/proc/{}", own_spawner().as_raw_nonzero());
    assert_eq!(fs::read(format!("{folder}/environ")).unwrap(), b"");
    let open = fs::read_dir(format!("{folder}/fd")).unwrap().flatten();
    let open: Vec<String> =
        open.map(|entry| fs::read_link(entry.path()).unwrap().display().to_string()).collect();
    assert_eq!(open.len(), 3, "{open:?}");
    assert_eq!(open.iter().filter(|file| *file == "/dev/null").count(), 2, "{open:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shims_share_no_pipe_and_no_socket() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut labels = Vec::new();
    let mut attempts = Vec::new();
    for (folder, containment) in folders.iter().zip(Containment::ALL) {
        let label = format!("apart-{}", marker());
        let spec = shell(&waits(folder.path()));
        attempts.push(Attempt::spawn(AttemptSpec { containment, label: label.clone(), ..spec }));
        eventually("the job runs", || folder.path().join("ready").exists());
        labels.push(label);
    }
    let open: Vec<BTreeSet<String>> = labels.iter().map(|label| opened_by(label)).collect();
    assert!(open.iter().all(|files| !files.is_empty()), "each has its socket: {open:?}");
    for (nth, files) in open.iter().enumerate() {
        for others in open.iter().skip(nth + 1) {
            assert_eq!(files.intersection(others).collect::<Vec<_>>(), [] as [&String; 0]);
        }
    }
    for (folder, attempt) in folders.iter().zip(attempts) {
        fs::write(folder.path().join("go"), "").unwrap();
        assert_eq!(attempt.finished().await.kind, EndKind::Exited { code: 0 });
    }
}

/// The pipes and sockets that either half of a shim has open.
fn opened_by(label: &str) -> BTreeSet<String> {
    let folders = shims(label).into_iter().map(|pid| format!("/proc/{}/fd", pid.as_raw_nonzero()));
    let entries = folders.flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    let names = links.map(|link| link.display().to_string());
    names.filter(|name| name.starts_with("pipe:") || name.starts_with("socket:")).collect()
}

// A host may refuse the system call, or kill who makes it.
#[tokio::test]
async fn without_a_spawner_the_program_is_executed_as_a_shim() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast");
    let script =
        format!("#!/bin/sh\n[ $1 = spawner ] && exit 1\nexec {} \"$@\"\n", crate::support::HOST);
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    for containment in Containment::ALL {
        let spec = AttemptSpec { containment, shim: OwnProgram::at(&path), ..shell("cat") };
        let spec = AttemptSpec { stdin: b"in".to_vec(), ..spec };
        let ending = Attempt::spawn(spec).finished().await;
        assert_eq!(ending.kind, EndKind::Exited { code: 0 }, "{containment}");
        assert!(ending.tree_empty && ending.output.stdout.bytes == b"in", "{containment}");
    }
    assert_eq!(spawners_of(getpid()), []);
}
