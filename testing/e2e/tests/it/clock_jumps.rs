//! F17: the wall clock jumps by an hour, forward and back, under the server or under a worker.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Run, Scene, ServerOptions, WorkerOptions, binary};
use serde_json::{Value, json};

const HOUR: i64 = 3600;

/// Adds the seconds in a file to the wall clock that a process reads, and to no other clock.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    char text[32] = {0};
    int file = open(SHIFT_FILE, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, at);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        at->tv_sec += shift();
    }
    return failed;
}
"#;

/// The wall clock of one process.
struct WallClock {
    folder: tempfile::TempDir,
}

impl WallClock {
    fn new() -> Self {
        let clock = Self { folder: tempfile::tempdir().expect("a folder") };
        let source = clock.at("shift.c");
        std::fs::write(&source, SHIFT).expect("a file");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([clock.library(), source])
            .arg(format!("-DSHIFT_FILE=\"{}\"", clock.at("shift").display()))
            .arg("-ldl")
            .output()
            .expect("a C compiler");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        clock
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn library(&self) -> PathBuf {
        self.at("shift.so")
    }

    /// What stands in front of a command that reads this clock.
    fn variable(&self) -> String {
        format!("LD_PRELOAD={}", self.library().display())
    }

    /// Outlast, reading this clock.
    fn program(&self) -> PathBuf {
        let (script, outlast) = (self.at("outlast"), binary::outlast().display());
        let text = format!("#!/bin/sh\nexec env {} {outlast} \"$@\"\n", self.variable());
        std::fs::write(&script, text).expect("a file");
        make_executable(&script);
        script
    }

    /// Sets how far it is from the right time.
    fn set(&self, seconds: i64) {
        let next = self.at("next");
        std::fs::write(&next, seconds.to_string()).expect("a file");
        std::fs::rename(next, self.at("shift")).expect("a file");
    }
}

fn make_executable(script: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(script, mode).expect("a mode");
}

/// Jumps while jobs run: by an hour forward, by two back, and to the right time.
fn jobs_run_on(scene: &Scene, clock: &WallClock, worker: &str) {
    for shift in [HOUR, -HOUR, 0] {
        let mut forbidden = Run::holding(LEASE * 2);
        forbidden = forbidden.with("overlap", json!("forbidden"));
        let jobs = [scene.run(Run::holding(LEASE * 2)), scene.run(forbidden)];
        for job in &jobs {
            scene.await_start(job, 1, within(LEASE));
        }
        clock.set(shift);
        for job in &jobs {
            let done = scene.await_status(job, "completed", within(LEASE * 4));
            assert_eq!(
                (&done["epoch"], &done["losses"]),
                (&json!(1), &json!(0)),
                "{shift}: {done}"
            );
            assert_eq!(done["worker"]["id"], worker, "{shift}: {done}");
        }
    }
    let lapsed = scene.api().get("/api/v1/events?stream=false&type=worker.lapsed").expect(200);
    assert_eq!(lapsed["data"], json!([]));
}

/// What `outlast doctor` says of a clock.
fn verdict(scene: &Scene, of: &str) -> String {
    let said = run_against(&scene.server().url(), &["doctor", "--output", "json"]).stdout;
    let report: Value = serde_json::from_str(&said).unwrap_or_default();
    let checks = report["checks"].as_array().cloned().unwrap_or_default();
    let found = checks.iter().find(|check| check["check"] == of);
    found.and_then(|check| check["verdict"].as_str()).unwrap_or_default().to_owned()
}

/// The lease of a worker that dies after a jump is over as soon as ever.
fn dead_worker_is_replaced(scene: &Scene, mut worker: outlast_e2e::Worker) {
    let job = scene.run(Run::holding(Duration::from_secs(600)));
    scene.await_start(&job, 1, within(LEASE));
    worker.kill_whole();
    let _other = scene.worker("two");
    scene.await_start(&job, 2, within(LEASE * 3));
    let _ = scene.cancel(&job);
}

fn jump_under_the_server(options: ServerOptions) {
    let clock = WallClock::new();
    let mut scene = Scene::with(options.program(&clock.program()));
    let worker = scene.worker("one");
    jobs_run_on(&scene, &clock, worker.id());
    clock.set(-HOUR);
    for check in ["clock skew", "store clock"] {
        eventually(check, within(LEASE), || (verdict(&scene, check) == "fail").then_some(()));
    }
    server_starts_again(&mut scene, &clock);
    dead_worker_is_replaced(&scene, worker);
    scene.judge();
}

/// A store that is opened reads the wall clock: what was before may lie ahead.
fn server_starts_again(scene: &mut Scene, clock: &WallClock) {
    for shift in [-HOUR, HOUR, 0] {
        let job = scene.run(Run::holding(LEASE * 3));
        scene.await_start(&job, 1, within(LEASE));
        scene.server_mut().kill();
        clock.set(shift);
        scene.server_mut().start_again();
        let done = scene.await_status(&job, "completed", within(LEASE * 6));
        assert_eq!((&done["epoch"], &done["losses"]), (&json!(1), &json!(0)), "{shift}: {done}");
    }
}

#[test]
fn jump_of_the_servers_clock_costs_no_job_and_makes_no_lease_longer() {
    jump_under_the_server(ServerOptions::default());
}

#[test]
fn jump_of_the_clock_of_a_server_on_postgresql_costs_no_job_and_makes_no_lease_longer() {
    jump_under_the_server(ServerOptions::default().postgres());
}

#[test]
fn jump_of_a_workers_clock_costs_no_job_and_makes_no_lease_longer() {
    let clock = WallClock::new();
    let scene = Scene::start();
    let options = WorkerOptions::named("one").below(&["env", &clock.variable()]);
    let worker = scene.worker_with(&options);
    jobs_run_on(&scene, &clock, worker.id());
    clock.set(HOUR);
    dead_worker_is_replaced(&scene, worker);
    scene.judge();
}
