//! Timeout, cancel, interruption: one ending, for the right reason, in time (F8, F22, F26).

use std::time::Duration;

use outlast_worker::attempt::{Attempt, AttemptEnd, AttemptHandle, AttemptSpec, EndKind};
use rustix::process::{Signal, kill_process};

use crate::support::{eventually, marker, shell, shell_marked, survivors};

const STUBBORN: &str = "trap '' TERM; while :; do sleep 0.05; done";

#[tokio::test(flavor = "multi_thread")]
async fn timeout_asks_politely_first() {
    let script = "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done";
    let spec = AttemptSpec {
        timeout: Some(Duration::from_millis(300)),
        kill_after: Duration::from_secs(20),
        ..shell(script)
    };
    let ending = Attempt::spawn(spec).finished().await;
    assert_eq!((ending.kind, ending.code), (EndKind::TimedOut, Some(3)));
    assert_eq!(ending.output.stdout.bytes, b"bye\n");
    assert!(ending.tree_empty);
    assert!(ending.duration < Duration::from_secs(5), "{:?}", ending.duration);
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_kills_what_does_not_listen() {
    let spec = AttemptSpec { timeout: Some(Duration::from_millis(300)), ..shell(STUBBORN) };
    let ending = Attempt::spawn(spec).finished().await;
    assert_eq!((ending.kind, ending.signal), (EndKind::TimedOut, Some(9)));
    assert!(ending.duration >= Duration::from_millis(590), "{:?}", ending.duration);
    assert!(ending.duration < Duration::from_secs(5), "{:?}", ending.duration);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_job_is_ended_at_its_timeout() {
    let marker = marker();
    let timeout = Some(Duration::from_millis(800));
    let spec = AttemptSpec { timeout, ..shell_marked(STUBBORN, &marker) };
    let attempt = Attempt::spawn(spec);
    eventually("the job runs", || !survivors(&marker).is_empty());
    for pid in survivors(&marker) {
        kill_process(pid, Signal::STOP).unwrap();
    }
    let ending = attempt.finished().await;
    assert_eq!(ending.kind, EndKind::TimedOut);
    assert!(ending.tree_empty);
    assert_eq!(survivors(&marker), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_shim_does_not_keep_a_job_alive() {
    let marker = marker();
    // Not the marker itself: the shim shall not be taken for the job.
    let label = format!("frozen-{}", marker.replace("marker", "shim"));
    let spec = AttemptSpec { label: label.clone(), ..shell_marked(STUBBORN, &marker) };
    let attempt = Attempt::spawn(spec);
    eventually("the job runs", || !survivors(&marker).is_empty());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let command_line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if String::from_utf8_lossy(&command_line).contains(&label) {
            let pid = pid.and_then(rustix::process::Pid::from_raw).unwrap();
            kill_process(pid, Signal::STOP).unwrap();
        }
    }
    attempt.handle().kill_now();
    let ending = attempt.finished().await;
    assert_eq!(ending.kind, EndKind::Interrupted);
    assert!(ending.tree_empty);
    assert_eq!(survivors(&marker), []);
}

async fn check_stop(stop: impl Fn(&AttemptHandle), expected: EndKind) -> AttemptEnd {
    let attempt = spawn_stubborn(Duration::from_millis(300));
    let handle = attempt.handle();
    stop(&handle);
    let ending = attempt.finished().await;
    assert_eq!(ending.kind, expected);
    assert!(ending.tree_empty && ending.executed);
    ending
}

/// Starts a job that ignores SIGTERM, and waits until it does.
fn spawn_stubborn(kill_after: Duration) -> Attempt {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = format!("trap '' TERM; : > {}; while :; do sleep 0.05; done", ready.display());
    let attempt = Attempt::spawn(AttemptSpec { kill_after, ..shell(&script) });
    eventually("the job is ready", || ready.exists());
    attempt
}

#[tokio::test(flavor = "multi_thread")]
async fn interruption_waits_before_it_kills() {
    let ending = check_stop(AttemptHandle::interrupt, EndKind::Interrupted).await;
    assert!(ending.duration >= Duration::from_millis(290), "{:?}", ending.duration);
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_now_does_not_wait() {
    let attempt = spawn_stubborn(Duration::from_secs(60));
    let handle = attempt.handle();
    handle.interrupt();
    handle.kill_now();
    let ending = attempt.finished().await;
    assert_eq!((ending.kind, ending.signal), (EndKind::Interrupted, Some(9)));
    assert!(ending.duration < Duration::from_secs(5), "{:?}", ending.duration);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_reason_to_stop_is_the_one_reported() {
    check_stop(
        |handle| {
            handle.cancel();
            handle.interrupt();
            handle.kill_now();
        },
        EndKind::Cancelled,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_before_the_program_runs_still_ends_it() {
    let attempt = Attempt::spawn(shell("sleep 60"));
    attempt.handle().cancel();
    assert_eq!(attempt.finished().await.kind, EndKind::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_racing_an_exit_gives_one_honest_ending() {
    for round in 0..40_u64 {
        let attempt = Attempt::spawn(shell("exit 5"));
        let handle = attempt.handle();
        tokio::time::sleep(Duration::from_micros(round * 150)).await;
        handle.cancel();
        let ending = attempt.finished().await;
        assert!(ending.tree_empty);
        match ending.kind {
            EndKind::Exited { code } => assert_eq!((code, ending.signal), (5, None)),
            // Signalled before it ended: whichever it was, it is not called a success.
            EndKind::Cancelled => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempt_that_nobody_holds_any_more_is_ended() {
    let marker = marker();
    let attempt = Attempt::spawn(shell_marked(STUBBORN, &marker));
    eventually("the job runs", || !survivors(&marker).is_empty());
    drop(attempt);
    for _ in 0..2000 {
        if survivors(&marker).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the job goes on without anyone who could stop it");
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_from_a_stranger_is_the_jobs_own_end() {
    let ending = Attempt::spawn(shell("kill -SEGV $$")).finished().await;
    assert!(matches!(ending.kind, EndKind::Signalled { signal: 11, .. }), "{:?}", ending.kind);
}

/// What the end of a job is that was asked to stop, by its reaction to SIGTERM.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_asked_to_stop_says_by_its_exit_code_how_it_ended() {
    for (reaction, expected) in [
        ("exit 75", EndKind::Interrupted),
        ("exit 143", EndKind::Interrupted),
        ("trap - TERM; kill -TERM $$", EndKind::Interrupted),
        ("exit 0", EndKind::Exited { code: 0 }),
        ("exit 4", EndKind::Exited { code: 4 }),
    ] {
        let ready = tempfile::tempdir().unwrap();
        let file = ready.path().join("ready");
        let script =
            format!("trap '{reaction}' TERM; : > {}; while :; do sleep 0.05; done", file.display());
        // It has more time than the pause between SIGTERM and SIGKILL.
        let spec = AttemptSpec { kill_after: Duration::ZERO, ..shell(&script) };
        let attempt = Attempt::spawn(spec);
        eventually("it is ready", || file.exists());
        attempt.handle().ask_to_stop();
        let ending = attempt.finished().await;
        assert_eq!(ending.kind, expected, "{reaction}");
        assert!(ending.tree_empty);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_75_without_a_request_is_a_failure() {
    let ending = Attempt::spawn(shell("exit 75")).finished().await;
    assert_eq!(ending.kind, EndKind::Exited { code: 75 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_goes_on_although_it_was_asked_to_stop_is_ended_later() {
    let attempt = spawn_stubborn(Duration::from_millis(300));
    attempt.handle().ask_to_stop();
    attempt.handle().interrupt();
    let ending = attempt.finished().await;
    assert_eq!((ending.kind, ending.signal), (EndKind::Interrupted, Some(9)));
}
