//! Nothing of an attempt outlives its end, its shim or its engine (I7; faults F3, F7, F25).

use std::time::Duration;

use outlast_core::time::Span;
use outlast_worker::OwnProgram;
use outlast_worker::attempt::{Attempt, AttemptSpec, EndKind};
use outlast_worker::clock::boot_now;
use outlast_worker::containment::{Choice, Containment};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::support::{
    HOST, Host, escape_artist, eventually, gone_within, marker, shell_marked, survivors,
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
    assert!(!ending.output.cut, "nobody holds the pipes");
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

/// Kills the outer shim, which is the only child of this attempt's that this process has
/// under that label.
fn kill_shim(label: &str) {
    let shims: Vec<_> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let command_line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let wanted = String::from_utf8_lossy(&command_line).contains(label);
            let pid: i32 = entry.file_name().to_str()?.parse().ok().filter(|_| wanted)?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            (parent == std::process::id()).then(|| rustix::process::Pid::from_raw(pid))?
        })
        .collect();
    let [shim] = shims.as_slice() else { panic!("one shim, not {shims:?}") };
    kill_process(*shim, Signal::KILL).unwrap();
}

async fn check_killed_shim(containment: Containment) -> (String, outlast_worker::attempt::Ending) {
    let artist = Artist::new(containment, "while :; do sleep 0.05; done");
    let label = format!("shim-of-{}", artist.marker.replace("marker", "killed"));
    let attempt = Attempt::spawn(AttemptSpec { label: label.clone(), ..artist.spec.clone() });
    artist.wait_until_loose();
    kill_shim(&label);
    let ending = attempt.finished().await;
    assert!(matches!(ending.kind, EndKind::ShimDied { .. }), "{:?}", ending.kind);
    (artist.marker, ending)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_shim_takes_its_pid_namespace_along_with_proof() {
    let (marker, ending) = check_killed_shim(Containment::Pidns).await;
    assert_eq!(survivors(&marker), []);
    assert!(ending.tree_empty);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_shim_leaves_its_cgroup_to_the_engine_which_ends_it_with_proof() {
    let (marker, ending) = check_killed_shim(Containment::Cgroup).await;
    assert_eq!(survivors(&marker), []);
    assert!(ending.tree_empty);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_subreaper_shim_gives_no_proof() {
    let (marker, ending) = check_killed_shim(Containment::Subreaper).await;
    assert!(!ending.tree_empty, "a process in a session of its own may be alive");
    // This is what can hide; the test cleans up after it.
    for pid in survivors(&marker) {
        let _ = kill_process(pid, Signal::KILL);
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
        let probe = Containment::probe(Choice::Forced(kind), &program).await.unwrap();
        assert_eq!(probe.chosen, kind);
    }
    let probe = Containment::probe(Choice::Auto, &program).await.unwrap();
    assert_eq!(probe.chosen, Containment::Pidns);
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_with_a_broken_program_says_why_nothing_works() {
    let program = OwnProgram::at("/nonexistent/outlast");
    let error = Containment::probe(Choice::Auto, &program).await.unwrap_err();
    assert_eq!(error.refused.len(), 3);
    assert!(error.to_string().contains("cannot launch a shim"), "{error}");
}

#[test]
fn worker_without_rights_still_gets_a_pid_namespace() {
    let mut host = Host::start_as_nobody(&["probe", "auto"]);
    assert_eq!(host.line(), "pidns");
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
