//! The engine's end of the pipe from its guardian.

use std::io;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// What the guardian has to say. A signal is one byte on the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardianEvent {
    /// SIGTERM or SIGINT: drain; the second time, force.
    Terminate,
    /// SIGTSTP: take nothing new.
    Quiet,
    /// SIGCONT: undo a quiet that SIGTSTP brought.
    Resume,
    /// SIGHUP: read packs again.
    ReadAgain,
    /// The pipe closed: end every attempt, hand back, exit.
    GuardianGone,
}

impl GuardianEvent {
    pub(super) fn as_byte(self) -> Option<u8> {
        match self {
            Self::Terminate => Some(b'T'),
            Self::Quiet => Some(b'Q'),
            Self::Resume => Some(b'R'),
            Self::ReadAgain => Some(b'H'),
            Self::GuardianGone => None,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Terminate, Self::Quiet, Self::Resume, Self::ReadAgain]
            .into_iter()
            .find(|event| event.as_byte() == Some(byte))
    }
}

/// A stream of what the guardian says, in order.
#[derive(Debug)]
pub struct GuardianLink {
    pipe: pipe::Receiver,
}

impl GuardianLink {
    /// Takes the link from standard input, which a guardian made a pipe, and leaves
    /// /dev/null there. Call once, on a tokio runtime, before anything reads input.
    ///
    /// # Errors
    /// When standard input is no pipe: the engine was not started by a guardian.
    pub fn from_stdin() -> io::Result<Self> {
        let pipe = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let pipe = pipe::Receiver::from_owned_fd(pipe)?;
        let null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        Ok(Self { pipe })
    }

    /// Waits for the next event; [`GuardianEvent::GuardianGone`] again and again at the end.
    /// Safe to drop while waiting: nothing is lost.
    pub async fn next(&mut self) -> GuardianEvent {
        let mut byte = [0_u8; 1];
        loop {
            match self.pipe.read(&mut byte).await {
                Ok(0) => return GuardianEvent::GuardianGone,
                Ok(_) => {
                    if let Some(event) = byte.first().copied().and_then(GuardianEvent::from_byte) {
                        return event;
                    }
                    tracing::warn!(?byte, "guardian said something unknown");
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::error!(%error, "guardian cannot be heard");
                    return GuardianEvent::GuardianGone;
                }
            }
        }
    }
}
