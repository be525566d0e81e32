//! The spawner: it makes shims by forking itself.
//!
//! ```text
//! engine ──label, socket, standard descriptors──▶ spawner
//!    └── shim: the engine's child ◀──clone(CLONE_PARENT)──┘
//! ```
//!
//! Executing the program takes milliseconds, because it is large. So the engine executes it once, as
//! `PROGRAM spawner ROOM` with a socket as standard input, and every shim is a copy of that process.
//!
//! A shim is a child of the engine and not of the spawner. It does not depend on the spawner once it
//! is there, and the spawner has no children to wait for. The engine starts another spawner when one
//! has ended, and asks again for shims that did not come. Nothing runs twice: a shim gets its job
//! from the engine, and only after the engine has seen that the shim is there.
//!
//! A shim that has to do with a warm process gets one descriptor more: the socket of that process.
//!
//! What a job is given never comes here. The spawner must not start a thread, log, or keep anything
//! of a request.
//!
//! - `handle`: the engine's end

mod handle;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Pid;

use super::protocol::{Report, StartFault};
use super::shim::{self, Channel};
use super::sys::{self, ArgumentArea, Fork};
use super::{descriptors, handover, signals};

pub(crate) use self::handle::current;

/// The hidden subcommand on which the program must call [`main`].
pub const SUBCOMMAND: &str = "spawner";

/// Most bytes of a label that are sent, the zero at its end included.
const LABEL_BYTES_MAX: usize = 128;

/// How long the argument is that makes room for a shim's arguments in the list of processes.
const ROOM: usize = LABEL_BYTES_MAX + 16;

/// Exit code of a spawner that was not started by an engine.
const NOT_FROM_ENGINE: i32 = 2;

/// Exit code of a spawner that may not make shims.
const CANNOT_FORK: i32 = 1;

/// Runs the spawner, or a shim that it has become, and returns its exit code. Must be called before
/// any thread exists.
#[must_use]
pub fn main() -> i32 {
    signals::hold_all();
    handover::close_to_others();
    sys::close_all_but_stdio();
    // Fails only for a process that leads its group already, which has no terminal to fear.
    let _ = rustix::process::setsid();
    let arguments = ArgumentArea::find();
    let show = |label: &[u8]| {
        if let Some(area) = &arguments {
            area.show(b"outlast\0", label);
        }
    };
    show(b"spawner\0");
    loop {
        match receive(rustix::stdio::stdin()) {
            Ok(Received::Request(request)) => match sys::fork_sibling() {
                Ok(Fork::Child) => {
                    show(&[b"shim\0".as_slice(), &request.label].concat());
                    return request.become_shim();
                }
                Ok(Fork::Parent(shim)) => request.say_launched(shim),
                // What the request had is closed, and the engine sees that no shim comes.
                Err(error) if StartFault::of(&error) == StartFault::Scarcity => {}
                // This host never lets it.
                Err(_) => return CANNOT_FORK,
            },
            Ok(Received::Unusable) => {}
            Ok(Received::EngineGone) => return 0,
            Err(_) => return NOT_FROM_ENGINE,
        }
    }
}

/// What came from the engine.
enum Received {
    Request(Request),
    /// Not all of it: this process may open no more files.
    Unusable,
    EngineGone,
}

/// A shim that the engine asks for.
struct Request {
    /// With a zero at its end.
    label: Vec<u8>,
    /// What joins the shim to the engine.
    socket: OwnedFd,
    /// The job's standard input, output and error.
    stdio: [OwnedFd; 3],
    /// The socket of a warm process.
    warm: Option<OwnedFd>,
}

fn receive(engine: impl AsFd) -> io::Result<Received> {
    let mut bytes = [0_u8; LABEL_BYTES_MAX];
    let (length, mut came) = descriptors::receive(engine, &mut bytes)?;
    if length == 0 {
        return Ok(Received::EngineGone);
    }
    let warm = (came.len() == 5).then(|| came.pop()).flatten();
    let Ok([socket, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(came) else {
        return Ok(Received::Unusable);
    };
    let label = bytes.get(..length).unwrap_or_default().to_vec();
    Ok(Received::Request(Request { label, socket, stdio: [stdin, stdout, stderr], warm }))
}

impl Request {
    /// Serves the engine as a shim. The socket to the spawner is closed before anything that could take
    /// long: while it is open, the engine cannot see that a spawner has ended.
    fn become_shim(self) -> i32 {
        let [stdin, stdout, stderr] = self.stdio;
        let placed = rustix::stdio::dup2_stdin(&stdin)
            .and_then(|()| rustix::stdio::dup2_stdout(&stdout))
            .and_then(|()| rustix::stdio::dup2_stderr(&stderr));
        drop((stdin, stdout, stderr));
        match placed {
            Ok(()) => shim::serve(Channel::new(self.socket, self.warm)),
            Err(_) => NOT_FROM_ENGINE,
        }
    }

    /// The shim says so itself. This is for one that was killed before it could: the engine must
    /// know the number of each of its children, to reap it. If both are killed at that moment, the
    /// engine reaps what is in the spawner's process group.
    fn say_launched(self, shim: Pid) {
        let pid = shim.as_raw_nonzero().get();
        Channel::new(self.socket, None).report(&Report::Launched { pid });
    }
}

#[cfg(test)]
mod tests;
