//! The guardian's end of the socket that joins it to its engine.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use outlast_core::id::WorkerId;
use rustix::event::{PollFd, PollFlags};

use super::link::{Announcement, GuardianEvent};

/// What joins the guardian to its engine: events go out, announcements come in.
#[derive(Debug)]
pub(super) struct EngineLink {
    socket: UnixStream,
    /// Events that did not fit into the socket, which an engine that stands still does not empty.
    waiting: Waiting,
    /// The latest announcement, and what has come of the next one.
    received: Vec<u8>,
    /// The identities that were announced and not taken yet.
    identities: Vec<WorkerId>,
    closed: bool,
}

impl EngineLink {
    /// Makes the link; returns the engine's end with it.
    pub(super) fn new() -> io::Result<(Self, OwnedFd)> {
        let (socket, engine) = UnixStream::pair()?;
        // A frozen engine must not freeze the guardian when the socket is full of events.
        socket.set_nonblocking(true)?;
        let (waiting, received, identities) = (Waiting::default(), Vec::new(), Vec::new());
        Ok((Self { socket, waiting, received, identities, closed: false }, engine.into()))
    }

    /// What to wait for: announcements, and room for events that wait; nothing once the engine has
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
        let whole = |received: &[u8]| received.len() / Announcement::BYTES;
        let before = whole(&self.received);
        self.received.extend_from_slice(bytes);
        let (announced, _) = self.received.as_chunks();
        let new = announced.iter().skip(before).map(Announcement::from_bytes);
        self.identities.extend(new.filter_map(|announcement| announcement.worker));
        let older = (self.received.len() / Announcement::BYTES).saturating_sub(1);
        self.received.drain(..older * Announcement::BYTES);
    }

    /// Takes the identities that were announced since this was called last.
    pub(super) fn take_identities(&mut self) -> Vec<WorkerId> {
        std::mem::take(&mut self.identities)
    }

    /// What the engine announced last, if anything. What it held under an earlier identity had lapsed
    /// by then.
    pub(super) fn announced(&self) -> Option<Announcement> {
        self.received.first_chunk().map(Announcement::from_bytes)
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
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_latest_whole_announcement_counts_however_the_bytes_arrive() {
        let (mut link, engine) = EngineLink::new().unwrap();
        let mut engine = UnixStream::from(engine);
        let said = |n: u128, drains| Announcement {
            worker: (n > 0).then(|| WorkerId(Uuid::from_u128(n))),
            drains,
        };
        link.receive();
        assert_eq!(link.announced(), None);
        let (first, second) = (said(1, false), said(2, true));
        engine.write_all(&first.to_bytes()).unwrap();
        engine.write_all(&second.to_bytes()[..5]).unwrap();
        link.receive();
        assert_eq!(link.announced(), Some(first));
        engine.write_all(&second.to_bytes()[5..]).unwrap();
        link.receive();
        assert_eq!(link.announced(), Some(second));
        for n in 3..100 {
            engine.write_all(&said(n, false).to_bytes()).unwrap();
        }
        let last = said(0, true);
        engine.write_all(&last.to_bytes()).unwrap();
        drop(engine);
        link.receive();
        assert_eq!(link.announced(), Some(last));
        // The server may know any of them, and not the last one.
        let all: Vec<WorkerId> = (1..100).map(|n| WorkerId(Uuid::from_u128(n))).collect();
        assert_eq!(link.take_identities(), all);
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
