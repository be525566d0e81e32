//! Contact with the store: whether it takes writes, and since when without a break.
//!
//! Silence of a worker says something only while its beats could have been stored (I8). A
//! write that fails breaks contact, and so does one that is held up for long: a lock that
//! somebody else holds, a disk or a server that stands still. A server that writes nothing of
//! its own finds out by trying now and then (the lease monitor does).
//!
//! ```text
//! good ──write failed──▶ down ──write done──▶ good, since now
//! good ──write under way for too long──▶ held up ──write done──▶ good, since now
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

use outlast_core::time::{BootTime, Span};

/// A write that takes longer than this breaks contact, until the monitor says otherwise.
const HELD_UP: Span = Span::from_secs(2);
/// A write under way for longer than this is no good sign for producers.
const NOT_WELL: Span = Span::from_secs(2);

/// What writes: neither waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Heartbeats.
    Beats,
    /// Everything else.
    Work,
}

/// What one server knows of its store. Written by whoever writes, and the lease monitor.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    beats: OneLane,
    work: OneLane,
    /// Since when there was no break.
    since: Option<BootTime>,
    /// When the store last took a write, or was opened.
    proven: BootTime,
    held_up: Span,
}

#[derive(Clone, Copy, Debug, Default)]
struct OneLane {
    down: bool,
    /// When the write that is under way began.
    writing: Option<BootTime>,
    /// When the latest write was done.
    written: Option<BootTime>,
}

impl Default for State {
    fn default() -> Self {
        let (beats, work) = (OneLane::default(), OneLane::default());
        Self { beats, work, since: None, proven: BootTime(0), held_up: HELD_UP }
    }
}

impl State {
    const fn lane(&mut self, lane: Lane) -> &mut OneLane {
        match lane {
            Lane::Beats => &mut self.beats,
            Lane::Work => &mut self.work,
        }
    }

    const fn is_down(&self) -> bool {
        self.beats.down || self.work.down
    }

    /// Whether a write is under way for longer than `limit`.
    fn waits(&self, limit: Span, now: BootTime) -> bool {
        let waits = |lane: OneLane| lane.writing.is_some_and(|began| now.since(began) > limit);
        waits(self.beats) || waits(self.work)
    }
}

impl Contact {
    /// The store was just opened.
    pub(crate) fn new(now: BootTime) -> Self {
        let state = State { since: Some(now), proven: now, ..State::default() };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how long a write may take before what is seen meanwhile says nothing.
    pub(crate) fn set_patience(&self, patience: Span) {
        self.state().held_up = patience;
    }

    /// Returns how long a write may take before what is seen meanwhile says nothing.
    pub(crate) fn patience(&self) -> Span {
        self.state().held_up
    }

    /// Notes that a write begins.
    pub(crate) fn begins(&self, lane: Lane, now: BootTime) {
        self.state().lane(lane).writing = Some(now);
    }

    /// Notes how the write that began ended; returns whether there was a break.
    pub(crate) fn wrote(&self, lane: Lane, reached: bool, now: BootTime) -> bool {
        let mut state = self.state();
        let (was_down, patience) = (state.is_down(), state.held_up);
        let this = state.lane(lane);
        let took = this.writing.take().map_or(Span::ZERO, |began| now.since(began));
        this.down = !reached;
        if reached {
            this.written = Some(now);
            state.proven = now;
        }
        if took > patience {
            tracing::warn!(
                seconds = took.0 / 1000,
                "the store held a write up: silence of workers meanwhile says nothing"
            );
        }
        let broken = was_down || !reached || took > patience;
        if state.is_down() {
            state.since = None;
        } else if broken || state.since.is_none() {
            state.since = Some(now);
        }
        broken
    }

    /// Notes that nobody tried for so long that a break may have gone unseen.
    pub(crate) fn unproven(&self, now: BootTime) {
        let mut state = self.state();
        state.since = state.since.map(|_| now);
    }

    /// Whether the store failed the latest write.
    pub(crate) fn is_down(&self) -> bool {
        self.state().is_down()
    }

    /// Whether the store takes writes, as far as is known.
    pub(crate) fn is_well(&self, now: BootTime) -> bool {
        let state = self.state();
        !state.is_down() && !state.waits(NOT_WELL, now)
    }

    /// Returns how long ago the store last took a write, or was opened.
    pub(crate) fn unproven_for(&self, now: BootTime) -> Span {
        now.since(self.state().proven)
    }

    /// Returns how long contact has lasted without a break; a write that is held up has broken
    /// it already.
    pub(crate) fn length(&self, now: BootTime) -> Span {
        let state = self.state();
        match state.since {
            Some(since) if !state.waits(state.held_up, now) => now.since(since),
            _ => Span::ZERO,
        }
    }

    /// Returns how long ago the latest write of a lane was done.
    pub(crate) fn idle(&self, lane: Lane, now: BootTime) -> Span {
        self.state().lane(lane).written.map_or(Span(u64::MAX), |at| now.since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> BootTime {
        BootTime(millis)
    }

    fn contact() -> Contact {
        let contact = Contact::new(at(0));
        contact.set_patience(Span(500));
        contact
    }

    #[test]
    fn prompt_writes_keep_contact() {
        let contact = contact();
        contact.begins(Lane::Work, at(1_000));
        assert!(!contact.wrote(Lane::Work, true, at(1_500)));
        assert_eq!(
            (contact.length(at(2_000)), contact.idle(Lane::Work, at(2_000))),
            (Span(2_000), Span(500))
        );
    }

    #[test]
    fn write_that_is_held_up_breaks_contact_while_it_is_and_when_it_is_done() {
        let contact = contact();
        contact.begins(Lane::Work, at(1_000));
        assert_eq!(contact.length(at(1_501)), Span::ZERO);
        assert!(contact.is_well(at(1_501)) && !contact.is_well(at(3_001)));
        assert!(contact.wrote(Lane::Work, true, at(4_000)));
        assert!(contact.is_well(at(4_000)));
        assert_eq!(contact.length(at(4_100)), Span(100));
    }

    #[test]
    fn contact_that_nobody_proved_counts_from_now() {
        let contact = contact();
        contact.unproven(at(9_000));
        assert_eq!(contact.length(at(9_100)), Span(100));
        contact.wrote(Lane::Work, false, at(9_200));
        contact.unproven(at(9_300));
        assert_eq!(contact.length(at(9_400)), Span::ZERO);
    }

    #[test]
    fn beats_that_are_stored_do_not_hide_that_work_is_not() {
        let contact = contact();
        assert!(contact.wrote(Lane::Work, false, at(1_000)));
        contact.begins(Lane::Beats, at(1_000));
        assert!(contact.wrote(Lane::Beats, true, at(1_010)));
        assert!(contact.is_down() && contact.length(at(2_000)) == Span::ZERO);
        assert_eq!(contact.idle(Lane::Beats, at(1_020)), Span(10));
    }

    #[test]
    fn failed_write_breaks_contact_until_one_is_done() {
        let contact = contact();
        contact.begins(Lane::Work, at(1_000));
        assert!(contact.wrote(Lane::Work, false, at(1_010)));
        assert!(contact.is_down() && !contact.is_well(at(1_020)));
        assert_eq!(contact.length(at(9_000)), Span::ZERO);
        contact.begins(Lane::Work, at(9_000));
        assert!(contact.wrote(Lane::Work, true, at(9_010)));
        assert_eq!(contact.length(at(9_110)), Span(100));
    }
}
