//! The few system calls that have no safe wrapper elsewhere, each made safe here.
//!
//! Callers of [`fork`] and [`fork_sibling`] must be single-threaded, which spawner and shim are. What runs
//! between fork and exec ([`JobEntry::enter`]) makes only async-signal-safe calls and
//! allocates nothing.
#![expect(
    unsafe_code,
    reason = "the only module with raw system calls; each block says why it holds"
)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use rustix::thread::{
    CapabilitySet, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Highest signal number on Linux.
const SIGNAL_MAX: c_int = 64;

/// Which side of a [`fork`] the caller is.
pub(crate) enum Fork {
    Parent(Pid),
    Child,
}

/// Splits this single-threaded process in two.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has one thread, so the child inherits no lock that another thread
    // holds and may go on running ordinary code.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(Fork::Child),
        _ => Pid::from_raw(pid)
            .filter(|_| pid > 0)
            .map(Fork::Parent)
            .ok_or_else(io::Error::last_os_error),
    }
}

/// Splits this single-threaded process in two, as [`fork`] does, but the child is one of this
/// process's own parent: its sibling.
pub(crate) fn fork_sibling() -> io::Result<Fork> {
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: the process has one thread, as above. Without a stack and CLONE_VM the child goes on
    // with a copy of everything. The C library does not learn of it; all it keeps about a process
    // is the number of its thread, for locks that this crate does not use.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match i32::try_from(pid) {
        Ok(0) => Ok(Fork::Child),
        Ok(pid @ 1..) => Pid::from_raw(pid).map(Fork::Parent).ok_or_else(io::Error::last_os_error),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The memory in which the kernel finds the arguments of this process when it lists processes.
pub(crate) struct ArgumentArea {
    start: usize,
    length: usize,
}

impl ArgumentArea {
    /// Finds it, if the kernel says where it is.
    pub(crate) fn find() -> Option<Self> {
        Self::of_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    fn of_stat(stat: &str) -> Option<Self> {
        // The name in parentheses may hold anything. These are the 48th and 49th field of all.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(45);
        let (start, end): (usize, usize) =
            (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let length = end.checked_sub(start).filter(|_| start > 0)?;
        Some(Self { start, length })
    }

    /// Shows `program` and `rest` in place of the arguments, as far as there is room. Each argument
    /// ends with a zero. This process must not look at its arguments after this.
    pub(crate) fn show(&self, program: &[u8], rest: &[u8]) {
        let text = [program, rest].concat();
        let length = text.len().min(self.length.saturating_sub(1));
        let area = std::ptr::with_exposed_provenance_mut::<u8>(self.start);
        // SAFETY: the kernel has put the arguments on this thread's stack, above all frames, where
        // they stay writable. Nothing refers to them: the standard library copies what it is asked
        // for. What is written is no longer than they were.
        unsafe {
            area.write_bytes(0, self.length);
            area.copy_from_nonoverlapping(text.as_ptr(), length);
        }
    }
}

/// Closes every descriptor above the standard three.
pub(crate) fn close_all_but_stdio() {
    // SAFETY: callers own no descriptor yet. A kernel without the call leaves what was inherited
    // open, marked by `keep_only_stdio_on_exec` before a job is executed.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

/// Leaves the namespaces that `flags` name; `flags` never asks to unshare files.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: only unsharing the descriptor table can break another thread's descriptors.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Sends `signal` to every process this one may signal, itself excepted: from the first
/// process of a PID namespace, exactly the tree.
pub(crate) fn kill_namespace(signal: Signal) {
    debug_assert_eq!(rustix::process::getpid().as_raw_nonzero().get(), 1);
    if rustix::process::getpid().as_raw_nonzero().get() != 1 {
        return;
    }
    // SAFETY: kill takes no pointers. ESRCH means that nothing is left, which is fine.
    unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Marks every descriptor above the standard three close-on-exec.
pub(crate) fn keep_only_stdio_on_exec() {
    // SAFETY: only a flag on descriptors changes; none is closed. A kernel without the call
    // is left as it is: everything opened by us carries the flag already.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

fn full_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the whole set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set; sigaddset gets valid numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
        }
        set.assume_init()
    }
}

/// Blocks every signal that can be blocked: only the engine tells a shim what to do.
pub(crate) fn block_all_signals() {
    let set = full_set();
    // SAFETY: the set is initialised and the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Lets this process wait for its children, even if its parent ignores SIGCHLD: that is inherited,
/// and the kernel would reap them by itself.
pub(crate) fn heed_children() {
    // SAFETY: SIG_DFL is a valid disposition for SIGCHLD.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Blocks these signals in this thread and no others.
pub(crate) fn block_only(signals: &[Signal]) {
    let set = set_of(signals);
    // SAFETY: the set is initialised and the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Does `work` with every signal blocked in this thread, and puts its mask back.
pub(crate) fn with_all_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let (all, mut before) = (full_set(), set_of(&[]));
    // SAFETY: both sets are initialised; the second receives the mask of this thread.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let done = work();
    // SAFETY: the set holds the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    done
}

/// Returns the size of a page of memory in bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: a number is asked for and nothing else.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// What this process's children have used, and theirs, as far as each was waited for.
pub(crate) struct ChildrenUsed {
    /// In user and kernel mode, in microseconds.
    pub(crate) cpu_us: u64,
    /// The most memory that a single one had.
    pub(crate) largest_bytes: u64,
}

/// Asks the kernel what children have used.
pub(crate) fn used_by_children() -> ChildrenUsed {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure, which is valid when zeroed as well.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let whole = |number: i64| u64::try_from(number).unwrap_or(0);
    let micros = |time: libc::timeval| {
        whole(time.tv_sec).saturating_mul(1_000_000).saturating_add(whole(time.tv_usec))
    };
    ChildrenUsed {
        cpu_us: micros(usage.ru_utime).saturating_add(micros(usage.ru_stime)),
        largest_bytes: whole(usage.ru_maxrss).saturating_mul(1024),
    }
}

/// Calls `last` when the process exits, by whichever thread.
pub(crate) fn at_exit(last: extern "C" fn()) {
    // SAFETY: a function is valid for as long as the process. Without memory for it, it is not
    // called.
    unsafe { libc::atexit(last) };
}

/// Opens a process as a descriptor that becomes readable when it ends. Call on a tokio
/// runtime.
pub(crate) fn watch_end(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    readable(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Watches for a descriptor to become readable. Call on a tokio runtime.
pub(crate) fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the AsyncFd, which keeps it open and the same.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
        .map_err(|error| io::Error::other(error.to_string()))
}

/// Signals as a readable descriptor.
#[derive(Debug)]
pub(crate) struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks `signals` for this process and queues them on a descriptor instead.
    pub(crate) fn new(signals: &[Signal]) -> io::Result<Self> {
        let set = set_of(signals);
        // SAFETY: the set is initialised; the descriptor returned is new and ours alone.
        unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Takes the next queued signal's number, if there is one.
    pub(crate) fn next(&self) -> Option<i32> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        let read = rustix::io::read(&self.0, &mut info).ok()?;
        // `ssi_signo` is the first field, a u32.
        let number = info.first_chunk::<4>().filter(|_| read == info.len())?;
        i32::try_from(u32::from_ne_bytes(*number)).ok()
    }
}

impl std::os::fd::AsFd for SignalFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes over a descriptor that came through exec. Its number must be known to nothing else in
/// this process.
pub(crate) fn adopt(number: i32) -> OwnedFd {
    // SAFETY: callers have seen that it is open, and that nothing of ours opened it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Capabilities by which a process reads the memory of others, whatever their users.
const PRYING: [CapabilitySet; 4] = [
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::PERFMON,
    CapabilitySet::BPF,
    CapabilitySet::CHECKPOINT_RESTORE,
];

/// What a job's process does to itself between fork and exec.
#[derive(Debug)]
pub(crate) struct JobEntry {
    /// The process that must still be its parent, else the shim died meanwhile.
    pub(crate) parent: Pid,
    /// `cgroup.procs` of the groups to join first.
    pub(crate) groups: Vec<OwnedFd>,
    /// It has mounts of its own, which must stay as they are.
    pub(crate) keeps_mounts: bool,
    /// What stays open in its program besides the standard descriptors.
    pub(crate) link: Option<OwnedFd>,
}

impl JobEntry {
    /// Arranges for `command` to enter a session of its own with signals as at login.
    pub(crate) fn arrange(self, command: &mut Command) {
        // SAFETY: `enter` makes only async-signal-safe calls and allocates nothing.
        unsafe { command.pre_exec(move || self.enter()) };
    }

    fn enter(&self) -> io::Result<()> {
        for group in &self.groups {
            rustix::io::write(group, b"0")?;
        }
        rustix::process::setsid()?;
        // The shim has one thread, so this fires when the shim ends and not before.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(self.parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if let Some(link) = &self.link {
            rustix::io::fcntl_setfd(link, rustix::io::FdFlags::empty())?;
        }
        raise_oom_score();
        give_up_capabilities(self.keeps_mounts);
        reset_signals();
        Ok(())
    }
}

/// Arranges for `command`, which is executed in this process, to end with its parent, with signals as
/// at login and without what would let it into other processes. It may enter namespaces.
pub(crate) fn enter_as_warm(command: &mut Command) {
    let enter = || -> io::Result<()> {
        // The engine's thread that has started the spawner, which is its main thread.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        raise_oom_score();
        give_up_capabilities(false);
        reset_signals();
        Ok(())
    };
    // SAFETY: it makes only async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(enter) };
}

/// Every signal does what it does by default, and none is blocked.
fn reset_signals() {
    for number in 1..=SIGNAL_MAX {
        // SAFETY: SIG_DFL is a valid disposition; KILL, STOP and libc's own are refused.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    let none = set_of(&[]);
    // SAFETY: the set is initialised and the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
}

/// Gives up, for good and for every program it will execute, what would let this process into
/// others; and with `keeps_mounts` into what is mounted below its `/proc` as well. A process
/// without capabilities has none to give up.
fn give_up_capabilities(keeps_mounts: bool) {
    let admin = keeps_mounts.then_some(CapabilitySet::SYS_ADMIN);
    let Ok(mut sets) = capabilities(None) else { return };
    for capability in PRYING.into_iter().chain(admin) {
        // Refused to a process without CAP_SETPCAP, which has nothing to gain at exec unless it
        // is root in a container that was given capabilities by name.
        let _ = remove_capability_from_bounding_set(capability);
        let _ = configure_capability_in_ambient_set(capability, false);
        sets.effective.remove(capability);
        sets.permitted.remove(capability);
        sets.inheritable.remove(capability);
    }
    let _ = set_capabilities(None, sets);
}

/// Makes this process a likelier victim of the OOM killer than the worker. Raising needs no
/// privilege; a host that refuses is left alone.
fn raise_oom_score() {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty()) {
        // Fails for a worker that was itself placed higher, which is then kept.
        let _ = rustix::io::write(&file, b"500");
    }
}

/// Arranges for `command` to start in a session of its own, away from the terminal, and
/// with no signal blocked.
pub(crate) fn start_in_own_session(command: &mut Command) {
    // SAFETY: setsid and sigprocmask are async-signal-safe and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            let none = set_of(&[]);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::ArgumentArea;

    #[test]
    fn the_area_of_arguments_is_found_whatever_a_process_is_called() {
        let fields: Vec<String> = (3..=52).map(|number| (number * 10).to_string()).collect();
        let stat = |name: &str| format!("7 ({name}) {}\n", fields.join(" "));
        for name in ["outlast", "a) b (c", ""] {
            let area = ArgumentArea::of_stat(&stat(name)).unwrap();
            assert_eq!((area.start, area.length), (480, 10));
        }
        assert!(ArgumentArea::of_stat("7 (outlast) S 1").is_none());
        // What the kernel says of a process that it does not let look.
        let hidden = stat("outlast").replace(" 480 490 ", " 0 0 ");
        assert!(ArgumentArea::of_stat(&hidden).is_none());
    }
}
