//! The guardian's end of the socket that joins it to its engine.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use outlast_core::id::WorkerId;
use rustix::event::{PollFd, PollFlags};
use uuid::Uuid;

use super::link::{GuardianEvent, NOBODY};

/// Bytes of an identity on the socket.
const IDENTITY_BYTES: usize = size_of::<uuid::Bytes>();

/// What joins the guardian to its engine: events go out, identities come in.
#[derive(Debug)]
pub(super) struct EngineLink {
    socket: UnixStream,
    /// Events that did not fit into the socket, which an engine that stands still does not empty.
    waiting: Waiting,
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
        let (waiting, received) = (Waiting::default(), Vec::new());
        Ok((Self { socket, waiting, received, closed: false }, engine.into()))
    }

    /// What to wait for: identities, and room for events that wait; nothing once the engine has
    /// closed its end.
    pub(super) fn wanted(&self) -> Option<PollFd<'_>> {
        let room =
            if self.waiting == Waiting::default() { PollFlags::empty() } else { PollFlags::OUT };
        (!self.closed).then(|| PollFd::new(&self.socket, PollFlags::IN | room))
    }

    /// Passes an event on, now or when there is room.
    pub(super) fn send(&mut self, event: GuardianEvent) {
        self.waiting.add(event);
        self.send_waiting();
    }

    /// Passes on what waits, as far as there is room.
    pub(super) fn send_waiting(&mut self) {
        while let Some(event) = self.waiting.next() {
            match event.as_byte().map(|byte| self.socket.write(&[byte])) {
                Some(Ok(0)) => return,
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => return,
                // An engine that closed the socket is ending, and its end is noticed by itself.
                Some(Ok(_) | Err(_)) | None => self.waiting.remove(event),
            }
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

/// Events that wait, as few as mean the same: signals of one kind merge.
#[derive(Debug, Default, PartialEq, Eq)]
struct Waiting {
    /// Each counts: the second one forces.
    terminations: u32,
    /// The later one of quiet and resume undoes the other.
    pace: Option<GuardianEvent>,
    reload: bool,
}

impl Waiting {
    fn add(&mut self, event: GuardianEvent) {
        match event {
            GuardianEvent::Terminate => self.terminations += 1,
            GuardianEvent::Quiet | GuardianEvent::Resume => self.pace = Some(event),
            GuardianEvent::ReloadPacks => self.reload = true,
            GuardianEvent::GuardianGone => {}
        }
    }

    /// The one to send first: what matters most, and makes the others matter less.
    fn next(&self) -> Option<GuardianEvent> {
        let reload = self.reload.then_some(GuardianEvent::ReloadPacks);
        let terminate = (self.terminations > 0).then_some(GuardianEvent::Terminate);
        terminate.or(self.pace).or(reload)
    }

    fn remove(&mut self, event: GuardianEvent) {
        match event {
            GuardianEvent::Terminate => self.terminations -= 1,
            GuardianEvent::Quiet | GuardianEvent::Resume => self.pace = None,
            GuardianEvent::ReloadPacks => self.reload = false,
            GuardianEvent::GuardianGone => {}
        }
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
        assert!(link.wanted().is_none());
    }
    // A termination was dropped, and the worker never ended, if its engine had stood still before.
    #[test]
    fn what_does_not_fit_into_the_socket_is_sent_when_there_is_room() {
        let (mut link, engine) = EngineLink::new().unwrap();
        let mut engine = UnixStream::from(engine);
        let mut sent = 0;
        while link.waiting == Waiting::default() {
            link.send(GuardianEvent::Quiet);
            sent += 1;
        }
        for event in [GuardianEvent::Resume, GuardianEvent::Terminate, GuardianEvent::ReloadPacks] {
            link.send(event);
        }
        let mut bytes = vec![0; sent - 1];
        engine.read_exact(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == b'Q'));
        link.send_waiting();
        assert_eq!(link.waiting, Waiting::default());
        let mut rest = [0; 3];
        engine.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"TRH");
    }
}
