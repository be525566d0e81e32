//! The engine's end of the socket that joins it to its guardian.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream as StdStream;

use outlast_core::id::WorkerId;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use uuid::Uuid;

/// Announced in the place of an identity by an engine that has none.
pub(super) const NOBODY: WorkerId = WorkerId(Uuid::nil());

/// What the guardian has to say. A signal is one byte on the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardianEvent {
    /// SIGTERM or SIGINT: drain; the second time, force.
    Terminate,
    /// SIGTSTP: take nothing new.
    Quiet,
    /// SIGCONT: undo a quiet that SIGTSTP brought.
    Resume,
    /// SIGHUP: read packs again.
    ReloadPacks,
    /// The socket closed: end every attempt, hand back, exit.
    GuardianGone,
}

impl GuardianEvent {
    pub(super) fn as_byte(self) -> Option<u8> {
        match self {
            Self::Terminate => Some(b'T'),
            Self::Quiet => Some(b'Q'),
            Self::Resume => Some(b'R'),
            Self::ReloadPacks => Some(b'H'),
            Self::GuardianGone => None,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Terminate, Self::Quiet, Self::Resume, Self::ReloadPacks]
            .into_iter()
            .find(|event| event.as_byte() == Some(byte))
    }
}

/// The events of the guardian, in order.
#[derive(Debug)]
pub struct GuardianLink {
    socket: UnixStream,
}

/// Tells the guardian under which identity the engine works, so that it can report the
/// engine's death.
#[derive(Debug)]
pub struct IdentityWriter {
    socket: StdStream,
}

impl GuardianLink {
    /// Takes the link from standard input, which a guardian made a socket, and leaves
    /// /dev/null there. Call once, on a tokio runtime, before anything reads input.
    ///
    /// # Errors
    /// When standard input is no socket: the engine was not started by a guardian.
    pub fn from_stdin() -> io::Result<(Self, IdentityWriter)> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let socket = StdStream::from(socket);
        // Fails for anything that is no socket.
        socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        let identity = IdentityWriter { socket: socket.try_clone()? };
        Ok((Self { socket: UnixStream::from_std(socket)? }, identity))
    }

    /// Waits for the next event; [`GuardianEvent::GuardianGone`] again and again at the end.
    /// Safe to drop while waiting: nothing is lost.
    pub async fn next(&mut self) -> GuardianEvent {
        let mut byte = [0_u8; 1];
        loop {
            match self.socket.read(&mut byte).await {
                Ok(0) => return GuardianEvent::GuardianGone,
                Ok(_) => {
                    if let Some(event) = byte.first().copied().and_then(GuardianEvent::from_byte) {
                        return event;
                    }
                    tracing::warn!(?byte, "unknown message from the guardian");
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It was killed before it had read everything.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return GuardianEvent::GuardianGone;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot read from the guardian");
                    return GuardianEvent::GuardianGone;
                }
            }
        }
    }
}

impl IdentityWriter {
    /// Takes the last announcement back: nothing is registered under it any more.
    pub fn withdraw(&self) {
        self.announce(NOBODY);
    }

    /// Announces the identity under which the engine is about to register.
    pub fn announce(&self, worker: WorkerId) {
        // There is room for hundreds, and the guardian reads them as they come.
        if let Err(error) = (&self.socket).write_all(worker.0.as_bytes()) {
            tracing::debug!(%error, "cannot tell the guardian this worker's identity");
        }
    }
}
