//! Parts of a worker are killed at random, while its jobs try to outlive their attempts.

use std::collections::BTreeSet;
use std::fs;

use outlast_worker::clock::boot_now;
use outlast_worker::containment::Containment;
use outlast_worker::runtime::Runtime;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Host, arguments, children_of, eventually, gone_within, is_gone, listed, marker, survivors,
};

/// A job of a few ticks that leaves a process with a session of its own.
const CHURNED: &str = "(setsid sh -c 'while :; do sleep 0.05; done' \"$0\" > /dev/null 2>&1 &)
    sleep 0.0$(( $$ % 10 ))";

/// Random numbers, the same ones for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// Guardian, engine, spawner, warm interpreters and shims of a worker: each with the word that says what
/// it is. Not the keeper: without it a cgroup that is killed with all others is left to the next worker.
fn parts_of(guardian: Pid) -> Vec<(Pid, String)> {
    let mut found = vec![(guardian, "guardian".to_owned())];
    let mut next = 0;
    while let Some((parent, _)) = found.get(next) {
        for child in children_of(*parent) {
            let shown = arguments(child).join(" ");
            let word = shown.split(' ').nth(1).unwrap_or_default();
            // An interpreter of Node.js that has only just been started.
            let word = if word == "-e" { "warm" } else { word };
            if ["churn", "churn-warm", "spawner", "shim", "warm"].contains(&word) {
                found.push((child, word.to_owned()));
            }
        }
        next += 1;
    }
    found
}

/// Kills the guardian of a worker; all jobs end, and none had left anything after its own end.
fn end(worker: Option<Host>, marker: &str) {
    let Some(mut worker) = worker else { return };
    let _ = kill_process(worker.pid(), Signal::KILL);
    gone_within(marker, boot_now(), 5000);
    let said: Vec<String> = std::iter::from_fn(|| worker.try_line()).collect();
    assert!(said.iter().all(|line| !line.starts_with("alive")), "{said:#?}");
}

/// Kills parts of a worker with these arguments, and says which.
fn kill_at_random(args: &[&str], marker: &str, kills: u32) -> BTreeSet<String> {
    let mut chance = Chance(boot_now().0 | 1);
    let mut killed = BTreeSet::new();
    let mut worker = None;
    for _ in 0..kills {
        // It ends with its guardian, and after five deaths of its engine.
        let host = worker.get_or_insert_with(|| Host::start(args));
        let pid = host.pid();
        eventually("jobs run, or it ends", || !survivors(marker).is_empty() || is_gone(pid));
        if is_gone(pid) {
            end(worker.take(), marker);
            continue;
        }
        let parts = parts_of(pid);
        let (pid, part) = &parts[chance.below(parts.len())];
        // One in eight kills takes the whole of it.
        let all = chance.below(8) == 0;
        let victims = parts.iter().filter(|(other, _)| all || other == pid);
        for (victim, part) in victims {
            let _ = kill_process(*victim, Signal::KILL);
            killed.insert(part.clone());
        }
        if all || part == "guardian" {
            end(worker.take(), marker);
        }
    }
    end(worker, marker);
    killed
}

fn check_random_kills(containment: Containment, kills: u32) {
    let marker = marker();
    let args = ["guardian", "churn", containment.name(), &marker, CHURNED];
    let killed = kill_at_random(&args, &marker, kills);
    assert!(killed.contains("spawner") || kills < 50, "{killed:?}");
}

/// Jobs as above that a warm interpreter runs: each leaves a process with a session of its own.
const CHURNED_PYTHON: &str = r#"
import os, subprocess, sys, time
loop = "while :; do sleep 0.05; done"
subprocess.Popen(["setsid", "sh", "-c", loop, os.environ["MARKER"]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(os.urandom(1)[0] / 2560)
"#;
const CHURNED_NODE: &str = r#"
const { spawn } = require("child_process");
const loop = "while :; do sleep 0.05; done";
spawn("setsid", ["sh", "-c", loop, process.env.MARKER], { stdio: "ignore", detached: true }).unref();
setTimeout(() => {}, Math.random() * 500);
"#;

fn check_random_kills_of_warm(runtime: Runtime, kills: u32) {
    let (marker, folder) = (marker(), tempfile::tempdir().unwrap());
    let path = folder.path().canonicalize().unwrap();
    fs::create_dir(path.join("attempts")).unwrap();
    let (name, script) = match runtime {
        Runtime::Node => ("it.js", CHURNED_NODE),
        _ => ("it.py", CHURNED_PYTHON),
    };
    fs::write(path.join(name), script).unwrap();
    let args = ["guardian", "churn-warm", runtime.name(), &marker, path.to_str().unwrap()];
    let killed = kill_at_random(&args, &marker, kills);
    assert!(killed.contains("warm") || kills < 50, "{killed:?}");
    let own = format!("outlast warm {}", path.display());
    eventually("no warm interpreter is left", || listed(&own).is_empty());
}

#[test]
fn random_kills_leave_no_process_of_a_job() {
    for containment in [Containment::Pidns, Containment::Cgroup] {
        check_random_kills(containment, 15);
    }
}

#[test]
fn random_kills_leave_no_process_of_a_forked_job() {
    check_random_kills_of_warm(Runtime::Python, 15);
}

#[test]
fn random_kills_leave_no_process_of_a_job_whose_interpreter_was_started_ahead() {
    check_random_kills_of_warm(Runtime::Node, 15);
}

#[test]
#[ignore = "takes minutes: .ci/nightly runs it"]
fn two_hundred_random_kills_leave_no_process_of_a_job() {
    check_random_kills(Containment::Pidns, 200);
    check_random_kills(Containment::Cgroup, 200);
}

#[test]
#[ignore = "takes minutes: .ci/nightly runs it"]
fn two_hundred_random_kills_leave_no_process_of_a_forked_job() {
    check_random_kills_of_warm(Runtime::Python, 200);
}

#[test]
#[ignore = "takes minutes: .ci/nightly runs it"]
fn two_hundred_random_kills_leave_no_process_of_a_job_whose_interpreter_was_started_ahead() {
    check_random_kills_of_warm(Runtime::Node, 200);
}
