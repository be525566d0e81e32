//! Nothing of an attempt outlives its end, its shim or its engine (I7; faults F3, F7, F25).

use std::time::Duration;

use outlast_core::time::Span;
use outlast_worker::OwnProgram;
use outlast_worker::attempt::{Attempt, AttemptSpec, EndKind};
use outlast_worker::clock::boot_now;
use outlast_worker::containment::{Choice, Containment};
use outlast_worker::probe::Probe;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{
    HOST, Host, children_of, escape_artist, eventually, gone_within, marker, shell_marked, shims,
    survivors,
};

struct Artist {
    folder: TempDir,
    marker: String,
    spec: AttemptSpec,
}

impl Artist {
    fn new(containment: Containment, then: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let marker = marker();
        let script = escape_artist(&folder.path().join("ready"), then);
        let spec = AttemptSpec { containment, ..shell_marked(&script, &marker) };
        Self { folder, marker, spec }
    }

    fn wait_until_loose(&self) {
        eventually("the artist is loose", || self.folder.path().join("ready").exists());
    }
}

async fn check_artist_dies_with_main_process(containment: Containment) {
    let artist = Artist::new(containment, "echo done");
    let ending = Attempt::spawn(artist.spec.clone()).finished().await;
    assert_eq!(survivors(&artist.marker), []);
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    assert!(ending.tree_empty);
    assert_eq!(ending.output.stdout.bytes, b"done\n");
    assert!(!ending.output.cut, "the pipes are closed");
    assert!(ending.duration < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn escape_artist_in_a_pid_namespace_dies_with_the_main_process() {
    check_artist_dies_with_main_process(Containment::Pidns).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn escape_artist_in_a_cgroup_dies_with_the_main_process() {
    check_artist_dies_with_main_process(Containment::Cgroup).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn escape_artist_under_a_subreaper_dies_with_the_main_process() {
    check_artist_dies_with_main_process(Containment::Subreaper).await;
}

async fn check_artist_dies_when_cancelled(containment: Containment) {
    let mut artist = Artist::new(containment, "while :; do sleep 0.05; done");
    artist.spec.args[1].insert_str(0, "trap '' TERM\n");
    let attempt = Attempt::spawn(artist.spec.clone());
    let handle = attempt.handle();
    artist.wait_until_loose();
    handle.cancel();
    let ending = attempt.finished().await;
    assert_eq!(survivors(&artist.marker), []);
    assert_eq!((ending.kind, ending.signal), (EndKind::Cancelled, Some(9)));
    assert!(ending.tree_empty);
}

#[tokio::test(flavor = "multi_thread")]
async fn escape_artist_in_a_pid_namespace_dies_when_cancelled() {
    check_artist_dies_when_cancelled(Containment::Pidns).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn escape_artist_in_a_cgroup_dies_when_cancelled() {
    check_artist_dies_when_cancelled(Containment::Cgroup).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn escape_artist_under_a_subreaper_dies_when_cancelled() {
    check_artist_dies_when_cancelled(Containment::Subreaper).await;
}

/// Starts an artist whose shim is then found by its label.
fn labelled(containment: Containment, then: &str) -> (Artist, String) {
    let mut artist = Artist::new(containment, then);
    let label = format!("shim-of-{}", artist.marker.replace("marker", "killed"));
    artist.spec.label.clone_from(&label);
    (artist, label)
}

async fn check_killed_shim(
    containment: Containment,
) -> (String, outlast_worker::attempt::AttemptEnd) {
    let (artist, label) = labelled(containment, "while :; do sleep 0.05; done");
    let attempt = Attempt::spawn(artist.spec.clone());
    artist.wait_until_loose();
    kill_process(shims(&label)[0], Signal::KILL).unwrap();
    (artist.marker, attempt.finished().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_shim_takes_its_pid_namespace_along_with_proof() {
    let (marker, ending) = check_killed_shim(Containment::Pidns).await;
    assert_eq!(survivors(&marker), []);
    assert!(ending.tree_empty);
    assert!(matches!(ending.kind, EndKind::ShimDied { .. }), "{:?}", ending.kind);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_outer_half_leaves_the_tree_to_the_inner_one() {
    for containment in [Containment::Cgroup, Containment::Subreaper] {
        let (marker, ending) = check_killed_shim(containment).await;
        assert_eq!(survivors(&marker), [], "{containment}");
        assert!(ending.tree_empty, "{containment}");
        assert_eq!(ending.kind, EndKind::ShimKilled, "{containment}");
    }
}

// A job that kills its shim used to be called interrupted, and its children lived on (C10).
#[tokio::test(flavor = "multi_thread")]
async fn job_that_kills_its_shim_is_charged_and_leaves_nothing() {
    for containment in [Containment::Cgroup, Containment::Subreaper] {
        let artist = Artist::new(containment, "kill -9 $PPID; while :; do sleep 0.05; done");
        let ending = Attempt::spawn(artist.spec.clone()).finished().await;
        assert_eq!(survivors(&artist.marker), [], "{containment}");
        assert!(ending.tree_empty, "{containment}");
        assert_eq!(ending.kind, EndKind::ShimKilled, "{containment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_stops_its_shim_can_still_be_cancelled_with_proof() {
    for containment in [Containment::Cgroup, Containment::Subreaper] {
        let artist = Artist::new(containment, "kill -STOP $PPID; while :; do sleep 0.05; done");
        let attempt = Attempt::spawn(artist.spec.clone());
        artist.wait_until_loose();
        attempt.handle().kill_now();
        let ending = attempt.finished().await;
        assert_eq!(survivors(&artist.marker), [], "{containment}");
        assert!(ending.tree_empty, "{containment}");
    }
}

/// Kills the engine of a job that has stopped its own shim.
#[test]
fn job_that_stops_its_shim_does_not_outlive_the_engine() {
    for containment in [Containment::Cgroup, Containment::Subreaper] {
        let then = "kill -STOP $PPID; : > $0.stopped; while :; do sleep 0.05; done";
        let artist = Artist::new(containment, then);
        let stopped = artist.folder.path().join("stopped");
        let script = artist.spec.args[1].replace("$0.stopped", &stopped.display().to_string());
        let engine = Host::start(&["engine", containment.name(), "0", &artist.marker, &script]);
        eventually("the shim is stopped", || stopped.exists());
        let killed_at = boot_now();
        engine.signal(Signal::KILL);
        gone_within(&artist.marker, killed_at, 2000);
    }
}

// Found as a whole tree alive after 6 of 6 such kills (C3).
#[test]
fn cgroup_is_ended_by_its_keeper_when_engine_and_shims_are_killed_together() {
    let (artist, engine, label) = engine_in_cgroup();
    let killed_at = boot_now();
    engine.signal(Signal::STOP);
    for shim in shims(&label) {
        kill_process(shim, Signal::KILL).unwrap();
    }
    engine.signal(Signal::KILL);
    gone_within(&artist.marker, killed_at, 2000);
}

#[test]
fn what_is_left_in_cgroups_ends_when_the_next_worker_starts() {
    let (artist, engine, label) = engine_in_cgroup();
    engine.signal(Signal::STOP);
    let keepers = children_of(engine.pid());
    // The outer half is a child too.
    let guards: Vec<Pid> = shims(&label).into_iter().chain(keepers).collect();
    // All stop first: one that sees another end would end the job.
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in &guards {
            let _ = kill_process(*pid, signal);
        }
    }
    engine.signal(Signal::KILL);
    drop(engine);
    assert_ne!(survivors(&artist.marker), [], "nothing is left that could end them");
    assert_eq!(Host::start(&["sweep"]).exit_code(), Some(0));
    assert_eq!(survivors(&artist.marker), []);
}

fn engine_in_cgroup() -> (Artist, Host, String) {
    let artist = Artist::new(Containment::Cgroup, "while :; do sleep 0.05; done");
    let script = artist.spec.args[1].clone();
    let engine = Host::start(&["engine", "cgroup", "0", &artist.marker, &script]);
    artist.wait_until_loose();
    let label = format!("engine-{}", engine.pid().as_raw_nonzero());
    (artist, engine, label)
}

// Work that was done counted as interrupted when an order came in the same moment (W13).
#[tokio::test(flavor = "multi_thread")]
async fn work_that_ended_before_its_deadline_was_noticed_is_done() {
    for containment in Containment::ALL {
        let folder = tempfile::tempdir().unwrap();
        let (ready, go) = (folder.path().join("ready"), folder.path().join("go"));
        let script = format!(
            "echo $$ > {0}.new; mv {0}.new {0}; while [ ! -e {1} ]; do sleep 0.02; done",
            ready.display(),
            go.display()
        );
        let (label, job) = (format!("done-{}", marker().replace("marker", "shim")), marker());
        let deadline = boot_now().after(Span::from_millis(1500));
        let attempt = Attempt::spawn(AttemptSpec {
            containment,
            label: label.clone(),
            deadline: Some(deadline),
            ..shell_marked(&script, &job)
        });
        eventually("the job runs", || ready.exists());
        let halves = shims(&label);
        for half in &halves {
            kill_process(*half, Signal::STOP).unwrap();
        }
        std::fs::write(&go, "").unwrap();
        eventually("the job has ended", || survivors(&job).is_empty());
        eventually("the deadline passed", || boot_now() > deadline);
        for half in &halves {
            kill_process(*half, Signal::CONT).unwrap();
        }
        assert_eq!(attempt.finished().await.kind, EndKind::Exited { code: 0 }, "{containment}");
    }
}

fn check_killed_engine(containment: Containment) {
    let artist = Artist::new(containment, "while :; do sleep 0.05; done");
    let script = artist.spec.args[1].clone();
    let engine = Host::start(&["engine", containment.name(), "0", &artist.marker, &script]);
    artist.wait_until_loose();
    let killed_at = boot_now();
    engine.signal(Signal::KILL);
    gone_within(&artist.marker, killed_at, 1000);
}

#[test]
fn killed_engine_leaves_no_pid_namespace() {
    check_killed_engine(Containment::Pidns);
}

#[test]
fn killed_engine_leaves_no_cgroup() {
    check_killed_engine(Containment::Cgroup);
}

#[test]
fn killed_engine_leaves_nothing_under_a_subreaper() {
    check_killed_engine(Containment::Subreaper);
}

fn check_frozen_engine(containment: Containment) {
    let artist = Artist::new(containment, "while :; do sleep 0.05; done");
    let script = artist.spec.args[1].clone();
    let started = boot_now();
    let args = ["engine", containment.name(), "1500", &artist.marker, &script];
    let mut engine = Host::start(&args);
    artist.wait_until_loose();
    engine.signal(Signal::STOP);
    assert!(boot_now().since(started).as_millis() < 1500, "frozen before its deadline");
    gone_within(&artist.marker, started, 2500);
    assert!(boot_now().since(started).as_millis() >= 1500, "not before its deadline");
    engine.signal(Signal::CONT);
    assert_eq!(engine.line(), "DeadlinePassed tree_empty=true");
}

#[test]
fn frozen_engine_does_not_keep_a_pid_namespace_past_its_deadline() {
    check_frozen_engine(Containment::Pidns);
}

#[test]
fn frozen_engine_does_not_keep_a_cgroup_past_its_deadline() {
    check_frozen_engine(Containment::Cgroup);
}

#[test]
fn frozen_engine_does_not_keep_a_subreaper_tree_past_its_deadline() {
    check_frozen_engine(Containment::Subreaper);
}

/// Its launch may have taken longer than the lease had left. It was executed and killed at once, and might
/// have done something until then.
#[tokio::test(flavor = "multi_thread")]
async fn job_whose_lease_is_over_before_it_begins_is_not_executed() {
    for containment in Containment::ALL {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("it ran");
        let (script, job) = (format!("echo > '{}'", file.display()), marker());
        let deadline = Some(boot_now());
        let spec = AttemptSpec { containment, deadline, ..shell_marked(&script, &job) };
        let end = Attempt::spawn(spec).finished().await;
        assert!(matches!(end.kind, EndKind::SpawnFailed(_)), "{containment}: {:?}", end.kind);
        assert!(!end.executed && end.tree_empty, "{containment}");
        assert!(!file.exists() && survivors(&job).is_empty(), "{containment}");
    }
}

/// A renewal that comes while it is launched counts.
#[tokio::test(flavor = "multi_thread")]
async fn deadline_that_is_renewed_during_the_launch_holds() {
    let spec = AttemptSpec { deadline: Some(boot_now()), ..shell_marked("true", "job") };
    let attempt = Attempt::spawn(spec);
    attempt.handle().extend_deadline(boot_now().after(Span::from_secs(60)));
    assert_eq!(attempt.finished().await.kind, EndKind::Exited { code: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_deadline_replaces_the_earlier_one() {
    let deadline = boot_now().after(Span::from_millis(600));
    let spec = AttemptSpec { deadline: Some(deadline), ..shell_marked("sleep 0.9", "job") };
    let attempt = Attempt::spawn(spec);
    attempt.handle().extend_deadline(deadline.after(Span::from_secs(60)));
    assert_eq!(attempt.finished().await.kind, EndKind::Exited { code: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_finds_that_every_kind_it_names_works() {
    let program = OwnProgram::at(HOST);
    for kind in Containment::ALL {
        let probe = Probe::run(Choice::Forced(kind), &program).await.unwrap();
        assert_eq!(probe.chosen, kind);
    }
    let probe = Probe::run(Choice::Auto, &program).await.unwrap();
    assert_eq!(probe.chosen, Containment::Pidns);
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_with_a_broken_program_says_why_nothing_works() {
    let program = OwnProgram::at("/nonexistent/outlast");
    let error = Probe::run(Choice::Auto, &program).await.unwrap_err();
    assert_eq!(error.refused.len(), 3);
    assert!(error.to_string().contains("cannot launch a shim"), "{error}");
}

#[test]
fn worker_without_rights_still_gets_a_pid_namespace() {
    let mut host = Host::start_as_nobody(&["probe", "auto"]);
    // Unless a cgroup is its own, all jobs are held that way.
    assert_eq!(host.line(), "pidns pidns");
}

/// What a probe of an ordinary user with a cgroup of its own finds.
fn found_with_an_own_cgroup(name: &str, hidden: &str) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let unified = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap();
    let unified = std::path::Path::new(unified.split(' ').nth(4).unwrap());
    let group = unified.join(format!("{name}-{}", std::process::id()));
    let script = format!(
        "mkdir {0} && chown -R 65534:65534 {0} && echo $$ > {0}/cgroup.procs && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups {HOST} probe auto {hidden}",
        group.display()
    );
    let mut host = Host::start_program("/bin/sh", &["-c", &script]);
    let found = host.line();
    host.exit_code();
    eventually("the group can be removed", || std::fs::remove_dir(&group).is_ok());
    found
}

// In a user namespace ssh finds its configuration owned by `nobody`, and refuses to run (W8).
#[test]
fn worker_without_rights_prefers_its_own_cgroup_for_jobs_that_may_overlap() {
    assert_eq!(found_with_an_own_cgroup("delegated", ""), "pidns cgroup");
}

// The cgroup was chosen all the same, and every job could read the worker's token.
#[test]
fn worker_that_has_files_to_hide_uses_no_cgroup_that_cannot_hide_them() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::chown(token.path(), Some(65534), Some(65534)).unwrap();
    let hidden = token.path().display().to_string();
    assert_eq!(found_with_an_own_cgroup("hiding", &hidden), "pidns pidns");
}

// One slow trial used to decide for the life of the worker (W17).
#[tokio::test(flavor = "multi_thread")]
async fn trial_that_took_too_long_is_made_again_and_is_no_reason_for_less() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (program, tried) = (folder.path().join("outlast"), folder.path().join("tried"));
    let script = format!(
        "#!/bin/sh\nif [ \"$2\" = --noop ] && [ ! -e {0} ]; then : > {0}; exec sleep 60; fi\nexec {HOST} \"$@\"\n",
        tried.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let trials = [Duration::from_millis(1500), Duration::from_secs(10)];
    let program = OwnProgram::at(program);
    let probe = Probe::within(Choice::Auto, &program, &trials).await.unwrap();
    assert!(tried.exists(), "the first trial hung");
    assert_eq!(probe.chosen, Containment::Pidns);
    std::fs::remove_file(&tried).unwrap();
    let once = Probe::within(Choice::Auto, &program, &trials[..1]).await.unwrap_err();
    assert_eq!(once.refused.len(), 1, "no weaker kind is taken: {once}");
}

#[test]
fn containment_names_are_read_back() {
    for kind in Containment::ALL {
        assert_eq!(kind.name().parse(), Ok(Choice::Forced(kind)));
    }
    assert_eq!("auto".parse(), Ok(Choice::Auto));
    let error = "docker".parse::<Choice>().unwrap_err();
    assert!(error.to_string().contains("expected auto, pidns, cgroup or subreaper"));
}

#[tokio::test(flavor = "multi_thread")]
async fn job_in_a_pid_namespace_sees_only_its_own_processes() {
    let ending = Attempt::spawn(shell_marked("ls -d /proc/[0-9]* | wc -l", "job")).finished().await;
    let count: u32 = String::from_utf8(ending.output.stdout.bytes).unwrap().trim().parse().unwrap();
    assert!((2..=5).contains(&count), "{count} processes");
}
