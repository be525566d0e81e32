//! The engine's end of the socket that joins it to its guardian.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Mutex, PoisonError};

use outlast_core::id::WorkerId;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use uuid::Uuid;

/// Announced in the place of an identity by an engine that has none.
const NO_IDENTITY: WorkerId = WorkerId(Uuid::nil());

/// What an engine last said of itself: one message on the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announcement {
    /// As whom it registers; `None` while nothing is registered.
    pub(super) worker: Option<WorkerId>,
    /// Whether it drains by order, and the worker ends with it.
    pub(super) drains: bool,
}

impl Announcement {
    /// Bytes of a message.
    pub(super) const BYTES: usize = size_of::<uuid::Bytes>() + 1;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (identity, drains) = bytes.split_at_mut(size_of::<uuid::Bytes>());
        identity.copy_from_slice(self.worker.unwrap_or(NO_IDENTITY).0.as_bytes());
        drains.fill(u8::from(self.drains));
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [identity @ .., drains] = bytes;
        let worker = WorkerId(Uuid::from_bytes(*identity));
        Self { worker: (worker != NO_IDENTITY).then_some(worker), drains: *drains != 0 }
    }
}

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

/// Tells the guardian what it must know if the engine dies: under which identity the engine works, and
/// whether it drains.
#[derive(Debug)]
pub struct Announcer {
    socket: StdStream,
    latest: Mutex<Announcement>,
}

impl GuardianLink {
    /// Takes the link from standard input, which a guardian made a socket, and leaves
    /// /dev/null there. Call once, on a tokio runtime, before anything reads input.
    ///
    /// # Errors
    /// When standard input is no socket: the engine was not started by a guardian.
    pub fn from_stdin() -> io::Result<(Self, Announcer)> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let socket = StdStream::from(socket);
        // Fails for anything that is no socket.
        socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        let latest = Announcement { worker: None, drains: false };
        let announcer = Announcer { socket: socket.try_clone()?, latest: Mutex::new(latest) };
        Ok((Self { socket: UnixStream::from_std(socket)? }, announcer))
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

impl Announcer {
    /// Announces the identity under which the engine is about to register.
    pub fn registers_as(&self, worker: WorkerId) {
        self.announce(|latest| latest.worker = Some(worker));
    }

    /// Takes the identity back: nothing is registered under it any more.
    pub fn deregistered(&self) {
        self.announce(|latest| latest.worker = None);
    }

    /// Announces that the engine drains by order: no other is to follow it.
    pub fn drains(&self) {
        self.announce(|latest| latest.drains = true);
    }

    fn announce(&self, change: impl FnOnce(&mut Announcement)) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *latest;
        change(&mut latest);
        if *latest == before {
            return;
        }
        // There is room for hundreds, and the guardian reads them as they come.
        if let Err(error) = (&self.socket).write_all(&latest.to_bytes()) {
            tracing::debug!(%error, "cannot tell the guardian about this worker");
        }
    }
}
