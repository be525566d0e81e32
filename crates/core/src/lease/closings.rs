//! Connections of workers that were closed by the system on the worker's side.
//!
//! A system closes all connections of a process that it ends, at the same moment. So a worker whose
//! session and heartbeats both end like that, without a goodbye, has most likely ended. One that is
//! frozen or cut off keeps its connections. What drops many workers at once is a proxy or the
//! network, and no end of theirs.

use std::collections::{HashMap, VecDeque};

use crate::id::WorkerId;
use crate::time::{BootTime, Span};

/// How far apart the ends of a worker's two connections may be.
const TOGETHER_MAX: Span = Span::from_millis(100);

/// Within what time ends of sessions are counted together.
pub const FLOOD_WINDOW: Span = Span::from_secs(1);
/// So many sessions, or that part of a server's, may end within it; more are a flood.
const FEW: usize = 3;
const FLOOD_PART: usize = 5;

/// For how long an end is remembered.
const KEPT: Span = Span::from_secs(60);

/// What one server has seen of its workers' connections.
#[derive(Debug, Default)]
pub(super) struct Closings {
    of_workers: HashMap<WorkerId, Closing>,
    /// When sessions ended without a goodbye.
    ends: VecDeque<BootTime>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Closing {
    /// The connection that the latest heartbeat came over.
    beats_over: Option<u64>,
    /// When that was closed.
    beats: Option<BootTime>,
    /// When that of the session was closed.
    session: Option<BootTime>,
}

impl Closings {
    pub(super) fn beats(&mut self, worker: WorkerId, connection: u64) {
        let closing = self.of_workers.entry(worker).or_default();
        (closing.beats_over, closing.beats) = (Some(connection), None);
    }

    pub(super) fn beats_closed(&mut self, worker: WorkerId, connection: u64, now: BootTime) {
        if let Some(closing) = self.of_workers.get_mut(&worker)
            && closing.beats_over == Some(connection)
        {
            closing.beats = Some(now);
        }
    }

    pub(super) fn session_ended(&mut self, worker: WorkerId, closed: bool, now: BootTime) {
        while self.ends.front().is_some_and(|end| now.since(*end) > KEPT) {
            self.ends.pop_front();
        }
        self.ends.push_back(now);
        self.of_workers.entry(worker).or_default().session = closed.then_some(now);
    }

    pub(super) fn attached(&mut self, worker: WorkerId) {
        if let Some(closing) = self.of_workers.get_mut(&worker) {
            (closing.beats, closing.session) = (None, None);
        }
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.of_workers.remove(&worker);
    }

    pub(super) fn forget_ends(&mut self) {
        for closing in self.of_workers.values_mut() {
            (closing.beats, closing.session) = (None, None);
        }
    }

    /// Returns when both connections of a worker had been closed, if that happened together and is
    /// part of no flood. `attached` workers have a session at this server.
    pub(super) fn both_closed(&self, worker: WorkerId, attached: usize) -> Option<BootTime> {
        let closing = self.of_workers.get(&worker)?;
        let (beats, session) = (closing.beats?, closing.session?);
        let last = beats.max(session);
        let is_together = last.since(beats.min(session)) <= TOGETHER_MAX;
        (is_together && !self.is_flood(session, attached)).then_some(last)
    }

    fn is_flood(&self, end: BootTime, attached: usize) -> bool {
        // They rise: each was noted when it was seen.
        let before = self.ends.partition_point(|other| other.after(FLOOD_WINDOW) < end);
        let until = self.ends.partition_point(|other| *other <= end.after(FLOOD_WINDOW));
        let ended = until.saturating_sub(before);
        is_flood(ended, attached.saturating_add(ended))
    }
}

/// Whether so many of `all` sessions that end within [`FLOOD_WINDOW`] are no ends of workers.
#[must_use]
pub fn is_flood(ended: usize, all: usize) -> bool {
    ended > FEW.max(all / FLOOD_PART)
}
