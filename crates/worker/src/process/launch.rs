//! Launching a shim from the engine.
//!
//! Everything the shim gets is either a standard descriptor or is sent over its socket, so
//! no descriptor ever lacks close-on-exec in the engine, where another thread may be
//! spawning at the same moment and would pass it on.

use std::io::{self, IoSlice, PipeReader};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::containment::Containment;
use super::protocol::ContainedIn;
use super::{OwnProgram, cgroup, resources, shim};

/// A shim that was started, with our ends of everything. Nothing was said to it yet.
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) socket: UnixStream,
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

pub(crate) fn launch(program: &OwnProgram, label: &str) -> io::Result<Launched> {
    let (ours, theirs) = StdUnixStream::pair()?;
    let (job_stdin, stdin) = io::pipe()?;
    let (stdout, job_stdout) = io::pipe()?;
    let (stderr, job_stderr) = io::pipe()?;
    send_descriptor(&ours, &job_stdin)?;
    drop(job_stdin);
    let mut command = Command::new(program.path());
    command
        .arg0("outlast")
        .args([shim::SUBCOMMAND, label])
        // The shim wants nothing of our environment, and must not carry our secrets about.
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(job_stdout)
        .stderr(job_stderr);
    let child = command.spawn()?;
    // The builder still holds the job's ends of the pipes.
    drop(command);
    ours.set_nonblocking(true)?;
    Ok(Launched {
        child,
        socket: UnixStream::from_std(ours)?,
        stdin: pipe::Sender::from_owned_fd(stdin.into())?,
        stdout: receiver(stdout)?,
        stderr: receiver(stderr)?,
    })
}

fn receiver(pipe: PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(pipe.into())
}

/// Sends a copy of `descriptor` with one byte, which the shim reads first.
fn send_descriptor(socket: &StdUnixStream, descriptor: &impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Picks the place for one attempt inside `containment`.
pub(crate) fn assign(containment: Containment, program: &OwnProgram) -> io::Result<ContainedIn> {
    Ok(match containment {
        Containment::Pidns => ContainedIn::Pidns,
        Containment::Cgroup => {
            let folder = cgroup::own_folder()?.join(resources::next_name(program)?);
            ContainedIn::Cgroup { folder }
        }
        Containment::Subreaper => ContainedIn::Subreaper,
    })
}
