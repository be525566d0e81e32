//! The shim: the process that holds one attempt's tree, and ends it.
//!
//! The spawner forks it, or, without a spawner, the program executes itself as `PROGRAM shim LABEL`
//! with a socket to the engine as standard input. The shim contains and starts the job, obeys orders, and says how the job
//! ended and when nothing of it is alive. It ends the tree at once when the engine is gone,
//! when the deadline passes, and when the job's main process ends.
//!
//! ```text
//! waiting for spec ──▶ running ──main process ends──▶ killing the rest ──▶ empty ──▶ exit
//!                        └─ engine gone | deadline | kill: SIGKILL to the tree ─┘
//! ```
//!
//! A job may also be forked by a warm process, into the namespace of its shim (`forked`). Such a
//! process is launched as a shim too, and executes its program in place of holding one (`warm`). Or the
//! shim was there before its attempt, with an interpreter that waits (`ahead`). `link` is how either
//! is given the job.
//!
//! It must not start a thread, log, or hold the job's pipes open once the job runs. It has
//! no environment: nothing of the worker's secrets reaches it.

mod ahead;
mod channel;
mod direct;
mod forked;
mod groups;
mod job;
mod link;
mod meter;
mod mounts;
mod namespace;
mod oom;
mod outer;
mod sample;
mod supervise;
mod tree;
mod warm;

pub(super) use self::channel::Channel;

use rustix::process::getpid;

use super::protocol::{ContainedIn, Report, ShimTask, StartFailure};
use super::{handover, signals, sys};

/// The hidden subcommand on which the program must call [`main`].
pub const SUBCOMMAND: &str = "shim";

/// In place of a label: end at once with success. A probe runs this as its job.
pub(crate) const NOOP: &str = "--noop";

/// Exit code of a shim that was not started by an engine.
const NOT_FROM_ENGINE: i32 = 2;

/// Runs a shim that was executed, and returns its exit code. Must be called before any thread exists.
#[must_use]
pub fn main() -> i32 {
    if std::env::args_os().nth(2).is_some_and(|argument| argument == NOOP) {
        return 0;
    }
    signals::hold_all();
    Channel::from_stdin().map_or(NOT_FROM_ENGINE, serve)
}

/// Serves the engine as a shim and returns its exit code. The process has one thread, holds all
/// signals back, and has nothing open but the job's standard descriptors and this channel.
pub(super) fn serve(mut channel: Channel) -> i32 {
    // In the spawner's process group until here: see `Spawner::is_reaped`.
    channel.report(&Report::Launched { pid: getpid().as_raw_nonzero().get() });
    handover::open_to_itself();
    sys::keep_only_stdio_on_exec();
    // Fails only for a process that leads its group already, which has no terminal to fear.
    let _ = rustix::process::setsid();
    let warm = channel.take_warm();
    let spec = match channel.read_task() {
        Ok(Some(ShimTask::Attempt(spec))) => spec,
        Ok(Some(ShimTask::Warm(program))) => return warm::become_program(&channel, &program, warm),
        Ok(Some(ShimTask::Ahead(ahead))) => return ahead::run(channel, &ahead),
        Ok(Some(ShimTask::Ping) | None) => return 0,
        Err(error) => {
            return channel.refuse(StartFailure::of_call("unreadable order", &error));
        }
    };
    match spec.contained_in.clone() {
        ContainedIn::Pidns => namespace::run(channel, &spec, warm),
        ContainedIn::Cgroup { folder } => direct::run_in_cgroup(channel, &spec, folder),
        ContainedIn::Subreaper => direct::run_under_subreaper(channel, &spec),
    }
}
