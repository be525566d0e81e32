//! The guardian's end of the socket that joins it to its engine.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use outlast_core::id::WorkerId;
use uuid::Uuid;

use super::link::{GuardianEvent, NOBODY};

/// Bytes of an identity on the socket.
const IDENTITY_BYTES: usize = size_of::<uuid::Bytes>();

/// What joins the guardian to its engine: events go out, identities come in.
#[derive(Debug)]
pub(super) struct EngineLink {
    socket: UnixStream,
    /// The latest identity, and what has come of the next one.
    received: Vec<u8>,
    closed: bool,
}

impl EngineLink {
    /// Makes the link; returns the engine's end with it.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (socket, engine) = UnixStream::pair()?;
        // A frozen engine must not freeze the guardian when the socket is full of events.
        socket.set_nonblocking(true)?;
        Ok((Self { socket, received: Vec::new(), closed: false }, engine.into()))
    }

    /// The descriptor that becomes readable when the engine announces an identity; none once
    /// the engine has closed its end.
    pub(super) fn readable(&self) -> Option<BorrowedFd<'_>> {
        (!self.closed).then(|| self.socket.as_fd())
    }

    pub(super) fn send(&mut self, event: GuardianEvent) {
        let Some(byte) = event.as_byte() else { return };
        // An engine that closed the socket is ending, and its end is noticed by itself.
        if let Err(error) = self.socket.write_all(&[byte]) {
            tracing::warn!(%error, ?event, "cannot pass an event on to the engine");
        }
    }

    /// Reads what has come.
    pub(super) fn receive(&mut self) {
        let mut bytes = [0_u8; 256];
        while !self.closed {
            match self.socket.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(count) => self.keep(bytes.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        let older = (self.received.len() / IDENTITY_BYTES).saturating_sub(1) * IDENTITY_BYTES;
        self.received.drain(..older);
    }

    /// The identity that the engine announced last, unless it has deregistered. What it held under
    /// an earlier one had lapsed by then.
    pub(super) fn worker(&self) -> Option<WorkerId> {
        let latest = self.received.first_chunk::<IDENTITY_BYTES>()?;
        Some(WorkerId(Uuid::from_bytes(*latest))).filter(|worker| *worker != NOBODY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_whole_identity_counts_however_the_bytes_arrive() {
        let (mut link, engine) = EngineLink::new().unwrap();
        let mut engine = UnixStream::from(engine);
        let identity = |n: u128| Uuid::from_u128(n).into_bytes();
        link.receive();
        assert_eq!(link.worker(), None);
        engine.write_all(&identity(1)).unwrap();
        engine.write_all(&identity(2)[..5]).unwrap();
        link.receive();
        assert_eq!(link.worker(), Some(WorkerId(Uuid::from_u128(1))));
        engine.write_all(&identity(2)[5..]).unwrap();
        for n in 3..100 {
            engine.write_all(&identity(n)).unwrap();
        }
        drop(engine);
        link.receive();
        assert_eq!(link.worker(), Some(WorkerId(Uuid::from_u128(99))));
        assert!(link.readable().is_none());
    }
}
