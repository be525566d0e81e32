//! What the tests share: specs, programs with a readable output, and looks at /proc.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outlast_core::time::BootTime;
use outlast_worker::OwnProgram;
use outlast_worker::attempt::AttemptSpec;
use outlast_worker::clock::boot_now;
use outlast_worker::containment::Containment;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

pub(crate) const HOST: &str = env!("CARGO_BIN_EXE_outlast-worker-host");

/// The bound on anything a test waits for.
pub(crate) const PATIENCE_MS: u64 = 20_000;

/// A plain shell job in the strongest containment.
pub(crate) fn shell(script: &str) -> AttemptSpec {
    shell_marked(script, "job")
}

/// A shell job whose processes carry `marker` in their command lines.
pub(crate) fn shell_marked(script: &str, marker: &str) -> AttemptSpec {
    AttemptSpec {
        args: vec!["-c".to_owned(), script.to_owned(), marker.to_owned()],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        kill_after: Duration::from_millis(300),
        containment: Containment::Pidns,
        shim: OwnProgram::at(HOST),
        ..AttemptSpec::new("test", "/bin/sh")
    }
}

/// A word that no other process on the machine has in its command line.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("outlast-marker-{}-{number}-{}", std::process::id(), boot_now().0)
}

/// A script that leaves a process which forked twice, has a session of its own, no
/// environment, ignores every polite signal, and keeps standard output open; then goes on
/// with `then`. Needs the marker as `$0`; says that it is ready by making `ready`.
pub(crate) fn escape_artist(ready: &Path, then: &str) -> String {
    let ready = ready.display();
    format!(
        r#"( setsid env -i /bin/sh -c '
             trap "" TERM HUP INT
             (trap "" TERM; while :; do /bin/sleep 0.05; done) &
             : > "$1"
             while :; do /bin/sleep 0.05; done' "$0" {ready} & )
           while [ ! -e {ready} ]; do sleep 0.01; done
           {then}"#
    )
}

/// Every living process with `marker` in its command line, our own programs excepted.
pub(crate) fn survivors(marker: &str) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let command_line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command_line = String::from_utf8_lossy(&command_line).into_owned();
        if command_line.contains(marker) && !command_line.contains("outlast-worker-host") {
            found.extend(Pid::from_raw(pid));
        }
    }
    found
}

/// The arguments that the list of processes shows; none of one that is gone.
pub(crate) fn arguments(pid: Pid) -> Vec<String> {
    let text = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The living processes of which the list of processes shows these words.
pub(crate) fn listed(words: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| arguments(*pid).join(" ") == words).collect()
}

/// Every child of a process, zombies included.
pub(crate) fn children_of(pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let lists = tasks.into_iter().flatten().flatten();
    let lists = lists.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// The processes of an engine that fork its shims: one, or none for a moment.
pub(crate) fn spawners_of(engine: Pid) -> Vec<Pid> {
    let mut children = children_of(engine);
    children.retain(|child| arguments(*child) == ["outlast", "spawner"]);
    children
}

/// Both halves of the shim of that label, the outer one first.
pub(crate) fn shims(label: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let mut found: Vec<Pid> =
        pids.filter(|pid| arguments(*pid) == ["outlast", "shim", label]).collect();
    found.sort_by_key(|pid| pid.as_raw_nonzero());
    found
}

/// Whether it has ended and was not reaped yet.
pub(crate) fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") Z "))
}

/// A process that ended but was not reaped yet by its new parent counts as gone.
pub(crate) fn is_gone(pid: Pid) -> bool {
    is_zombie(pid) || test_kill_process(pid).is_err()
}

/// All writable memory of a process.
pub(crate) fn memory_of(pid: Pid) -> Vec<u8> {
    let pid = pid.as_raw_nonzero();
    let mut file = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut memory = Vec::new();
    for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        if !rest.starts_with("rw") {
            continue;
        }
        let (from, to) = range.split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        file.seek(SeekFrom::Start(number(from))).unwrap();
        let mut part = vec![0; usize::try_from(number(to) - number(from)).unwrap()];
        if file.read_exact(&mut part).is_ok() {
            memory.extend(part);
        }
    }
    memory
}

/// Polls until `condition` holds, and fails with `what` when it does not in time.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the pause between two looks of a bounded poll")]
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let began = boot_now();
    while !condition() {
        assert!(boot_now().since(began).as_millis() < PATIENCE_MS, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asserts that nothing marked is alive within `bound_ms` of `since`.
#[track_caller]
pub(crate) fn gone_within(marker: &str, since: BootTime, bound_ms: u64) {
    eventually("the tree ends", || survivors(marker).is_empty());
    let took = boot_now().since(since).as_millis();
    assert!(took <= bound_ms, "the tree was gone only after {took} ms, not within {bound_ms} ms");
}

/// The host program in one of its roles, killed when dropped.
pub(crate) struct Host {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Host {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_command(Command::new(HOST).args(args))
    }

    /// Starts another program that becomes the host program.
    pub(crate) fn start_program(program: &str, args: &[&str]) -> Self {
        Self::start_command(Command::new(program).args(args))
    }

    /// Starts it as a user without any rights.
    pub(crate) fn start_as_nobody(args: &[&str]) -> Self {
        Self::start_command(Command::new(HOST).args(args).uid(65534).gid(65534))
    }

    fn start_command(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits for the next line it says.
    pub(crate) fn line(&mut self) -> String {
        self.lines.next().expect("the host program ended without a word").unwrap()
    }

    /// Waits for the next line it says; none if it ends.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        self.lines.next().map(Result::unwrap)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end and returns its exit code, if it exited.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
