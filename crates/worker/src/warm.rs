//! Warm processes: interpreters that have imported what an action needs, and are forked for each of
//! its attempts.
//!
//! ```text
//! attempt asks ──▶ none yet: starts one beside it, and executes the program as ever
//!              └─▶ serving: its shim has the job forked (`process::shim::forked`)
//! absent ──asked──▶ starting ──imports done──▶ serving ──idle | grown | hangs | pack changed──▶ absent
//! ```
//!
//! There is one for each interpreter, digest of the pack, environment and list of modules. It is
//! launched by the spawner like a shim, and ends with its engine. It runs nothing of an action, gets
//! nothing of an attempt, and an attempt does not depend on it once it runs. Whatever goes wrong with one,
//! no attempt waits or fails for it: the program is executed.
//!
//! Attempts are forked only into PID namespaces. There the kernel makes the shim, which is process 1,
//! the parent of what is born without one. Nothing does so for a cgroup or a subreaper, where an
//! attempt would be a child of the warm process, which would have to be trusted with its end.
//!
//! - `slot`: which one serves and when it is replaced, without any process
//! - `parent`: one process, from its launch to its end
//! - `parent.py`: its program

mod parent;
mod slot;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::time::BootTime;
use outlast_packs::environment::{InUse, PackEnvironment};
use tokio::sync::Notify;

use self::parent::{Launch, Parent, Trouble};
use self::slot::{Advice, End, Memory, Slot};
use crate::OwnProgram;
use crate::clock::boot_now;
use crate::containment::Containment;
use crate::process::memory;
use crate::process::protocol::{Blame, NotForked};

/// Most at a time: each holds its modules in memory. Attempts beyond that are executed.
const PROCESSES_MAX: usize = 16;

/// How often one is looked at that serves nothing.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Variables that an interpreter or the libraries below it read at their start. One that an attempt has
/// of its own would have no effect.
const READ_AT_START: [&str; 8] =
    ["PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "GCONV_"];

/// What a warm process is for: processes that differ in any of this are not the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WarmKey {
    /// The pack.
    pub pack: String,
    /// What its files said when they were read.
    pub digest: Arc<str>,
    /// The interpreter.
    pub program: PathBuf,
    /// Its options, without the script.
    pub options: Vec<String>,
    /// The environment of the pack that it runs in.
    pub environment: Option<PathBuf>,
    /// What it imports.
    pub preload: Vec<String>,
    /// Where imports are looked for first: the folder of the script.
    pub folder: PathBuf,
    /// The working folder.
    pub cwd: PathBuf,
    /// The variables that all its attempts have.
    pub variables: Vec<(String, String)>,
    /// How long it stays without an attempt.
    pub idle: Duration,
}

impl WarmKey {
    /// Whether the other one is of a state of the pack, or of what is installed for it, that is gone.
    /// Keys of one state may differ in all else: actions have settings of their own.
    fn replaces(&self, other: &Self) -> bool {
        let another_environment =
            self.environment.is_some()
                && other.environment.is_some()
                && self.environment != other.environment;
        self.pack == other.pack && (self.digest != other.digest || another_environment)
    }
}

/// What an attempt needs of a warm process.
#[derive(Debug)]
pub struct WarmRequest<'a> {
    /// Which one.
    pub key: WarmKey,
    /// The environment of the pack, to hold it.
    pub environment: Option<Arc<PackEnvironment>>,
    /// All variables of the attempt.
    pub variables: &'a [(String, String)],
    /// What holds the attempt.
    pub containment: Containment,
    /// Files that it must not see.
    pub hidden: Vec<PathBuf>,
}

/// The warm processes of a worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WarmProcesses {
    program: OwnProgram,
    /// Where attempts have their folders.
    attempts: PathBuf,
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<Arc<WarmKey>, Entry>,
    /// What was said about each pack: once is enough, even where it is worded differently each time.
    said: BTreeMap<(String, Topic), String>,
}

/// Why attempts are executed although their action asks for a warm process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Containment,
    Variables,
    TooMany,
    /// With these modules none can be started.
    Start(Vec<String>),
    /// With these modules none can be forked.
    Fork(Vec<String>),
}

/// One key, with its process if there is one.
#[derive(Debug)]
struct Entry {
    slot: Slot,
    process: Option<Serving>,
    /// Ends the process.
    end: Arc<Notify>,
}

/// A process that serves.
#[derive(Debug, Clone)]
struct Serving {
    pid: rustix::process::Pid,
    control: Arc<OwnedFd>,
    memory_at_start: u64,
}

/// A warm process that is to fork one attempt.
#[derive(Debug, Clone)]
pub struct WarmProcess {
    key: Arc<WarmKey>,
    processes: WarmProcesses,
    serving: Serving,
}

impl WarmProcess {
    /// What it is asked by.
    pub(crate) fn control(&self) -> BorrowedFd<'_> {
        self.serving.control.as_fd()
    }

    /// Notes that it forked the attempt.
    pub(crate) fn has_served(&self) {
        self.with_entry(|entry| entry.slot.has_served());
    }

    /// Notes that it did not, and ends it if it is of no use.
    pub(crate) fn has_not_served(&self, NotForked { why, blame }: &NotForked) {
        let pack = &self.key.pack;
        tracing::debug!(pack, why, "an attempt was not forked but executed");
        let now = boot_now();
        let has_hung = *blame == Blame::Hangs;
        let is_over = self.with_entry(|entry| {
            let is_over = match blame {
                Blame::Attempt => false,
                Blame::Process => entry.slot.has_missed(now),
                Blame::Hangs => {
                    entry.slot.has_failed(now);
                    true
                }
            };
            if is_over {
                entry.finish();
            }
            is_over
        });
        if is_over == Some(true) && has_hung {
            tracing::warn!(pack, why, "a warm process hangs: it is replaced");
        } else if is_over == Some(true) {
            let topic = Topic::Fork(self.key.preload.clone());
            self.processes.say_once(pack, topic, &format!("none can be forked: {why}"));
        }
    }

    /// Does something with its entry, unless another process has taken its place.
    fn with_entry<T>(&self, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut table = self.processes.lock();
        let entry = table.entries.get_mut(&self.key)?;
        let is_there = entry.process.as_ref().is_some_and(|it| it.pid == self.serving.pid);
        is_there.then(|| work(entry))
    }
}

impl WarmProcesses {
    /// None yet. `program` is executed as their shims, and attempts have folders below `attempts`.
    #[must_use]
    pub fn new(program: OwnProgram, attempts: impl Into<PathBuf>) -> Self {
        Self { program, attempts: attempts.into(), table: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the process for an attempt that starts now. Without one that serves it starts one, for those
    /// that follow. Call on a tokio runtime.
    pub fn find(&self, request: WarmRequest<'_>) -> Option<WarmProcess> {
        if request.containment != Containment::Pidns {
            let kind = request.containment;
            let why = format!(
                "attempts are forked into PID namespaces only, and jobs are held by {kind}"
            );
            self.say_once(&request.key.pack, Topic::Containment, &why);
            return None;
        }
        if let Some(name) = read_at_start(&request.key.variables, request.variables) {
            let why =
                format!("{name} is read when an interpreter starts, and each attempt has its own");
            self.say_once(&request.key.pack, Topic::Variables, &why);
            return None;
        }
        self.find_in_table(request, boot_now())
    }

    fn find_in_table(&self, request: WarmRequest<'_>, now: BootTime) -> Option<WarmProcess> {
        let key = Arc::new(request.key);
        let mut table = self.lock();
        let is_full = table.is_full_without(&key);
        let entry = table.entries.entry(Arc::clone(&key)).or_insert_with(Entry::new);
        match entry.slot.ask(is_full, now) {
            Advice::Use => {
                let serving = entry.process.clone()?;
                return Some(WarmProcess { key, processes: self.clone(), serving });
            }
            Advice::Execute => {}
            Advice::Start => table.start(self, key, request.environment, request.hidden),
            Advice::TooMany => {
                drop(table);
                let why = format!("{PROCESSES_MAX} warm processes run already");
                self.say_once(&key.pack, Topic::TooMany, &why);
            }
        }
        None
    }

    /// Why attempts of packs are executed although they ask for warm processes: pack and reason.
    #[must_use]
    pub fn reasons(&self) -> Vec<(String, String)> {
        let table = self.lock();
        table.said.iter().map(|((pack, _), why)| (pack.clone(), why.clone())).collect()
    }

    /// Ends all of them: packs were read again, and what they import may have changed.
    pub fn end_all(&self) {
        let mut table = self.lock();
        table.said.clear();
        for entry in std::mem::take(&mut table.entries).into_values() {
            entry.end.notify_one();
        }
    }

    /// Logs once why attempts of a pack are executed although it asks for warm processes.
    fn say_once(&self, pack: &str, topic: Topic, why: &str) {
        let said = self.lock().said.insert((pack.to_owned(), topic), why.to_owned());
        if said.is_none() {
            tracing::warn!(pack, "no warm process, attempts are executed: {why}");
        }
    }

    /// Starts one and stays with it to its end.
    async fn run(self, key: Arc<WarmKey>, launch: Launch, end: Arc<Notify>, held: Option<InUse>) {
        let parent = match Parent::start(&self.program, launch).await {
            Ok(parent) => parent,
            Err(trouble) => return self.note_trouble(&key, &end, trouble),
        };
        let Some(control) = parent.control() else { return };
        let memory_at_start = memory::own_bytes(parent.pid()).unwrap_or_default();
        let serving = Serving { pid: parent.pid(), control, memory_at_start };
        let pack = key.pack.as_str();
        let memory = serving.memory_at_start;
        tracing::info!(pack, pid = %serving.pid, memory, "a warm process serves attempts");
        let is_wanted = self.with_entry(&key, &end, |entry| {
            entry.slot.has_started(boot_now());
            entry.process = Some(serving);
        });
        if is_wanted {
            self.stay(&key, &parent, &end).await;
        }
        self.with_entry(&key, &end, Entry::forget);
        parent.end().await;
        drop(held);
    }

    /// Stays until it has ended or is to end.
    async fn stay(&self, key: &Arc<WarmKey>, parent: &Parent, end: &Arc<Notify>) {
        loop {
            tokio::select! {
                () = end.notified() => return,
                () = parent.ended() => {
                    let pack = &key.pack;
                    tracing::warn!(pack, "a warm process has ended by itself");
                    self.with_entry(key, end, |entry| entry.slot.has_failed(boot_now()));
                    return;
                }
                () = tokio::time::sleep(LOOK_EVERY.min(key.idle)) => {}
            }
            let mut due = None;
            let is_there = self.with_entry(key, end, |entry| {
                let memory = entry.process.as_ref().and_then(Serving::memory);
                due = entry.slot.look(memory, key.idle, boot_now());
            });
            match due {
                Some(End::Idle) => tracing::info!(
                    pack = key.pack,
                    "a warm process has served nothing for long: ending it"
                ),
                Some(End::Grown) => {
                    tracing::info!(pack = key.pack, "a warm process has grown: ending it")
                }
                None if is_there => continue,
                None => {}
            }
            return;
        }
    }

    fn note_trouble(&self, key: &Arc<WarmKey>, end: &Arc<Notify>, trouble: Trouble) {
        let (why, lasts) = match trouble {
            Trouble::Unfit(why) => (why, true),
            Trouble::Broken(why) => (why, false),
        };
        self.with_entry(key, end, |entry| {
            if lasts {
                entry.slot.is_unfit(boot_now());
            } else {
                entry.slot.has_failed(boot_now());
            }
        });
        self.say_once(&key.pack, Topic::Start(key.preload.clone()), &why);
    }

    /// Does something with the entry of a key, if it is still that of this process.
    fn with_entry(
        &self,
        key: &Arc<WarmKey>,
        end: &Arc<Notify>,
        work: impl FnOnce(&mut Entry),
    ) -> bool {
        let mut table = self.lock();
        let entry = table.entries.get_mut(key).filter(|entry| Arc::ptr_eq(&entry.end, end));
        entry.map(work).is_some()
    }
}

impl Table {
    fn is_full_without(&self, key: &Arc<WarmKey>) -> bool {
        let others =
            self.entries.iter().filter(|(other, entry)| *other != key && entry.slot.is_taken());
        others.count() >= PROCESSES_MAX
    }

    /// Starts the process of a key, and ends those that it replaces.
    fn start(
        &mut self,
        processes: &WarmProcesses,
        key: Arc<WarmKey>,
        environment: Option<Arc<PackEnvironment>>,
        hidden: Vec<PathBuf>,
    ) {
        let replaced = self.entries.extract_if(.., |other, _| key.replaces(other));
        replaced.for_each(|(_, entry)| entry.end.notify_one());
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let Ok(held) = hold(environment.as_deref(), &key) else {
            // It is being replaced. The next attempt asks for another one.
            return entry.slot.has_failed(boot_now());
        };
        entry.slot.starts();
        let launch = Launch { key: Arc::clone(&key), attempts: processes.attempts.clone(), hidden };
        tokio::spawn(processes.clone().run(key, launch, Arc::clone(&entry.end), held));
    }
}

/// Holds the environment that a key names, if it names one.
fn hold(environment: Option<&PackEnvironment>, key: &WarmKey) -> Result<Option<InUse>, ()> {
    let Some(environment) = environment else { return Ok(None) };
    let held = environment.enter().map_err(drop)?;
    let is_it = held.as_ref().map(InUse::folder) == key.environment.as_deref();
    if is_it { Ok(held) } else { Err(()) }
}

impl Entry {
    fn new() -> Self {
        Self { slot: Slot::default(), process: None, end: Arc::default() }
    }

    /// Ends the process. What comes next is another one.
    fn finish(&mut self) {
        self.end.notify_one();
        self.end = Arc::default();
        self.process = None;
    }

    /// Forgets a process that ends.
    fn forget(&mut self) {
        self.process = None;
        self.slot.has_ended();
    }
}

impl Serving {
    fn memory(&self) -> Option<Memory> {
        let now = memory::own_bytes(self.pid)?;
        Some(Memory { at_start: self.memory_at_start, now })
    }
}

/// The first variable of an attempt that should have been there when its interpreter started.
fn read_at_start<'a>(
    at_start: &[(String, String)],
    of_attempt: &'a [(String, String)],
) -> Option<&'a str> {
    let matters = |name: &str| READ_AT_START.iter().any(|beginning| name.starts_with(beginning));
    let mut own = of_attempt.iter().filter(|variable| !at_start.contains(variable));
    own.find(|(name, _)| matters(name)).map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests;
