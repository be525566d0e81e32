//! Who the pipeline delivers to: an FTP server, and someone who looks at its folder all the time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use outlast_e2e::wait::eventually;
use outlast_e2e::{Process, skip};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/pipeline/ftp_server.py");
const START: Duration = Duration::from_secs(30);
/// Names a Python that has pyftpdlib, where the system's has not.
const PYTHON: &str = "OUTLAST_TEST_FTP_PYTHON";

/// The receiver's FTP server.
pub(super) struct Receiver {
    process: Process,
    python: PathBuf,
    port: u16,
    folder: PathBuf,
    logs: PathBuf,
    watch: Watch,
}

/// A file that makes a program wait until this is dropped.
pub(super) struct Hold(PathBuf);

impl Hold {
    pub(super) fn begin(path: &Path, text: &str) -> Self {
        // Written whole or not there: it is read at any moment.
        let part = path.with_extension("part");
        fs::write(&part, text).expect("a file");
        fs::rename(part, path).expect("its name");
        Self(path.to_owned())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("the file of the hold");
    }
}

impl Receiver {
    /// Starts the server; `None` where pyftpdlib is missing and that is allowed.
    pub(super) fn start(logs: &Path) -> Option<Self> {
        let Some(python) = python() else {
            skip::for_want_of("pyftpdlib (package python3-pyftpdlib)");
            return None;
        };
        let folder = logs.join("delivered");
        fs::create_dir(&folder).expect("a folder");
        let mut process = run(&python, 0, &folder, logs);
        let port = port_of(&mut process);
        let watch = Watch::begin(&folder);
        Some(Self { process, python, port, folder, logs: logs.to_owned(), watch })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server where it stands.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, at the same address.
    pub(super) fn start_again(&mut self) {
        self.process = run(&self.python, self.port, &self.folder, &self.logs);
        assert_eq!(port_of(&mut self.process), self.port);
    }

    /// Lets the upload of this file begin and not end.
    pub(super) fn hold(&self, name: &str) -> Hold {
        Hold::begin(&hold_of(&self.logs), &temporary(name))
    }

    /// Waits until a part of this file has been received.
    #[track_caller]
    pub(super) fn await_half(&self, name: &str, bound: Duration) {
        eventually("half a file", bound, || {
            let size = fs::metadata(self.folder.join(temporary(name))).ok()?.len();
            (size > 0).then_some(())
        });
    }

    /// From now on a file of this name must have these bytes whenever it is looked at.
    pub(super) fn expect(&self, name: &str, bytes: String) {
        self.watch.expected.lock().expect("the list").insert(name.to_owned(), bytes);
    }

    /// Changes a delivered file. It may have any bytes until [`Self::expect`] says otherwise.
    pub(super) fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.watch.expected.lock().expect("the list").remove(name);
        let path = self.folder.join(name);
        let mut bytes = fs::read(&path).expect("a file");
        change(&mut bytes);
        fs::write(path, bytes).expect("a file");
    }

    /// What is not as it must be at the end of a run: files that are missing, and others that are there.
    pub(super) fn faults(&self) -> Vec<String> {
        let expected = self.watch.expected.lock().expect("the list").clone();
        let mut faults = self.watch.faults();
        for (name, bytes) in &expected {
            if fs::read_to_string(self.folder.join(name)).ok().as_ref() != Some(bytes) {
                faults.push(format!("{name} was not delivered as it should have been"));
            }
        }
        let others = names(&self.folder).into_iter().filter(|name| !expected.contains_key(name));
        faults.extend(others.map(|name| format!("{name} is in the folder of deliveries")));
        faults
    }

    /// Ends the watch, which must have seen deliveries.
    pub(super) fn finish(self) {
        let seen = self.watch.end();
        assert!(seen > 0, "the watch saw no file");
    }
}

fn run(python: &Path, port: u16, folder: &Path, logs: &Path) -> Process {
    let mut command = Command::new(python);
    command.arg("-B").arg(PROGRAM).arg(port.to_string()).arg(folder).arg(hold_of(logs));
    command.stdin(Stdio::null());
    Process::spawn("ftp", command, logs)
}

fn port_of(process: &mut Process) -> u16 {
    let line = process.await_line("listening on port ", START);
    line.rsplit(' ').next().and_then(|port| port.parse().ok()).expect("a port")
}

fn hold_of(logs: &Path) -> PathBuf {
    logs.join("hold")
}

/// The name of a file while it is uploaded.
fn temporary(name: &str) -> String {
    format!("{name}.part")
}

/// A Python that has pyftpdlib. Debian's package is for the system's, which need not come first.
fn python() -> Option<PathBuf> {
    let given = std::env::var_os(PYTHON).map(PathBuf::from);
    let candidates = given.into_iter().chain(["python3".into(), "/usr/bin/python3".into()]);
    candidates.into_iter().find(|python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import pyftpdlib.servers"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into()).collect()
}

/// Looks at the files under their final names, again and again: each is whole whenever it is there.
struct Watch {
    expected: Arc<Mutex<BTreeMap<String, String>>>,
    faults: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Watch {
    fn begin(folder: &Path) -> Self {
        let (expected, faults, over) = (Arc::default(), Arc::default(), Arc::default());
        let thread = {
            let (expected, faults, over) =
                (Arc::clone(&expected), Arc::clone(&faults), Arc::clone(&over));
            let folder = folder.to_owned();
            thread::spawn(move || look(&folder, &expected, &faults, &over))
        };
        Self { expected, faults, over, thread }
    }

    fn faults(&self) -> Vec<String> {
        self.faults.lock().expect("the list").clone()
    }

    /// Returns how many files it has looked at.
    fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watch ends")
    }
}

fn look(
    folder: &Path,
    expected: &Mutex<BTreeMap<String, String>>,
    faults: &Mutex<Vec<String>>,
    over: &AtomicBool,
) -> u64 {
    let mut looks = 0;
    while !over.load(Ordering::Relaxed) {
        // Locked while it looks: what was taken off the list is not looked at any more.
        let known = expected.lock().expect("the list");
        for (name, bytes) in &*known {
            let Ok(found) = fs::read_to_string(folder.join(name)) else { continue };
            looks += 1;
            if found != *bytes {
                let fault = format!("{name} had {} of {} bytes", found.len(), bytes.len());
                faults.lock().expect("the list").push(fault);
            }
        }
        drop(known);
        thread::sleep(Duration::from_millis(10));
    }
    looks
}
