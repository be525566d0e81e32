//! Holding a tree in a PID namespace, the strongest containment there is.
//!
//! ```text
//! outer (waits) ──fork──▶ inner: pid 1 of the namespace ──fork──▶ job ──▶ …
//! ```
//!
//! The inner process serves the engine. When it ends, for whatever reason, the kernel kills
//! everything in the namespace and lets the outer's wait return only after that: the wait
//! is the proof that the tree is empty. The inner dies with the outer: by the lifeline pipe
//! between them and by the parent-death signal, which is sound here because the outer has
//! one thread.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::process::{Pid, Signal, getegid, geteuid, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use super::channel::Channel;
use super::groups::{self, Desk, Half, LimitGroups};
use super::meter::Meter;
use super::supervise::{Processes, Signs, Watch};
use super::tree::Tree;
use super::{forked, job, link, mounts, outer};
use crate::process::cgroup::Group;
use crate::process::handover;
use crate::process::protocol::{Report, ShimSpec, StartFailure};
use crate::process::sys::{self, Fork};

/// Runs the outer process and, in the other half of a fork, the inner one, which has the job forked
/// by a warm process if there is one.
pub(super) fn run(channel: Channel, spec: &ShimSpec, warm: Option<OwnedFd>) -> i32 {
    let limits = match LimitGroups::create(&spec.limits) {
        Ok(limits) => limits,
        Err(failure) => return channel.refuse(failure),
    };
    let groups = limits.as_slice();
    let half = split(channel, None, |channel, lifeline| {
        supervise(channel, Job { spec, limits: groups, warm }, lifeline)
    });
    match half {
        Half::Outer(code) => {
            limits.remove();
            code
        }
        Half::Inner(code) => code,
    }
}

/// Forks the inner half, which does `work`, and stays as the outer one, which serves the desk. What
/// `work` owns is closed in the outer half.
pub(super) fn split(
    mut channel: Channel,
    desk: Option<&mut Desk>,
    work: impl FnOnce(&mut Channel, OwnedFd) -> Result<(), StartFailure>,
) -> Half {
    let prepared = enter_namespace().and_then(|()| io::pipe());
    let forked = prepared.and_then(|lifeline| Ok((lifeline, sys::fork()?)));
    let ((lifeline, held), inner) = match forked {
        Ok((lifeline, Fork::Parent(inner))) => (lifeline, inner),
        Ok(((lifeline, held), Fork::Child)) => {
            drop(held);
            if let Some(desk) = desk {
                desk.close();
            }
            return Half::Inner(match work(&mut channel, lifeline.into()) {
                Ok(()) => 0,
                Err(failure) => {
                    channel.report(&Report::SpawnFailed(failure));
                    1
                }
            });
        }
        Err(error) => {
            let failure = StartFailure::cannot("make a pid namespace", error);
            return Half::Outer(channel.refuse(failure));
        }
    };
    drop((lifeline, work));
    handover::close_to_others();
    let _ = job::let_go_of_stdio();
    outer::keep(&channel, inner, None, desk);
    drop(held);
    channel.report(&Report::Empty);
    Half::Outer(0)
}

/// Makes the next child the first of a namespace, through a user namespace if need be.
fn enter_namespace() -> io::Result<()> {
    if sys::unshare(UnshareFlags::NEWPID).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
    // We stay who we are, so that files look and are owned as outside. A kernel wants
    // setgroups given up before an unprivileged group map.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// What the inner process starts.
struct Job<'a> {
    spec: &'a ShimSpec,
    limits: &'a [Group],
    /// The socket of the process that forks it.
    warm: Option<OwnedFd>,
}

/// What the first process of a namespace does first. Returns its view of the world outside.
pub(super) fn become_first(channel: &Channel) -> Result<OutsideView, StartFailure> {
    // A parent that died before this line is noticed by the lifeline.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| StartFailure::cannot("ask for the parent's death signal", error))?;
    let outside = OutsideView::open();
    if let Some(init) = outside.own_pid {
        channel.report(&Report::Holding { init });
    }
    Ok(outside)
}

fn supervise(
    channel: &mut Channel,
    Job { spec, limits, warm }: Job<'_>,
    lifeline: OwnedFd,
) -> Result<(), StartFailure> {
    let outside = become_first(channel)?;
    let entrances = groups::entrances(limits)?;
    mounts::arrange_for_job(&spec.hidden, spec.private_folder.as_deref())?;
    let signs = Signs::new(spec.deadline_boot_ms)
        .map_err(|error| StartFailure::cannot("watch for signals", error))?;
    let meter = Meter::start(&spec.limits, limits);
    let forked = warm.map(|warm| forked::fork(spec, &entrances, warm));
    let job = match forked.and_then(|ready| link::begin(channel, ready)) {
        Some(job) => job,
        None => {
            channel.report(&Report::Starting);
            job::start(spec, entrances)?
        }
    };
    channel.report(&Report::Started { pid: outside.first_child() });
    let mut watch = Watch::new(
        channel,
        signs,
        Processes { tree: Tree::Namespace, main: job },
        meter,
        Some(lifeline),
    );
    // However this returns, our exit ends whatever is left.
    let _ = watch.until_main_ends();
    Ok(())
}

/// The proc of the world outside, kept open because the job gets one of its own: it tells
/// which numbers our processes have there.
pub(super) struct OutsideView {
    proc: Option<OwnedFd>,
    own_pid: Option<i32>,
}

impl OutsideView {
    fn open() -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = fs::read_link("/proc/self").ok();
        Self {
            proc: open(c"/proc", flags, Mode::empty()).ok(),
            own_pid: own.and_then(|pid| pid.to_str()?.parse().ok()),
        }
    }

    pub(super) fn first_child(&self) -> Option<i32> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let proc = self.proc.as_ref()?;
        let children = openat(proc, c"thread-self/children", flags, Mode::empty()).ok()?;
        let text = io::read_to_string(fs::File::from(children)).ok()?;
        let pid = text.split_ascii_whitespace().next()?.parse().ok()?;
        Pid::from_raw(pid).map(|pid| pid.as_raw_nonzero().get())
    }
}
