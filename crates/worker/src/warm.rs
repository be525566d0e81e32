//! Warm interpreters: they have imported what an action needs before an attempt of it begins.
//!
//! Those of Python are warm processes, and are forked for each attempt:
//!
//! ```text
//! attempt asks ──▶ none yet: starts one beside it, and executes the program as ever
//!              └─▶ serving: its shim has the job forked (`process::shim::forked`)
//! absent ──asked──▶ starting ──imports done──▶ serving ──idle | grown | hangs | pack changed──▶ absent
//! ```
//!
//! There is one for each interpreter, digest of the pack, environment and list of modules. It is
//! launched by the spawner like a shim, and ends with its engine. It runs nothing of an action, gets
//! nothing of an attempt, and an attempt does not depend on it once it runs.
//!
//! Node.js cannot fork. Its interpreters are started ahead, each in the shim of an attempt to come, and
//! one attempt uses each (`supply`).
//!
//! Whatever goes wrong with one, no attempt waits or fails for it: the program is executed.
//!
//! Both need PID namespaces. There the kernel makes the shim, which is process 1, the parent of what is
//! born without one. Nothing does so for a cgroup or a subreaper, where a forked attempt would be a
//! child of the warm process, which would have to be trusted with its end; and what an interpreter
//! that waits has left behind would not end with it.
//!
//! - `slot`: which warm process serves and when it is replaced, without any process
//! - `parent`: one warm process, from its launch to its end; `parent.py` is its program
//! - `pool`: how many interpreters are started ahead, without any process
//! - `ahead`: one of them, from its launch to its end; `ahead.js` is its program
//! - `supply`: all of them
//! - `start`, `backoff`: what both have in common

mod ahead;
mod backoff;
mod parent;
mod pool;
mod slot;
mod start;
mod supply;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::time::BootTime;
use outlast_packs::environment::{InUse, PackEnvironment};
use tokio::sync::Notify;

use self::ahead::Ahead;
use self::parent::Parent;
use self::slot::{Advice, End, Memory, Slot};
use self::start::{Launch, Trouble};
use self::supply::Supply;
use crate::OwnProgram;
use crate::clock::boot_now;
use crate::containment::Containment;
use crate::process::launch::Launched;
use crate::process::memory;
use crate::process::protocol::{Blame, NotServed};
use crate::runtime::Runtime;

/// Most at a time: each holds its modules in memory. Attempts beyond that are executed.
pub(crate) const PROCESSES_MAX: usize = 16;

/// How often one is looked at that serves nothing.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Beginnings of variables that the libraries below an interpreter read at their start. One that an
/// attempt has of its own would have no effect.
const READ_AT_START: [&str; 7] = ["LD_", "LC_", "LANG", "TZ", "MALLOC_", "GLIBC_", "GCONV_"];

/// What a warm interpreter is for: those that differ in any of this are not the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WarmKey {
    /// What it runs: Python is forked, Node.js started ahead.
    pub runtime: Runtime,
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
    /// Whether scripts of Node.js load modules by `import`, whatever their folder says.
    pub imports: bool,
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
        let another_environment = self.environment.is_some()
            && other.environment.is_some()
            && self.environment != other.environment;
        self.pack == other.pack
            && self.runtime == other.runtime
            && (self.digest != other.digest || another_environment)
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
    /// Processes that fork attempts.
    entries: BTreeMap<Arc<WarmKey>, Entry>,
    /// Interpreters that wait for theirs.
    supplies: BTreeMap<Arc<WarmKey>, Supply>,
    /// The number of the last one that began to wait.
    last_number: u64,
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
    /// With these modules none serves an attempt.
    Use(Vec<String>),
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

/// A warm interpreter that is to serve one attempt.
#[derive(Debug, Clone)]
pub struct WarmProcess {
    key: Arc<WarmKey>,
    processes: WarmProcesses,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    /// It forks the attempt.
    Forks(Serving),
    /// It becomes the attempt, unless a clone of this has made it one already.
    Waits(Arc<Mutex<Option<Ahead>>>),
}

/// What an attempt gets of a warm interpreter.
pub(crate) enum Taken {
    /// Its shim, with the interpreter in it.
    Shim(Box<Launched>),
    /// Nothing yet: a shim of its own is to have it forked.
    Forks,
    /// Nothing.
    Gone,
}

impl WarmProcess {
    /// What it is asked by to fork.
    pub(crate) fn control(&self) -> Option<BorrowedFd<'_>> {
        match &self.how {
            How::Forks(serving) => Some(serving.control.as_fd()),
            How::Waits(_) => None,
        }
    }

    /// Takes it for the attempt, which begins now.
    pub(crate) async fn take(&self) -> Taken {
        let How::Waits(waiting) = &self.how else { return Taken::Forks };
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(ahead) = waiting else { return Taken::Gone };
        if let Some(shim) = ahead.take().await {
            return Taken::Shim(Box::new(shim));
        }
        let why = "its shim does not answer".to_owned();
        self.has_not_served(&NotServed { why, blame: Blame::Hangs });
        Taken::Gone
    }

    /// Notes that it served the attempt.
    pub(crate) fn has_served(&self) {
        match &self.how {
            How::Forks(serving) => {
                self.with_entry(serving, |entry| entry.slot.has_served());
            }
            How::Waits(_) => self.processes.ahead_has_served(&self.key),
        }
    }

    /// Notes that it did not, and ends it if it is of no use.
    pub(crate) fn has_not_served(&self, reason: &NotServed) {
        match &self.how {
            How::Forks(serving) => self.has_not_forked(serving, reason),
            How::Waits(_) => self.processes.ahead_has_not_served(&self.key, reason),
        }
    }

    fn has_not_forked(&self, serving: &Serving, NotServed { why, blame }: &NotServed) {
        let pack = &self.key.pack;
        tracing::debug!(pack, why, "an attempt was not forked but executed");
        let now = boot_now();
        let has_hung = *blame == Blame::Hangs;
        let is_over = self.with_entry(serving, |entry| {
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
            let topic = Topic::Use(self.key.preload.clone());
            self.processes.say_once(pack, topic, &format!("none can be forked: {why}"));
        }
    }

    /// Does something with its entry, unless another process has taken its place.
    fn with_entry<T>(&self, serving: &Serving, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut table = self.processes.lock();
        let entry = table.entries.get_mut(&self.key)?;
        let is_there = entry.process.as_ref().is_some_and(|it| it.pid == serving.pid);
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
            let what = match request.key.runtime {
                Runtime::Node => "interpreters are started ahead in",
                Runtime::Python | Runtime::Shell => "attempts are forked into",
            };
            let kind = request.containment;
            let why = format!("{what} PID namespaces only, and jobs are held by {kind}");
            self.say_once(&request.key.pack, Topic::Containment, &why);
            return None;
        }
        if let Some(name) = read_at_start(&request.key, request.variables) {
            let why =
                format!("{name} is read when an interpreter starts, and each attempt has its own");
            self.say_once(&request.key.pack, Topic::Variables, &why);
            return None;
        }
        match request.key.runtime {
            Runtime::Python => self.find_forking(request, boot_now()),
            Runtime::Node => self.find_ahead(request, boot_now()),
            Runtime::Shell => None,
        }
    }

    fn find_forking(&self, request: WarmRequest<'_>, now: BootTime) -> Option<WarmProcess> {
        let key = Arc::new(request.key);
        let mut table = self.lock();
        let is_full = table.is_full_without(&key);
        let entry = table.entries.entry(Arc::clone(&key)).or_insert_with(Entry::new);
        match entry.slot.ask(is_full, now) {
            Advice::Use => {
                let serving = entry.process.clone()?;
                let how = How::Forks(serving);
                return Some(WarmProcess { key, processes: self.clone(), how });
            }
            Advice::Execute => {}
            Advice::Start => table.start(self, key, request.environment, request.hidden),
            Advice::TooMany => {
                drop(table);
                self.say_too_many(&key.pack);
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
        table.supplies.clear();
        for entry in std::mem::take(&mut table.entries).into_values() {
            entry.end.notify_one();
        }
    }

    fn say_too_many(&self, pack: &str) {
        let why = format!("{PROCESSES_MAX} warm interpreters are there already");
        self.say_once(pack, Topic::TooMany, &why);
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
    /// Whether there are too many for one with this key, which may be among them.
    fn is_full_without(&self, key: &Arc<WarmKey>) -> bool {
        let own = self.entries.get(key).filter(|entry| entry.slot.is_taken());
        self.count().saturating_sub(usize::from(own.is_some())) >= PROCESSES_MAX
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
fn read_at_start<'a>(key: &WarmKey, of_attempt: &'a [(String, String)]) -> Option<&'a str> {
    let by_interpreter: &[&str] = match key.runtime {
        Runtime::Python => &["PYTHON"],
        Runtime::Node => &["NODE_", "OPENSSL_", "SSL_CERT_", "UV_"],
        Runtime::Shell => &[],
    };
    let matters = |name: &str| {
        let mut beginnings = READ_AT_START.iter().chain(by_interpreter);
        beginnings.any(|beginning| name.starts_with(beginning))
    };
    let mut own = of_attempt.iter().filter(|variable| !key.variables.contains(variable));
    own.find(|(name, _)| matters(name)).map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests;
