//! The engine's end of a spawner: starts it, asks it for shims, and replaces one that has ended.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::time::{BootTime, Span};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, WaitOptions, waitpgid};

use super::{LABEL_BYTES_MAX, ROOM, SUBCOMMAND};
use crate::clock::boot_now;
use crate::process::{OwnProgram, descriptors};

/// How long shims are made without a spawner after one was of no use: this host may not let it work.
const RETRY_AFTER: Span = Span::from_secs(10);

/// A spawner. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Spawner {
    program: OwnProgram,
    process: Mutex<Child>,
    requests: OwnedFd,
    has_served: AtomicBool,
    is_killed: AtomicBool,
}

impl Spawner {
    fn start(program: &OwnProgram) -> io::Result<Self> {
        let (requests, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program.path());
        command.arg0("outlast").args([SUBCOMMAND, &"-".repeat(ROOM)]);
        // Shims want nothing of our environment, and must not carry our secrets about.
        command.env_clear().stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Mutex::new(command.spawn()?);
        let (has_served, is_killed) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { program: program.clone(), process, requests, has_served, is_killed })
    }

    /// Asks for a shim with copies of these descriptors: the socket that joins it to the engine, the
    /// job's standard input, output and error, and the socket of a warm process if it has to do with
    /// one. Never waits.
    pub(crate) fn ask(&self, label: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        request(&self.requests, label, descriptors)
    }

    /// Notes that a shim came.
    pub(crate) fn has_served(&self) {
        self.has_served.store(true, Ordering::Relaxed);
    }

    /// Kills one that does nothing. It is not used any more.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::Relaxed);
        let _ = self.process.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }

    /// Whether it has ended.
    fn has_ended(&self) -> bool {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(process.try_wait(), Ok(None))
    }

    /// Reaps it, and the shims that were killed with it before either could say that they were there.
    /// Until a shim has said so, it is in the process group of its spawner. False if some are left.
    fn is_reaped(&self) -> bool {
        if !self.has_ended() {
            return false;
        }
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match waitpgid(Pid::from_child(&process), WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }
}

/// Writes a request for a shim.
pub(super) fn request(spawner: &OwnedFd, label: &str, sent: &[BorrowedFd<'_>]) -> io::Result<()> {
    let label = label.as_bytes();
    let label = label.get(..LABEL_BYTES_MAX - 1).unwrap_or(label);
    descriptors::send(spawner, &[IoSlice::new(label), IoSlice::new(b"\0")], sent)
}

/// The spawner of this process, and what is left of those before it.
struct Spawners {
    current: Option<Arc<Spawner>>,
    /// Ended or killed, and not reaped yet.
    former: Vec<Arc<Spawner>>,
    /// When one was found to be of no use.
    failed: Option<BootTime>,
}

/// Returns the spawner of this process, after starting it if there is none.
pub(crate) fn current(program: &OwnProgram) -> io::Result<Arc<Spawner>> {
    static SPAWNERS: Mutex<Spawners> =
        Mutex::new(Spawners { current: None, former: Vec::new(), failed: None });
    let mut spawners = SPAWNERS.lock().unwrap_or_else(PoisonError::into_inner);
    spawners.current(program, boot_now())
}

impl Spawners {
    fn current(&mut self, program: &OwnProgram, now: BootTime) -> io::Result<Arc<Spawner>> {
        if let Some(spawner) = self.current.take() {
            if spawner.has_ended() {
                self.note_end(&spawner, now);
            } else if spawner.program == *program && !spawner.is_killed.load(Ordering::Relaxed) {
                self.former.retain(|spawner| !spawner.is_reaped());
                return Ok(Arc::clone(self.current.insert(spawner)));
            } else {
                spawner.kill();
            }
            self.former.push(spawner);
        }
        self.former.retain(|spawner| !spawner.is_reaped());
        if self.failed.is_some_and(|at| now.since(at) < RETRY_AFTER) {
            return Err(io::Error::other("the last spawner was of no use"));
        }
        self.failed = None;
        match Spawner::start(program) {
            Ok(spawner) => Ok(Arc::clone(self.current.insert(Arc::new(spawner)))),
            Err(error) => {
                self.failed = Some(now);
                Err(error)
            }
        }
    }

    fn note_end(&mut self, spawner: &Spawner, now: BootTime) {
        if spawner.has_served.load(Ordering::Relaxed) {
            tracing::warn!("the spawner of shims has ended: starting another one");
        } else {
            tracing::warn!("cannot use a spawner of shims: attempts take longer to start");
            self.failed = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Spawners {
        Spawners { current: None, former: Vec::new(), failed: None }
    }

    fn await_end(spawner: &Spawner) {
        let mut process = spawner.process.lock().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn a_program_that_is_no_spawner_is_not_tried_again_at_once() {
        let program = OwnProgram::at("/bin/false");
        let mut spawners = none();
        await_end(&spawners.current(&program, BootTime(0)).unwrap());
        assert!(spawners.current(&program, BootTime(1000)).is_err());
        assert!(spawners.current(&program, BootTime(10_999)).is_err());
        assert!(spawners.current(&program, BootTime(11_000)).is_ok());
    }

    #[test]
    fn one_that_has_served_is_replaced_at_once() {
        let program = OwnProgram::at("/bin/true");
        let mut spawners = none();
        let first = spawners.current(&program, BootTime(0)).unwrap();
        first.has_served();
        await_end(&first);
        let second = spawners.current(&program, BootTime(1)).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn another_program_gets_a_spawner_of_its_own() {
        let (one, other) = (OwnProgram::at("/bin/true"), OwnProgram::at("/bin/false"));
        let mut spawners = none();
        let first = spawners.current(&one, BootTime(0)).unwrap();
        first.has_served();
        let second = spawners.current(&other, BootTime(0)).unwrap();
        assert_eq!((&first.program, &second.program), (&one, &other));
    }

    #[test]
    fn a_program_that_is_missing_is_an_error() {
        assert!(none().current(&OwnProgram::at("/nonexistent/outlast"), BootTime(0)).is_err());
    }
}
