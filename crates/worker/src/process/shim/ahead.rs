//! Holding an interpreter that was started ahead of its attempt, in what will hold the attempt.
//!
//! ```text
//! outer ──fork──▶ inner: process 1 ──fork──▶ interpreter: loads modules, and waits
//!   engine ──attempt──▶ inner ──limits──▶ outer: makes the groups
//!                       inner: moves the interpreter into them, shows it the attempt's folder
//!                       inner ──what to run, by the link──▶ interpreter
//! ```
//!
//! From the first moment all is as it is for an attempt: the engine knows shim and namespace, and
//! whatever ends either ends the interpreter. Until it may run the script, what goes wrong is answered by
//! executing the program in the same shim.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, getpid, waitpid};

use super::channel::Channel;
use super::groups::{self, Asker, Half, Request};
use super::job;
use super::link::{self, Ready};
use super::meter::Meter;
use super::mounts::{self, View};
use super::namespace::{self, OutsideView};
use super::supervise::{Processes, Signs, Watch, wait_on};
use super::tree::Tree;
use crate::clock::boot_now;
use crate::process::cgroup::Group;
use crate::process::pace::Pace;
use crate::process::protocol::{
    AheadProgram, Blame, NotServed, Report, ShimSpec, ShimTask, StartFailure,
};
use crate::process::sys::JobEntry;
use crate::process::{descendants, handover};

/// How long an interpreter has to end that has closed its link.
const END_MAX_MS: u64 = 1000;

/// Runs both halves of the shim.
pub(super) fn run(channel: Channel, ahead: &AheadProgram) -> i32 {
    let (mut desk, asker) = match groups::desk() {
        Ok(both) => both,
        Err(error) => return channel.refuse(StartFailure::cannot("make a socket", error)),
    };
    let half = namespace::split(channel, Some(&mut desk), move |channel, lifeline| {
        hold(channel, ahead, &asker, lifeline)
    });
    match half {
        Half::Outer(code) => {
            desk.remove();
            code
        }
        Half::Inner(code) => code,
    }
}

/// Holds the interpreter, and then the attempt.
fn hold(
    channel: &mut Channel,
    ahead: &AheadProgram,
    outer: &Asker,
    lifeline: OwnedFd,
) -> Result<(), StartFailure> {
    let outside = namespace::become_first(channel)?;
    let program = &ahead.program;
    let view = mounts::arrange_ahead(&program.hidden, &program.attempts)?;
    let signs =
        Signs::new(None).map_err(|error| StartFailure::cannot("watch for signals", error))?;
    let interpreter = Interpreter::start(ahead)?;
    let waits = Waits { interpreter: &interpreter, outer, outside: &outside, lifeline: &lifeline };
    let Some(spec) = waits.until_asked(channel) else { return Ok(()) };
    let (processes, meter) = begin(channel, &spec, interpreter, Place { outer, outside, view })?;
    if let Some(boot_ms) = spec.deadline_boot_ms {
        signs.arm(boot_ms);
    }
    let mut watch = Watch::new(channel, signs, processes, meter, Some(lifeline));
    // However this returns, our exit ends whatever is left.
    let _ = watch.until_main_ends();
    Ok(())
}

/// Where the attempt begins.
struct Place<'a> {
    outer: &'a Asker,
    outside: OutsideView,
    view: View,
}

/// Begins the attempt, in the interpreter or else by executing its program.
fn begin(
    channel: &Channel,
    spec: &ShimSpec,
    interpreter: Interpreter,
    Place { outer, outside, view }: Place<'_>,
) -> Result<(Processes, Meter), StartFailure> {
    groups::show_label(&spec.label);
    let request = Request { label: spec.label.clone(), limits: spec.limits.clone() };
    let entrances = outer.ask(Some(&request))?;
    view.show(spec.private_folder.as_deref());
    let groups: Vec<Group> =
        spec.limits.groups.iter().map(|group| Group::at(group.folder.clone())).collect();
    let meter = Meter::start(&spec.limits, &groups);
    let ready = interpreter.prepare(spec, &entrances);
    let main = match link::begin(channel, ready) {
        Some(job) => job,
        None => {
            channel.report(&Report::Starting);
            job::start(spec, entrances)?
        }
    };
    channel.report(&Report::Started { pid: outside.first_child() });
    Ok((Processes { tree: Tree::Namespace, main }, meter))
}

/// A process that loads modules and waits for its script.
struct Interpreter {
    pid: Pid,
    link: OwnedFd,
}

impl Interpreter {
    /// Executes it with the job's standard descriptors, which stay open here, too: its program may have
    /// to be executed again.
    fn start(
        AheadProgram { program, room, messages }: &AheadProgram,
    ) -> Result<Self, StartFailure> {
        let cannot = |error: io::Error| {
            StartFailure::of_call(format_args!("program {}", program.program), &error)
        };
        let (link, theirs) = link::pair().map_err(cannot)?;
        for message in messages {
            link::say(&link, message.as_bytes())
                .map_err(|NotServed { why, .. }| StartFailure::of_host(why))?;
        }
        let mut command = Command::new(&program.program);
        command.args(&program.args).env_clear().current_dir(&program.cwd);
        command.args([theirs.as_raw_fd().to_string(), "-".repeat(*room)]);
        command.envs(program.env.iter().map(|(name, value)| (name, value)));
        let entry = JobEntry {
            parent: getpid(),
            groups: Vec::new(),
            keeps_mounts: true,
            link: Some(theirs),
        };
        entry.arrange(&mut command);
        let child = command.spawn().map_err(cannot)?;
        handover::close_to_others();
        Ok(Self { pid: Pid::from_child(&child), link })
    }

    /// Waits for its end, and returns the signal that has brought it about.
    fn await_signal(&self) -> Option<i32> {
        let began = boot_now();
        let mut pace = Pace::new();
        while boot_now().since(began).as_millis() < END_MAX_MS {
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => return status.terminating_signal(),
                Ok(None) | Err(Errno::INTR) => {
                    let _ = poll(&mut [], Some(&pace.next()));
                }
                Err(_) => return None,
            }
        }
        None
    }

    /// Makes it the attempt, short of letting it run.
    fn prepare(self, spec: &ShimSpec, entrances: &[OwnedFd]) -> Result<Ready, NotServed> {
        let text = link::describe(spec)?;
        let null = job::open_null().map_err(link::cannot)?;
        if !is_alone() {
            // Another process would stay outside the groups.
            let why = "its modules have started processes".to_owned();
            return Err(NotServed { why, blame: Blame::Process });
        }
        let number = self.pid.as_raw_nonzero().to_string();
        for entrance in entrances {
            rustix::io::write(entrance, number.as_bytes()).map_err(link::cannot)?;
        }
        link::say(&self.link, &text)?;
        let job = link::await_ready(&self.link)?;
        Ok(Ready { job, link: self.link, null })
    }
}

/// Whether there is one process besides this one.
fn is_alone() -> bool {
    descendants::of_this().len() <= 1
}

/// What is looked at until there is an attempt.
struct Waits<'a> {
    interpreter: &'a Interpreter,
    outer: &'a Asker,
    outside: &'a OutsideView,
    lifeline: &'a OwnedFd,
}

impl Waits<'_> {
    /// Waits for the attempt; nothing if there will be none.
    fn until_asked(&self, channel: &mut Channel) -> Option<Box<ShimSpec>> {
        // Once this shim has said that it is there, an attempt comes. If the interpreter ends now, that
        // is found out then, and the attempt is executed.
        let mut is_promised = false;
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.lifeline.as_fd(), PollFlags::IN),
                PollFd::new(&*channel, PollFlags::IN),
                PollFd::from_borrowed_fd(self.interpreter.link.as_fd(), PollFlags::IN),
            ];
            let looked_at = if is_promised { 2 } else { 3 };
            if !channel.has_line() {
                wait_on(fds.get_mut(..looked_at)?, None).ok()?;
            }
            let [lifeline, orders, link] = fds.map(|fd| !fd.revents().is_empty());
            if lifeline {
                return None;
            }
            if orders || channel.has_line() {
                match channel.read_task().ok()?? {
                    ShimTask::Attempt(spec) => return Some(spec),
                    ShimTask::Ping => {
                        self.outer.ask(None).ok()?;
                        channel.report(&Report::Here);
                        is_promised = true;
                    }
                    ShimTask::Warm(_) | ShimTask::Ahead(_) => return None,
                }
            } else if link {
                self.hear(channel)?;
            }
        }
    }

    /// Reports what the interpreter says; nothing if it does not wait.
    fn hear(&self, channel: &Channel) -> Option<()> {
        let said = link::receive(&self.interpreter.link).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let why = match said.split_once(' ') {
            Some(("waiting", _)) if is_alone() => {
                channel.report(&Report::Waiting { pid: self.outside.first_child() });
                return Some(());
            }
            Some(("waiting", _)) => Some("importing them starts processes"),
            Some(("unfit", why)) => Some(why),
            _ => {
                if let Some(signal) = self.interpreter.await_signal() {
                    // That says nothing about its modules.
                    let why = format!("the interpreter was ended by signal {signal}");
                    channel.report(&Report::SpawnFailed(StartFailure::of_host(why)));
                    return None;
                }
                None
            }
        };
        channel.report(&Report::Unfit { why: why.map(str::to_owned) });
        None
    }
}
