//! Warm processes as such: when there is one, when it is replaced, and what happens without one.

use std::fs;
use std::path::Path;
use std::time::Duration;

use outlast_worker::attempt::{Attempt, AttemptSpec, EndKind};
use outlast_worker::clock::boot_now;
use outlast_worker::containment::Containment;
use rustix::process::{Signal, kill_process, test_kill_process};

use super::{EMPTY_ARCHIVE, Pack, ended, text, variables};
use crate::support::{children_of, eventually};

/// Modules that cannot be imported ahead, and what is said about them.
const UNFIT: [(&str, &str); 13] = [
    ("raise ValueError('no licence')", "cannot import unfit: ValueError: no licence"),
    (
        "import nowhere_to_be_found",
        "cannot import unfit: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    ),
    ("import sys; sys.exit(0)", "cannot import unfit: SystemExit: 0"),
    ("import os; os._exit(3)", "the interpreter has ended"),
    ("print('hello')", "importing them prints: hello"),
    ("import warnings; warnings.warn('old')", "importing them prints: "),
    (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "importing them starts threads",
    ),
    (
        "import subprocess; keep = subprocess.Popen(['sleep', '60'])",
        "importing them starts processes",
    ),
    (
        "keep = open('/etc/passwd')",
        "importing them leaves files open, which attempts would share: /etc/passwd",
    ),
    (
        "import mmap; keep = mmap.mmap(-1, 4096)",
        "importing them makes memory that attempts would share",
    ),
    (
        "import os; os.environ['COLOUR'] = 'red'",
        "importing them changes environment variables: COLOUR",
    ),
    ("import os; os.umask(0)", "importing them changes the mask of new files"),
    (
        "import sys; sys.stdout = open('/dev/null', 'w')",
        "importing them changes the standard streams",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_ahead_is_named_and_attempts_are_executed() {
    for (module, expected) in UNFIT {
        let pack = Pack::new(&["unfit"]).file("unfit.py", module).file("it.py", "print('ran')");
        assert!(pack.process().is_none(), "none yet");
        let ending = ended(pack.cold("it.py")).await;
        assert_eq!(text(&ending.output.stdout.bytes), "ran\n", "nothing waits");
        let reasons = pack.reasons().await;
        assert!(reasons.len() == 1 && reasons[0].starts_with(expected), "{module}: {reasons:?}");
        assert!(pack.process().is_none(), "it is not tried again at once");
        eventually("its process has ended", || pack.pid().is_none());
        assert_eq!(pack.reasons().await, reasons, "it is said once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_jobs_must_not_see_is_hidden_from_imports_too() {
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "token").unwrap();
    let looks = format!("found = open({:?}).read()", token.path().display().to_string());
    let mut pack = Pack::new(&["looks"])
        .file("looks.py", &looks)
        .file("it.py", "import looks; print([looks.found])");
    pack.hidden.push(token.path().to_owned());
    let ending = ended(pack.warm("it.py").await).await;
    assert_eq!(text(&ending.output.stdout.bytes), "['']\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_does_not_notice_that_its_warm_process_is_killed() {
    let waits = "import os, sys, time\nopen(sys.argv[0] + '.ready', 'w').close()\n\
        while not os.path.exists(sys.argv[0] + '.go'): time.sleep(0.01)\nprint(os.getppid(), 'done')";
    let pack = Pack::new(&["json"]).file("waits.py", waits).file("it.py", "print('next')");
    let attempt = Attempt::spawn(pack.warm("waits.py").await);
    eventually("the job runs", || Path::new(&pack.path("waits.py.ready")).exists());
    let killed = pack.pid().unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    eventually("it is reaped", || test_kill_process(killed).is_err());
    let next = ended(pack.cold("it.py")).await;
    assert_eq!(text(&next.output.stdout.bytes), "next\n");
    fs::write(pack.path("waits.py.go"), "").unwrap();
    let ending = attempt.finished().await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    assert!(ending.tree_empty && text(&ending.output.stdout.bytes) == "1 done\n");
    let again = ended(pack.warm("it.py").await).await;
    assert_eq!(text(&again.output.stdout.bytes), "next\n");
    assert_ne!(pack.pid().unwrap(), killed, "another one has taken its place");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_process_that_hangs_is_replaced_and_the_attempt_runs_once() {
    let pack = Pack::new(&["json"])
        .file("it.py", "import sys\nopen(sys.argv[0] + '.ran', 'a').write('x')");
    let spec = pack.warm("it.py").await;
    let frozen = pack.pid().unwrap();
    kill_process(frozen, Signal::STOP).unwrap();
    let began = boot_now();
    let ending = ended(spec).await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    let took = boot_now().since(began).as_millis();
    assert!((2900..9000).contains(&took), "{took} ms");
    eventually("it is killed", || test_kill_process(frozen).is_err());
    ended(pack.warm("it.py").await).await;
    assert_ne!(pack.pid().unwrap(), frozen);
    assert_eq!(fs::read_to_string(pack.path("it.py.ran")).unwrap(), "xx");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_process_that_grows_is_replaced() {
    let grows = "import os\nkeep = []\n\
        os.register_at_fork(before=lambda: keep.append(bytearray(os.urandom(1 << 16) * 1024)))";
    let pack = Pack::new(&["grows"]).file("grows.py", grows).file("it.py", "print('ran')");
    let ending = ended(pack.warm("it.py").await).await;
    assert_eq!(text(&ending.output.stdout.bytes), "ran\n");
    let grown = pack.pid().unwrap();
    let next = ended(pack.warm("it.py").await).await;
    assert_eq!(text(&next.output.stdout.bytes), "ran\n");
    eventually("it has ended", || test_kill_process(grown).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_process_ends_when_it_is_idle() {
    let mut pack = Pack::new(&["json"]).file("it.py", "print('ran')");
    pack.key.idle = Duration::from_millis(300);
    ended(pack.warm("it.py").await).await;
    let idle = pack.pid().unwrap();
    eventually("it has ended", || test_kill_process(idle).is_err());
    let next = ended(pack.warm("it.py").await).await;
    assert_eq!(text(&next.output.stdout.bytes), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_process_is_replaced_when_the_pack_or_its_environment_changes() {
    let mut pack = Pack::new(&["version"])
        .file("version.py", "number = 1")
        .file("it.py", "import version; print(version.number)");
    let ending = ended(pack.warm("it.py").await).await;
    assert_eq!(text(&ending.output.stdout.bytes), "1\n");
    let before = pack.pid().unwrap();
    pack = pack.file("version.py", "number = 2000");
    pack.key.digest = "two".into();
    let ending = ended(pack.warm("it.py").await).await;
    assert_eq!(text(&ending.output.stdout.bytes), "2000\n");
    eventually("the one before has ended", || test_kill_process(before).is_err());
    let second = pack.pid().unwrap();
    // One that runs in no environment stays: it may be of another action.
    pack.key.environment = Some("/one".into());
    ended(pack.warm("it.py").await).await;
    assert_eq!(pack.pids().len(), 2);
    pack.key.environment = Some("/another".into());
    ended(pack.warm("it.py").await).await;
    eventually("that of the first environment has ended", || pack.pids().len() == 2);
    assert!(test_kill_process(second).is_ok());
    pack.processes.end_all();
    eventually("all have ended", || pack.pids().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_of_one_pack_with_other_settings_do_not_end_each_others_warm_process() {
    let mut pack = Pack::new(&["json"]).file("it.py", "print('ran')");
    ended(pack.warm("it.py").await).await;
    let first = pack.pid().unwrap();
    let own = pack.key.clone();
    pack.key.idle = Duration::from_secs(30);
    ended(pack.warm("it.py").await).await;
    pack.key = own;
    let found = pack.process();
    assert!(found.is_some(), "the first one serves on");
    assert!(pack.pids().contains(&first) && pack.pids().len() == 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_cannot_be_forked_says_nothing_for_its_warm_process() {
    let pack = Pack::new(&[]).file("it.py", "print('ran')").file("it.zip", EMPTY_ARCHIVE);
    // Five attempts in a row that were not forked say that none will be.
    for _ in 0..4 {
        ended(pack.warm("it.zip").await).await;
    }
    let mut env = variables();
    for name in ["ONE", "OTHER"] {
        env.push((name.to_owned(), "x".repeat(70 * 1024)));
    }
    let ending = ended(AttemptSpec { env, ..pack.warm("it.py").await }).await;
    assert_eq!(text(&ending.output.stdout.bytes), "ran\n", "it is executed");
    ended(pack.warm("it.zip").await).await;
    let reasons = pack.reasons().await;
    assert!(reasons[0].starts_with("none can be forked: "), "{reasons:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_attempts_at_a_time_are_forked_by_one_process() {
    let pack = Pack::new(&["json"]).file("it.py", "import os; print(os.environ['OWN'])");
    pack.warm("it.py").await;
    let serving = pack.pid().unwrap();
    let mut attempts = Vec::new();
    for number in 0..40 {
        let mut env = variables();
        env.push(("OWN".to_owned(), number.to_string()));
        attempts.push(Attempt::spawn(AttemptSpec { env, ..pack.warm("it.py").await }));
    }
    for (number, attempt) in attempts.into_iter().enumerate() {
        let ending = attempt.finished().await;
        assert_eq!(text(&ending.output.stdout.bytes), format!("{number}\n"));
    }
    assert_eq!(pack.pid(), Some(serving));
    assert_eq!(children_of(serving), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_pid_namespace_holds_jobs_they_are_executed() {
    let (pack, other) = (Pack::new(&["json"]), Pack::new(&["json"]));
    let (pack, other) = (pack.file("it.py", "print('ran')"), other.file("it.py", "print('ran')"));
    for containment in [Containment::Cgroup, Containment::Subreaper] {
        assert!(pack.process_in(containment).is_none());
        // Whatever the shim is given, it forks into no other containment.
        let warm = other.warm("it.py").await;
        let ending = ended(AttemptSpec { containment, ..warm }).await;
        assert_eq!(text(&ending.output.stdout.bytes), "ran\n", "{containment}");
        assert!(ending.tree_empty, "{containment}");
    }
}
