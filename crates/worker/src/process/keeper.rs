//! The keeper of a worker's cgroups: ends what is in them when the engine is gone and the shims
//! are too.
//!
//! ```text
//! engine ──pipe──▶ keeper: the pipe closes ──300 ms for the shims──▶ cgroup.kill, remove, exit
//! ```
//!
//! A shim ends its own tree when the engine dies. If all of them are killed at once, only
//! the group remains, which nothing ends by itself. A job may have the rights to kill the keeper
//! too, or to leave its group: so a cgroup is no proof of death all the same.

use std::io::{self, PipeWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::poll;

use super::pace::Pace;
use super::{OwnProgram, cgroup, handover, sys};
use crate::clock::boot_now;

/// The hidden subcommand on which the program must call [`main`].
pub const SUBCOMMAND: &str = "keeper";

/// How long shims have to end their trees by themselves.
const SHIMS_MAX: Duration = Duration::from_millis(300);
/// How long a group may take to be empty; what is left then waits for the next start.
const EMPTY_MAX: Duration = Duration::from_secs(60);

/// Runs `PROGRAM keeper PREFIX FOLDER…` with the engine's pipe as standard input.
#[must_use]
pub fn main() -> i32 {
    let mut args = std::env::args_os().skip(2);
    let Some(prefix) = args.next() else { return 2 };
    let folders: Vec<PathBuf> = args.map(PathBuf::from).collect();
    sys::heed_children();
    handover::close_to_others();
    // Fails only for a process that leads its group already.
    let _ = rustix::process::setsid();
    sys::block_all_signals();
    let mut byte = [0_u8; 1];
    // Nothing is ever written: the end of the stream is the message.
    while matches!(io::stdin().read(&mut byte), Ok(1..)) {}
    i32::from(!end_all(EMPTY_MAX, SHIMS_MAX, || {
        let prefix = prefix.to_string_lossy();
        folders.iter().flat_map(|folder| cgroup::named(folder, &prefix)).collect()
    }))
}

/// Ends and removes the groups that engines left behind which are dead now. Called before an
/// engine takes work, which may be the very work that still runs there.
pub fn end_orphans() {
    const MAX: Duration = Duration::from_secs(2);
    if !end_all(MAX, Duration::ZERO, cgroup::orphans) {
        tracing::warn!("processes that a dead engine left in a cgroup are still running");
    }
}

/// Kills `groups` and removes them as they become empty; false if some do not within `limit`.
fn end_all(limit: Duration, grace: Duration, groups: impl Fn() -> Vec<cgroup::Group>) -> bool {
    let began = boot_now();
    let mut pace = Pace::new();
    loop {
        let waited = Duration::from_millis(boot_now().since(began).as_millis());
        let left = groups();
        if left.is_empty() {
            return true;
        }
        if waited >= limit {
            return false;
        }
        for group in left {
            if waited >= grace && group.kill().is_err() {
                group.kill_members();
            }
            if group.is_empty() {
                group.remove();
            }
        }
        let _ = poll(&mut [], Some(&pace.next()));
    }
}

/// A keeper that runs. It ends when this does.
#[derive(Debug)]
struct Keeper {
    process: Child,
    _line: PipeWriter,
}

/// Makes sure that a keeper watches over this engine's groups, and returns the beginning of their
/// names.
pub(crate) fn ensure(program: &OwnProgram) -> io::Result<String> {
    static KEEPER: Mutex<Option<Keeper>> = Mutex::new(None);
    let prefix = cgroup::own_prefix()?;
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let runs = match keeper.as_mut() {
        Some(keeper) => keeper.process.try_wait()?.is_none(),
        None => false,
    };
    if !runs {
        *keeper = Some(start(program, &prefix)?);
    }
    Ok(prefix)
}

fn start(program: &OwnProgram, prefix: &str) -> io::Result<Keeper> {
    let (reading, line) = io::pipe()?;
    let mut command = Command::new(program.path());
    command.arg0("outlast").arg(SUBCOMMAND).arg(prefix).args(cgroup::folders()).env_clear();
    command.stdin(reading).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Keeper { process: command.spawn()?, _line: line })
}
