//! F22 and F23: more than one signal, and signals that quiet and resume.

use std::process::Command;
use std::time::Duration;

use outlast_e2e::binary::outlast;
use outlast_e2e::wait::{HEARTBEAT, KILL_AFTER, LEASE, eventually, stays, within};
use outlast_e2e::{Process, Run, Scene, Worker, WorkerOptions};
use rustix::process::Signal;
use serde_json::json;

const FORCED: Duration = Duration::from_secs(2);

fn patient(scene: &Scene, name: &str) -> Worker {
    let grace = Duration::from_secs(120);
    scene.worker_with(&WorkerOptions::named(name).shutdown_timeout(grace))
}

fn stubborn() -> Run {
    Run::holding_once(Duration::from_secs(120)).parameter("on_term", json!("ignore"))
}

fn order(scene: &Scene, worker: &Worker, what: &str) {
    let path = format!("/api/v1/workers/{}/{what}", worker.id());
    let reply = scene.api().post(&path, &json!({}));
    assert!(reply.is_success(), "{}", reply.text);
}

#[test]
fn a_second_sigterm_forces_the_worker_to_hand_back_at_once() {
    let scene = Scene::start();
    let mut worker = patient(&scene, "forced");
    let job = scene.run(stubborn());
    scene.await_start(&job, 1, within(LEASE));
    worker.terminate();
    scene.await_worker(worker.id(), "draining", within(HEARTBEAT));
    worker.guardian_mut().signal_taken(Signal::TERM);
    assert_eq!(worker.await_end(within(FORCED)), Some(0));
    let _heir = scene.worker("heir");
    scene.await_status(&job, "completed", within(LEASE));
    assert_eq!(scene.api().outcomes(&job), ["interrupted", "completed"]);
    scene.judge();
}

#[test]
fn sigint_counts_as_sigterm() {
    let scene = Scene::start();
    let mut worker = patient(&scene, "interrupted");
    let job = scene.run(Run::holding(Duration::from_secs(1)));
    scene.await_start(&job, 1, within(LEASE));
    worker.guardian().signal(Signal::INT);
    scene.await_worker(worker.id(), "draining", within(HEARTBEAT));
    assert_eq!(worker.await_end(within(LEASE * 2)), Some(0));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    scene.judge();
}

#[test]
fn a_third_signal_ends_the_worker_at_once_with_code_one_and_the_job_is_recovered() {
    let scene = Scene::start();
    let mut worker = patient(&scene, "stuck");
    let job = scene.run(stubborn());
    scene.await_start(&job, 1, within(LEASE));
    worker.terminate();
    scene.await_worker(worker.id(), "draining", within(HEARTBEAT));
    // A frozen engine cannot act on the second signal, so the third one finds work to do.
    let frozen = worker.freeze_engine();
    worker.guardian_mut().signal_taken(Signal::TERM);
    worker.guardian_mut().signal_taken(Signal::TERM);
    assert_eq!(worker.await_end(within(FORCED)), Some(1));
    drop(frozen);
    let _heir = scene.worker("heir");
    scene.await_status(&job, "completed", within(LEASE * 2));
    scene.judge();
}

#[test]
fn sigtstp_quiets_a_worker_without_stopping_its_jobs_and_sigcont_resumes_it() {
    let scene = Scene::start();
    let worker = scene.worker("quiet");
    let running = scene.run(Run::holding(Duration::from_secs(3)));
    scene.await_start(&running, 1, within(LEASE));
    worker.guardian().signal(Signal::TSTP);
    scene.await_worker(worker.id(), "quiet", within(LEASE));
    let waiting = scene.run(Run::short());
    let last_sign = scene.ledger().of(&running)[0].last;
    eventually("the running job still shows signs of life", within(LEASE), || {
        (scene.ledger().of(&running)[0].last > last_sign).then_some(())
    });
    stays("a quiet worker takes nothing", LEASE, || {
        scene.ledger().has_started(&waiting, 1).then(|| "it began".to_owned())
    });
    worker.guardian().signal(Signal::CONT);
    scene.await_worker(worker.id(), "running", within(LEASE));
    scene.await_status(&waiting, "completed", within(LEASE));
    scene.await_status(&running, "completed", within(LEASE * 3));
    scene.judge();
}

#[test]
fn sigcont_does_not_resume_what_an_order_quieted() {
    let scene = Scene::start();
    let worker = scene.worker("ordered");
    order(&scene, &worker, "quiet");
    scene.await_worker(worker.id(), "quiet", within(HEARTBEAT));
    worker.guardian().signal(Signal::CONT);
    stays("it remains quiet", HEARTBEAT * 5, || {
        let state = scene.api().try_worker(worker.id())?["state"].clone();
        (state != "quiet").then(|| state.to_string())
    });
    order(&scene, &worker, "resume");
    scene.await_worker(worker.id(), "running", within(HEARTBEAT));
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn quieting_and_resuming_signals_do_not_undo_a_drain() {
    let scene = Scene::start();
    let mut worker = scene.worker("leaver");
    let job = scene.run(Run::holding(Duration::from_secs(2)));
    scene.await_start(&job, 1, within(LEASE));
    worker.terminate();
    scene.await_worker(worker.id(), "draining", within(HEARTBEAT));
    for signal in [Signal::TSTP, Signal::CONT, Signal::CONT, Signal::TSTP] {
        worker.guardian_mut().signal_taken(signal);
    }
    let late = scene.run(Run::short());
    assert_eq!(worker.await_end(within(LEASE * 2)), Some(0));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    assert!(scene.ledger().of(&late).is_empty(), "nothing is claimed in a drain");
    let _next = scene.worker("next");
    scene.await_status(&late, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn sigterm_while_quiet_drains() {
    let scene = Scene::start();
    let mut worker = scene.worker("quiet");
    worker.guardian().signal(Signal::TSTP);
    scene.await_worker(worker.id(), "quiet", within(LEASE));
    worker.terminate();
    assert_eq!(worker.await_end(within(FORCED)), Some(0));
    scene.await_worker(worker.id(), "stopped", within(HEARTBEAT));
    scene.judge();
}

/// Runs a program in a terminal of its own that it uses for nothing, closes the terminal, and ends
/// as the program does.
const IN_A_TERMINAL: &str = r#"
import os, pty, sys, time
log, program = sys.argv[1], sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    elsewhere = [os.open("/dev/null", os.O_RDONLY), os.open(log, os.O_WRONLY)]
    for target in range(3):
        os.dup2(elsewhere[min(target, 1)], target)
    os.execv(program[0], program)
while "Outlast is at" not in open(log).read():
    time.sleep(0.05)
os.close(terminal)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

/// It stayed, and kept its port, if its input was not the terminal.
#[test]
fn dev_ends_with_its_terminal_wherever_its_input_comes_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, log) = (folder.path().join("data"), folder.path().join("dev.log"));
    std::fs::write(&log, "").expect("a log");
    let mut python = Command::new("python3");
    python.args(["-c", IN_A_TERMINAL]).arg(&log).arg(outlast());
    python.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    let mut terminal = Process::spawn("terminal", python, folder.path());
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    assert_eq!(terminal.await_end(within(KILL_AFTER)), Some(0), "{}", said());
}
