//! The guardian owns the signals, outlives its engine, and leaves nothing behind (F1, F2,
//! F21-F23).

use std::process::{Command, Stdio};

use outlast_worker::clock::boot_now;
use outlast_worker::containment::Containment;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::{
    HOST, Host, children_of, escape_artist, eventually, gone_within, marker, shims, survivors,
};

/// Starts a guarded engine and returns the engine's number with it.
fn start(args: &[&str]) -> (Host, Pid) {
    let mut all = vec!["guardian", "listen"];
    all.extend(args);
    let mut guardian = Host::start(&all);
    let engine = engine_of(&guardian.line());
    (guardian, engine)
}

#[test]
fn signals_reach_the_engine_as_messages_in_order() {
    let (mut guardian, engine) = start(&["deaf"]);
    let said = [
        (Signal::TSTP, "Quiet"),
        (Signal::CONT, "Resume"),
        (Signal::TSTP, "Quiet"),
        (Signal::TERM, "Terminate"),
        (Signal::CONT, "Resume"),
        (Signal::INT, "Terminate"),
    ];
    for (signal, expected) in said {
        guardian.signal(signal);
        assert_eq!(guardian.line(), expected);
    }
    test_kill_process(engine).unwrap();
}

#[test]
fn clean_drain_exits_zero() {
    let (mut guardian, _) = start(&["drain"]);
    guardian.signal(Signal::TERM);
    assert_eq!(guardian.exit_code(), Some(0));
}

#[test]
fn wrong_usage_is_passed_on_and_anything_else_is_a_fault() {
    for (mode, expected) in [("usage", 2), ("odd", 1)] {
        let (mut guardian, _) = start(&[mode]);
        guardian.signal(Signal::TERM);
        assert_eq!(guardian.exit_code(), Some(expected));
    }
}

#[test]
fn hangup_asks_for_packs_to_be_reload_and_ends_nothing() {
    let (mut guardian, _) = start(&["drain"]);
    guardian.signal(Signal::HUP);
    assert_eq!(guardian.line(), "ReloadPacks");
    guardian.signal(Signal::TSTP);
    assert_eq!(guardian.line(), "Quiet");
    guardian.signal(Signal::TERM);
    assert_eq!(guardian.exit_code(), Some(0));
}

#[test]
fn third_termination_ends_it_at_once() {
    let (mut guardian, engine) = start(&["deaf"]);
    for _ in 0..2 {
        guardian.signal(Signal::TERM);
        assert_eq!(guardian.line(), "Terminate");
    }
    let asked = boot_now();
    guardian.signal(Signal::INT);
    assert_eq!(guardian.exit_code(), Some(1));
    assert!(boot_now().since(asked).as_millis() < 1000);
    eventually("the engine is gone", || is_gone(engine));
}

/// A process that ended but was not reaped yet by its new parent counts as gone.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") Z ")) || test_kill_process(pid).is_err()
}

fn check_engine_death(containment: Containment) {
    let folder = tempfile::tempdir().unwrap();
    let (marker, ready) = (marker(), folder.path().join("ready"));
    let script = escape_artist(&ready, "while :; do sleep 0.05; done");
    let (mut guardian, engine) = start(&["deaf", containment.name(), "0", &marker, &script]);
    eventually("the artist is loose", || ready.exists());
    let of_it = survivors(&marker);
    kill_process(engine, Signal::KILL).unwrap();
    let (report, next) = report_and_next(&mut guardian, || {
        let left = survivors(&marker);
        assert!(!of_it.iter().any(|pid| left.contains(pid)), "nothing of the dead engine is left");
    });
    assert!(report.starts_with("00000000-0000-0000-0000-000000000007 "), "{report}");
    assert!(report.contains("killed by signal 9"), "{report}");
    assert_ne!(next, engine);
    test_kill_process(guardian.pid()).unwrap();
}

/// What the guardian reports of a dead engine, and the next engine: they print side by side. `look`
/// is called as soon as either has printed.
fn report_and_next(guardian: &mut Host, look: impl FnOnce()) -> (String, Pid) {
    let first = guardian.line();
    look();
    let second = guardian.line();
    let is_engine = |line: &String| line.starts_with("engine ");
    let (next, report) = [first, second].into_iter().partition::<Vec<_>, _>(is_engine);
    (report.concat(), engine_of(&next.concat()))
}

fn engine_of(line: &str) -> Pid {
    Pid::from_raw(line.strip_prefix("engine ").unwrap().parse().unwrap()).unwrap()
}

#[test]
fn engine_death_is_reported_and_followed_by_another_engine_when_no_pid_namespace_is_left() {
    check_engine_death(Containment::Pidns);
}

#[test]
fn engine_death_is_reported_and_followed_by_another_engine_when_no_cgroup_is_left() {
    check_engine_death(Containment::Cgroup);
}

#[test]
fn engine_death_is_reported_and_followed_by_another_engine_when_no_subreaper_is_left() {
    check_engine_death(Containment::Subreaper);
}

#[test]
fn engine_that_never_registered_leaves_no_death_to_report() {
    let (mut guardian, engine) = start(&["unknown"]);
    kill_process(engine, Signal::KILL).unwrap();
    assert_ne!(engine_of(&guardian.line()), engine);
}

#[test]
fn five_deaths_within_a_minute_end_the_worker_with_a_fault() {
    let (mut guardian, mut engine) = start(&["unknown"]);
    for _ in 0..4 {
        kill_process(engine, Signal::KILL).unwrap();
        engine = engine_of(&guardian.line());
    }
    kill_process(engine, Signal::KILL).unwrap();
    assert_eq!((guardian.try_line(), guardian.exit_code()), (None, Some(1)));
}

#[test]
fn an_engine_that_fails_before_any_has_registered_is_not_started_again() {
    let mut guardian = Host::start(&["guardian", "listen", "hopeless"]);
    assert_eq!((guardian.try_line(), guardian.exit_code()), (None, Some(1)));
}

#[test]
fn an_engine_whose_lease_was_over_is_followed_by_another() {
    let (mut guardian, engine) = start(&["lease"]);
    guardian.signal(Signal::HUP);
    assert_eq!(guardian.line(), "ReloadPacks");
    assert_ne!(engine_of(&guardian.line()), engine);
}

// A worker that was taken out of service took jobs again after its engine had died.
#[test]
fn the_next_engine_obeys_the_signals_that_are_in_force() {
    for (mode, signals, told) in [
        ("deaf", &[Signal::TSTP][..], Some("Quiet")),
        ("deaf", &[Signal::TSTP, Signal::CONT], None),
    ] {
        let (mut guardian, engine) = start(&[mode]);
        for signal in signals {
            guardian.signal(*signal);
            guardian.line();
        }
        kill_process(engine, Signal::KILL).unwrap();
        report_and_next(&mut guardian, || ());
        if let Some(told) = told {
            assert_eq!(guardian.line(), told, "{mode}");
        }
        guardian.signal(Signal::TERM);
        assert_eq!(guardian.line(), "Terminate", "{mode}");
    }
}

// An order that an engine had not passed on to its guardian was lost with it: the server keeps them.
#[test]
fn the_next_engine_is_told_which_identities_it_follows() {
    let mut guardian = Host::start(&["guardian", "listen", "heir"]);
    let named = |nth: usize| format!("\"--follows=00000000-0000-0000-0000-00000000000{nth}\"");
    let named_to_each =
        (7..=10).map(|next| format!("[{}]", (7..next).map(named).collect::<Vec<_>>().join(", ")));
    for expected in named_to_each {
        let lines: Vec<String> = std::iter::from_fn(|| Some(guardian.line()))
            .filter(|line| !line.contains("killed by"))
            .take(2)
            .collect();
        assert_eq!(lines.first(), Some(&expected));
        kill_process(engine_of(&lines[1]), Signal::KILL).unwrap();
    }
}

#[test]
fn a_worker_that_drains_ends_when_its_engine_dies() {
    // By a signal.
    let (mut guardian, engine) = start(&["deaf"]);
    guardian.signal(Signal::TERM);
    assert_eq!(guardian.line(), "Terminate");
    kill_process(engine, Signal::KILL).unwrap();
    assert!(guardian.line().contains("killed by signal 9"));
    assert_eq!((guardian.try_line(), guardian.exit_code()), (None, Some(1)));
    // By order: what manages the worker must not start it again.
    let (mut guardian, engine) = start(&["draining"]);
    kill_process(engine, Signal::KILL).unwrap();
    assert!(guardian.line().contains("killed by signal 9"));
    assert_eq!((guardian.try_line(), guardian.exit_code()), (None, Some(0)));
    // Its own fault is one all the same.
    let (mut guardian, _) = start(&["draining"]);
    guardian.signal(Signal::HUP);
    assert_eq!(guardian.line(), "ReloadPacks");
    assert!(guardian.line().contains("a fault of its own"));
    assert_eq!((guardian.try_line(), guardian.exit_code()), (None, Some(1)));
}

#[test]
fn a_termination_between_two_engines_ends_the_worker() {
    let (mut guardian, mut engine) = start(&["unknown"]);
    // The fourth pause is the longest.
    for nth in 1..=4 {
        kill_process(engine, Signal::KILL).unwrap();
        if nth < 4 {
            engine = engine_of(&guardian.line());
        }
    }
    eventually("the engine is reaped", || test_kill_process(engine).is_err());
    guardian.signal(Signal::TERM);
    assert_eq!((guardian.try_line(), guardian.exit_code()), (None, Some(0)));
}

#[test]
fn engine_that_drained_is_not_reported_and_one_that_crashed_is() {
    for (mode, reports) in [("drain", false), ("usage", false), ("odd", true)] {
        let (mut guardian, _) = start(&[mode]);
        guardian.signal(Signal::TERM);
        assert_eq!(guardian.line(), "Terminate");
        let report = guardian.try_line();
        assert_eq!(report.is_some_and(|line| line.contains("exit code 77")), reports, "{mode}");
    }
}

/// Its jobs waited for the end of its lease.
#[test]
fn engine_that_gave_up_is_reported_with_the_reason_unless_it_said_goodbye() {
    let expected =
        [("fault", 1, "engine_killed the"), ("denied", 5, "lease the"), ("leaves", 1, "")];
    for (mode, code, says) in expected {
        let (mut guardian, _) = start(&[mode]);
        guardian.signal(Signal::TERM);
        assert_eq!(guardian.line(), "Terminate");
        let report = guardian.try_line();
        assert_eq!(report.is_some(), !says.is_empty(), "{mode}: {report:?}");
        assert!(report.unwrap_or_default().contains(says), "{mode}");
        assert_eq!(guardian.exit_code(), Some(code), "{mode}");
    }
}

#[test]
fn engine_and_shims_killed_together_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (marker, ready) = (marker(), folder.path().join("ready"));
    let script = escape_artist(&ready, "while :; do sleep 0.05; done");
    let (mut guardian, engine) = start(&["deaf", "subreaper", "0", &marker, &script]);
    eventually("the artist is loose", || ready.exists());
    let of_it = survivors(&marker);
    for shim in children_of(engine) {
        kill_process(shim, Signal::KILL).unwrap();
    }
    kill_process(engine, Signal::KILL).unwrap();
    let (_, next) = report_and_next(&mut guardian, || {
        let left = survivors(&marker);
        assert!(
            !of_it.iter().any(|pid| left.contains(pid)),
            "what the guardian inherited has ended"
        );
    });
    assert_ne!(next, engine);
}

// It ran on for as long as it liked, and the attempt was over.
#[test]
fn what_a_job_leaves_that_kills_both_halves_of_its_shim_is_ended_while_the_engine_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    let (marker, ready) = (marker(), folder.path().join("ready"));
    let script = escape_artist(&ready, "while :; do sleep 0.05; done");
    let (mut guardian, engine) = start(&["deaf", "subreaper", "0", &marker, &script]);
    eventually("the artist is loose", || ready.exists());
    let halves = shims(&format!("engine-{}", engine.as_raw_nonzero()));
    assert_eq!(halves.len(), 2);
    for signal in [Signal::STOP, Signal::KILL] {
        for half in &halves {
            kill_process(*half, signal).unwrap();
        }
    }
    // The command line of the engine has the marker as well.
    eventually("what was left is ended", || survivors(&marker).iter().all(|pid| *pid == engine));
    test_kill_process(engine).unwrap();
    guardian.signal(Signal::TERM);
    assert_eq!(guardian.line(), "Terminate", "the engine runs on");
}

// `exec outlast worker 2> >(logger)`: the shell's child becomes the guardian's.
#[test]
fn a_child_that_was_there_before_the_engine_lives_on() {
    let command = format!("sleep 600 & echo $!; exec {} guardian listen deaf", HOST);
    let mut guardian = Host::start_program("/bin/sh", &["-c", &command]);
    let child = Pid::from_raw(guardian.line().parse().unwrap()).unwrap();
    let engine = guardian.line();
    assert!(engine.starts_with("engine "), "{engine}");
    // Each signal ends one look for orphans, and the message proves that it has.
    for _ in 0..3 {
        guardian.signal(Signal::TSTP);
        assert_eq!(guardian.line(), "Quiet");
    }
    test_kill_process(child).unwrap();
    kill_process(child, Signal::KILL).unwrap();
}

/// A guardian that is process 1 of a container, its engine's number in there, and process 1 itself.
fn start_as_process_1() -> (Host, Pid) {
    let args = ["--pid", "--fork", "--kill-child", "--mount-proc", HOST, "guardian", "listen"];
    let mut container = Host::start_program("unshare", &[&args[..], &["drain"]].concat());
    assert!(container.line().starts_with("engine "));
    let first = children_of(container.pid());
    (container, first[0])
}

// It was killed within a second.
#[test]
fn what_comes_into_a_container_by_another_way_is_neither_killed_nor_left_as_a_zombie() {
    let (mut container, first) = start_as_process_1();
    let (stays, goes) = (marker(), marker());
    let script =
        "for each in \"$0\" \"$1\"; do sh -c 'while :; do sleep 0.05; done' \"$each\" & done";
    let target = first.as_raw_nonzero().to_string();
    let enter = ["--target", &target, "--pid", "--mount", "sh", "-c", script, &stays, &goes];
    let mut exec = Command::new("nsenter");
    let entered = exec.args(enter).stdout(Stdio::null()).status().unwrap();
    assert!(entered.success());
    // Until each has become a shell of its own, it has the arguments of the one that started both.
    eventually("each is a program of its own", || {
        let (stays, goes) = (survivors(&stays), survivors(&goes));
        stays.len() == 1 && goes.len() == 1 && stays != goes
    });
    let orphan = survivors(&stays)[0];
    assert!(children_of(first).contains(&orphan), "it is process 1 that has it now");
    // Each signal ends one look for orphans, and the message proves that it has.
    for said in ["Quiet", "Resume", "Quiet"] {
        let signal = if said == "Quiet" { Signal::TSTP } else { Signal::CONT };
        kill_process(first, signal).unwrap();
        assert_eq!(container.line(), said);
    }
    assert_eq!(survivors(&stays), [orphan]);
    let ended = survivors(&goes)[0];
    kill_process(ended, Signal::KILL).unwrap();
    eventually("it is reaped", || test_kill_process(ended).is_err());
    kill_process(first, Signal::TERM).unwrap();
    assert_eq!(container.line(), "Terminate");
    assert_eq!(container.exit_code(), Some(0));
    eventually("the container is gone", || survivors(&stays).is_empty());
}

// `exec outlast worker 2> >(logger)`: it was killed half a second after the engine had ended.
#[test]
fn a_child_that_was_there_before_the_engine_is_not_killed_at_the_end_either() {
    let command = format!("sleep 600 >&- & echo $!; exec {} guardian listen drain", HOST);
    let mut guardian = Host::start_program("/bin/sh", &["-c", &command]);
    let child = Pid::from_raw(guardian.line().parse().unwrap()).unwrap();
    assert!(guardian.line().starts_with("engine "));
    guardian.signal(Signal::TERM);
    assert_eq!(guardian.line(), "Terminate");
    assert_eq!(guardian.exit_code(), Some(0));
    test_kill_process(child).unwrap();
    kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn engine_is_told_when_its_guardian_dies_and_its_trees_end() {
    let folder = tempfile::tempdir().unwrap();
    let (marker, ready) = (marker(), folder.path().join("ready"));
    let script = escape_artist(&ready, "while :; do sleep 0.05; done");
    let (mut guardian, engine) = start(&["deaf", "pidns", "0", &marker, &script]);
    eventually("the artist is loose", || ready.exists());
    let killed_at = boot_now();
    guardian.signal(Signal::KILL);
    assert_eq!(guardian.line(), "GuardianGone");
    gone_within(&marker, killed_at, 1000);
    eventually("the engine ends", || is_gone(engine));
}

#[test]
fn engine_is_out_of_reach_of_the_terminals_keys() {
    let (guardian, engine) = start(&["deaf"]);
    assert_eq!(session_of(engine), engine.as_raw_nonzero().get(), "it leads a session of its own");
    assert_ne!(session_of(guardian.pid()), session_of(engine));
}

/// The session of a process; 0 where its leader is outside this PID namespace, as it is when
/// the tests themselves run in a container.
fn session_of(pid: Pid) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.split(' ').nth(3).unwrap().parse().unwrap()
}
