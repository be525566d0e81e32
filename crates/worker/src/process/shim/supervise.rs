//! Watching over a running tree: the engine's orders, the deadline, and the children.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::channel::{Channel, Received};
use super::meter::Meter;
use super::tree::Tree;
use crate::process::pace::Pace;
use crate::process::protocol::{ExceededLimit, MainExit, Oom, Order, Report};
use crate::process::sys::SignalFd;

/// What the shim waits on besides the engine. Made before the job is started, so that no
/// child's end can be missed.
pub(super) struct Signs {
    children: SignalFd,
    deadline: OwnedFd,
}

impl Signs {
    pub(super) fn new(deadline_boot_ms: Option<u64>) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let signs = Self {
            children: SignalFd::new(&[Signal::CHILD])?,
            deadline: timerfd_create(TimerfdClockId::Boottime, flags)?,
        };
        if let Some(boot_ms) = deadline_boot_ms {
            signs.arm(boot_ms);
        }
        Ok(signs)
    }

    /// Sets the deadline; one that has passed already fires at once.
    pub(super) fn arm(&self, boot_ms: u64) {
        // Zero would disarm the timer instead.
        let boot_ms = i64::try_from(boot_ms.max(1)).unwrap_or(i64::MAX);
        let at = Timespec { tv_sec: boot_ms / 1000, tv_nsec: (boot_ms % 1000) * 1_000_000 };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: at };
        // Fails only for values that cannot occur.
        let _ = timerfd_settime(&self.deadline, TimerfdTimerFlags::ABSTIME, &once);
    }
}

/// One running tree and all that is known about it.
pub(super) struct Watch<'a> {
    pub(super) channel: &'a mut Channel,
    pub(super) signs: Signs,
    pub(super) tree: Tree,
    pub(super) job: Pid,
    pub(super) meter: Meter,
    /// Hangs up when the outer half ends.
    pub(super) lifeline: Option<OwnedFd>,
    state: State,
}

struct State {
    sent: Sent,
    engine_gone: bool,
    /// The limit for which we ended the tree, and whether it had been asked to stop before.
    exceeded: Option<(ExceededLimit, bool)>,
    /// How the main process ended, once it was reaped.
    ended: Option<MainExit>,
    pace: Pace,
}

/// Why a [`Watch`] ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// The main process ended, and that was reported.
    MainEnded,
    /// The outer half of the shim is gone.
    Orphaned,
}

/// The hardest signal that we sent the tree.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    #[default]
    Nothing,
    Term,
    Kill,
}

/// The processes of a job, and the first of them.
pub(super) struct Processes {
    pub(super) tree: Tree,
    pub(super) main: Pid,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        channel: &'a mut Channel,
        signs: Signs,
        Processes { tree, main: job }: Processes,
        meter: Meter,
        lifeline: Option<OwnedFd>,
    ) -> Self {
        let state = State {
            sent: Sent::Nothing,
            engine_gone: false,
            exceeded: None,
            ended: None,
            pace: Pace::new(),
        };
        Self { channel, signs, tree, job, meter, lifeline, state }
    }

    /// Serves the engine until the job's main process ends, and reports that. Returns early,
    /// without a report, when the lifeline hangs up.
    pub(super) fn until_main_ends(&mut self) -> io::Result<Watched> {
        let queued = self.channel.queued_orders();
        self.obey(queued);
        loop {
            // What has happened comes before what is asked: work that is done is not
            // interrupted by an order that came in the same moment.
            let _ = self.reap();
            if let Some(end) = self.state.ended.take() {
                self.tree.main_process_reaped();
                self.channel.report(&Report::Exited(end));
                return Ok(Watched::MainEnded);
            }
            if self.state.sent == Sent::Kill {
                self.tree.kill();
            }
            let ready = self.wait_for_sign()?;
            if ready.lifeline {
                return Ok(Watched::Orphaned);
            }
            if ready.deadline && self.state.sent != Sent::Kill && !self.has_ended() {
                self.channel.report(&Report::DeadlinePassed);
                self.kill();
            }
            if let Some(limit) = self.meter.look()
                && self.state.sent != Sent::Kill
                && !self.has_ended()
            {
                self.state.exceeded = Some((limit, self.state.sent == Sent::Term));
                self.kill();
            }
            if ready.channel {
                match self.channel.read_orders() {
                    Received::Orders(orders) => self.obey(orders),
                    Received::EngineGone => {
                        self.state.engine_gone = true;
                        self.kill();
                    }
                }
            }
        }
    }

    /// Kills what is left until nothing is, reaping all the while.
    pub(super) fn until_empty(&mut self) -> io::Result<()> {
        loop {
            let children_left = self.reap();
            if self.tree.is_empty(children_left) {
                return Ok(());
            }
            self.tree.kill();
            let mut fds = [PollFd::new(&self.signs.children, PollFlags::IN)];
            wait_on(&mut fds, Some(&self.state.pace.next()))?;
            while self.signs.children.next().is_some() {}
        }
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Term if self.has_ended() => {}
                Order::Term => {
                    self.state.sent = self.state.sent.max(Sent::Term);
                    self.tree.terminate();
                }
                Order::Kill => self.kill(),
                Order::Deadline { boot_ms } => self.signs.arm(boot_ms),
            }
        }
    }

    fn kill(&mut self) {
        if !self.has_ended() {
            self.state.sent = Sent::Kill;
        }
        self.tree.kill();
    }

    /// Whether the main process has ended by this moment: then none of our signals caused it.
    fn has_ended(&mut self) -> bool {
        let _ = self.reap();
        self.state.ended.is_some()
    }

    fn next_look(&self) -> Option<Timespec> {
        let due = self.meter.due_in()?;
        let seconds = i64::try_from(due.as_secs()).unwrap_or(i64::MAX);
        Some(Timespec { tv_sec: seconds, tv_nsec: i64::from(due.subsec_nanos()) })
    }

    fn wait_for_sign(&mut self) -> io::Result<Ready> {
        let killing = self.state.sent == Sent::Kill || self.state.ended.is_some();
        let pause = if killing { Some(self.state.pace.next()) } else { self.next_look() };
        let mut fds = vec![
            PollFd::new(&self.signs.children, PollFlags::IN),
            PollFd::new(&self.signs.deadline, PollFlags::IN),
        ];
        let channel = (!self.state.engine_gone).then(|| {
            fds.push(PollFd::new(&*self.channel, PollFlags::IN));
            fds.len() - 1
        });
        let lifeline = self.lifeline.as_ref().map(|lifeline| {
            fds.push(PollFd::from_borrowed_fd(lifeline.as_fd(), PollFlags::IN));
            fds.len() - 1
        });
        wait_on(&mut fds, pause.as_ref())?;
        let fired = |index: Option<usize>| {
            index.and_then(|index| fds.get(index)).is_some_and(|fd| !fd.revents().is_empty())
        };
        let ready =
            Ready { deadline: fired(Some(1)), channel: fired(channel), lifeline: fired(lifeline) };
        while self.signs.children.next().is_some() {}
        if ready.deadline {
            let _ = rustix::io::read(&self.signs.deadline, &mut [0_u8; 8]);
        }
        Ok(ready)
    }

    /// Collects every ended child and notes the main process's end, if it was among them; says
    /// whether any child is left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.job => {
                    self.state.ended = Some(self.describe(status));
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn describe(&self, status: WaitStatus) -> MainExit {
        let (code, signal) = (status.exit_status(), status.terminating_signal());
        let exceeded = self.state.exceeded.map(|(limit, _)| limit);
        let signalled_by_us =
            self.state.exceeded.map_or(self.state.sent != Sent::Nothing, |(_, asked)| asked);
        let oom = match exceeded {
            Some(ExceededLimit::Memory) => Oom::Yes,
            Some(ExceededLimit::Processes) => Oom::No,
            None if self.state.sent == Sent::Kill => Oom::No,
            None => self.meter.judge(code, signal),
        };
        MainExit { code, signal, signalled_by_us, oom, exceeded, used: self.meter.used() }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "three descriptors, ready independently")]
struct Ready {
    deadline: bool,
    channel: bool,
    lifeline: bool,
}

pub(super) fn wait_on(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> io::Result<()> {
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
