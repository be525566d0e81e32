//! Whether the store takes writes, and since when without a break.
//!
//! A worker's silence proves something only while its heartbeats could have been stored (I8).
//! StoreHealth breaks when a write fails or stalls, for example on a lock or a slow disk. A server
//! that has nothing to write probes now and then (the lease monitor does).
//!
//! ```text
//! good ──write failed──▶ down ──write done──▶ good, since now
//! good ──write under way for too long──▶ stalled ──write done──▶ good, since now
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

use outlast_core::time::{BootTime, Span};
use outlast_store::StoreError;

/// A write that takes longer than this breaks contact, until the monitor sets another limit.
const STALLED: Span = Span::from_secs(2);
/// While a write takes longer than this, producers are turned away.
const UNWRITABLE: Span = Span::from_secs(2);

/// While a read of the server itself takes longer than this, the server is not ready.
const UNREADABLE: Span = Span::from_secs(3);

/// When new jobs have met a lock for this long and none was stored, the server is not ready.
const LOCKED_OUT: Span = Span::from_secs(3);
/// A lock that no new job has met for this long may be gone.
const LOCK_REMEMBERED: Span = Span::from_secs(15);

/// A kind of read that the server itself makes again and again. While one of these fails, work of that kind stands
/// still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnRead {
    /// The workers, whose leases are judged.
    Fleet,
    /// The jobs that are due by time alone.
    Due,
    /// The claimable jobs.
    Backlog,
    /// The jobs that programs stored by SQL.
    Arrivals,
}

/// How many kinds of reads there are.
const OWN_READS: usize = 4;

/// The two kinds of writes: neither waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Heartbeats.
    Beats,
    /// Everything else.
    Work,
}

/// Why the store takes no writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// It failed the latest write.
    #[error("unreachable")]
    Unreachable,
    /// It takes no writes.
    #[error("read-only (standby)")]
    ReadOnly,
    /// There is no room for the latest write.
    #[error("disk is full")]
    Full,
    /// A write has not ended yet.
    #[error("a write takes too long")]
    Stalled,
    /// New jobs meet a lock that another session holds.
    #[error("new jobs wait for a lock of another session")]
    Locked,
    /// It does not answer what the server itself must know.
    #[error("reads fail or take too long")]
    Unreadable,
}

impl Trouble {
    /// Returns it as a word for programs.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::ReadOnly => "read_only",
            Self::Full => "disk_full",
            Self::Stalled => "stalled",
            Self::Locked => "locked",
            Self::Unreadable => "unreadable",
        }
    }

    /// Returns what a failed write says about the store.
    pub(crate) const fn of(error: &StoreError) -> Self {
        match error {
            StoreError::Full(_) => Self::Full,
            StoreError::ReadOnly(_) => Self::ReadOnly,
            _ => Self::Unreachable,
        }
    }
}

/// What one server knows of its store. The writers and the lease monitor update it.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    beats: OneLane,
    work: OneLane,
    reads: [OneRead; OWN_READS],
    /// The lock that new jobs meet, if none was stored since they first met one.
    lock: Option<Lock>,
    /// Since when there was no break.
    since: Option<BootTime>,
    /// When the store last took a write, or was opened.
    proven: BootTime,
    patience: Span,
    /// See [`StoreHealth::set_watch_max`].
    watch_max: Span,
}

#[derive(Clone, Copy, Debug, Default)]
struct OneLane {
    /// Why the latest write failed.
    down: Option<Trouble>,
    /// When the write under way began.
    writing: Option<BootTime>,
    /// When the latest write ended.
    written: Option<BootTime>,
}

/// A lock of another session.
#[derive(Clone, Copy, Debug)]
struct Lock {
    /// When new jobs first met it.
    first: BootTime,
    /// When they last did.
    latest: BootTime,
}

#[derive(Clone, Copy, Debug, Default)]
struct OneRead {
    /// Whether the latest one failed.
    failed: bool,
    /// When the one under way began.
    reading: Option<BootTime>,
}

impl Default for State {
    fn default() -> Self {
        let (beats, work) = (OneLane::default(), OneLane::default());
        let reads = [OneRead::default(); OWN_READS];
        let (proven, watch_max) = (BootTime(0), Span(u64::MAX));
        Self { beats, work, reads, lock: None, since: None, proven, patience: STALLED, watch_max }
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
        self.beats.down.is_some() || self.work.down.is_some()
    }

    /// Whether a write is under way for longer than `limit`.
    fn waits(&self, limit: Span, now: BootTime) -> bool {
        let waits = |lane: OneLane| lane.writing.is_some_and(|began| now.since(began) > limit);
        waits(self.beats) || waits(self.work)
    }
}

impl StoreHealth {
    /// The store was just opened.
    pub(crate) fn new(now: BootTime) -> Self {
        let state = State { since: Some(now), proven: now, ..State::default() };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how long a write may take before it counts as stalled.
    pub(crate) fn set_patience(&self, patience: Span) {
        self.state().patience = patience;
    }

    /// Returns how long a write may take before it counts as stalled.
    pub(crate) fn patience(&self) -> Span {
        self.state().patience
    }

    /// Records that a write begins.
    pub(crate) fn write_began(&self, lane: Lane, now: BootTime) {
        self.state().lane(lane).writing = Some(now);
    }

    /// Records how the write ended; returns whether contact was broken.
    pub(crate) fn write_ended(
        &self,
        lane: Lane,
        ended: Result<(), Trouble>,
        now: BootTime,
    ) -> bool {
        let mut state = self.state();
        let (was_down, patience) = (state.is_down(), state.patience);
        let this = state.lane(lane);
        let took = this.writing.take().map_or(Span::ZERO, |began| now.since(began));
        this.down = ended.err();
        if ended.is_ok() {
            this.written = Some(now);
            state.proven = now;
        }
        if took > patience {
            tracing::warn!(
                seconds = took.0 / 1000,
                "store write stalled; not judging worker liveness"
            );
        }
        let broken = was_down || ended.is_err() || took > patience;
        if state.is_down() {
            state.since = None;
        } else if broken || state.since.is_none() {
            state.since = Some(now);
        }
        broken
    }

    /// Records that new jobs were stored, or met a lock.
    pub(crate) fn new_jobs_ended(&self, were_stored: bool, now: BootTime) {
        let mut state = self.state();
        let first = state.lock.map_or(now, |lock| lock.first);
        state.lock = (!were_stored).then_some(Lock { first, latest: now });
    }

    /// Returns that the server cannot store new jobs because of a lock, if that has lasted.
    pub(crate) fn lock_trouble(&self, now: BootTime) -> Option<Trouble> {
        let lock = self.state().lock?;
        let lasts = now.since(lock.first) > LOCKED_OUT && now.since(lock.latest) < LOCK_REMEMBERED;
        lasts.then_some(Trouble::Locked)
    }

    /// Records that a read of the server itself begins.
    pub(crate) fn read_began(&self, what: OwnRead, now: BootTime) {
        if let Some(read) = self.state().reads.get_mut(what as usize) {
            read.reading = Some(now);
        }
    }

    /// Records how it ended.
    pub(crate) fn read_ended(&self, what: OwnRead, answered: bool) {
        if let Some(read) = self.state().reads.get_mut(what as usize) {
            *read = OneRead { failed: !answered, reading: None };
        }
    }

    /// Returns why the server cannot read what it must know; `None` if it can, as far as is known.
    pub(crate) fn read_trouble(&self, now: BootTime) -> Option<Trouble> {
        let waits = |read: &OneRead| read.reading.is_some_and(|at| now.since(at) > UNREADABLE);
        let fails = self.state().reads.iter().any(|read| read.failed || waits(read));
        fails.then_some(Trouble::Unreadable)
    }

    /// Records that nothing was written for so long that a break may have gone unnoticed.
    pub(crate) fn unproven(&self, now: BootTime) {
        let mut state = self.state();
        state.since = state.since.map(|_| now);
    }

    /// Whether the store failed the latest write.
    pub(crate) fn is_down(&self) -> bool {
        self.state().is_down()
    }

    /// Whether the store takes writes, as far as is known.
    pub(crate) fn is_writable(&self, now: BootTime) -> bool {
        self.trouble(now).is_none()
    }

    /// Returns why the store takes no writes; `None` if it does, as far as is known.
    pub(crate) fn trouble(&self, now: BootTime) -> Option<Trouble> {
        let state = self.state();
        let stalled = state.waits(UNWRITABLE, now).then_some(Trouble::Stalled);
        state.work.down.or(state.beats.down).or(stalled)
    }

    /// Returns how long ago the store last took a write, or was opened.
    pub(crate) fn unproven_for(&self, now: BootTime) -> Span {
        now.since(self.state().proven)
    }

    /// Returns how long contact has lasted without a break; a stalled write has already broken it.
    pub(crate) fn unbroken_for(&self, now: BootTime) -> Span {
        let state = self.state();
        match state.since {
            Some(since) if !state.waits(state.patience, now) => now.since(since),
            _ => Span::ZERO,
        }
    }

    /// Sets for how long contact must have lasted so that any silence of a plain client proves
    /// something: it could have sent heartbeats, or repeated its report, in that time.
    pub(crate) fn set_watch_max(&self, watch_max: Span) {
        self.state().watch_max = watch_max;
    }

    /// Returns the longest silence of a plain client that proves something.
    pub(crate) fn watched(&self, now: BootTime) -> Span {
        let unbroken = self.unbroken_for(now);
        if unbroken >= self.state().watch_max { Span(u64::MAX) } else { unbroken }
    }

    /// Returns how long ago the latest write of a lane ended.
    pub(crate) fn idle(&self, lane: Lane, now: BootTime) -> Span {
        self.state().lane(lane).written.map_or(Span(u64::MAX), |at| now.since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Result<(), Trouble> = Err(Trouble::Unreachable);

    const fn at(millis: u64) -> BootTime {
        BootTime(millis)
    }

    fn health() -> StoreHealth {
        let health = StoreHealth::new(at(0));
        health.set_patience(Span(500));
        health
    }

    #[test]
    fn prompt_writes_keep_contact() {
        let health = health();
        health.write_began(Lane::Work, at(1_000));
        assert!(!health.write_ended(Lane::Work, Ok(()), at(1_500)));
        assert_eq!(
            (health.unbroken_for(at(2_000)), health.idle(Lane::Work, at(2_000))),
            (Span(2_000), Span(500))
        );
    }

    #[test]
    fn write_that_is_held_up_breaks_contact_while_it_is_and_when_it_is_done() {
        let health = health();
        health.write_began(Lane::Work, at(1_000));
        assert_eq!(health.unbroken_for(at(1_501)), Span::ZERO);
        assert!(health.is_writable(at(1_501)) && !health.is_writable(at(3_001)));
        assert!(health.write_ended(Lane::Work, Ok(()), at(4_000)));
        assert!(health.is_writable(at(4_000)));
        assert_eq!(health.unbroken_for(at(4_100)), Span(100));
    }

    #[test]
    fn lock_that_new_jobs_meet_for_a_while_is_trouble_until_one_is_stored() {
        let health = health();
        health.new_jobs_ended(false, at(1_000));
        assert_eq!(health.lock_trouble(at(1_100)), None);
        health.new_jobs_ended(false, at(4_100));
        assert_eq!(health.lock_trouble(at(4_100)), Some(Trouble::Locked));
        // No job is tried any more, so the lock may be gone.
        assert_eq!(health.lock_trouble(at(19_100)), None);
        health.new_jobs_ended(false, at(20_000));
        assert_eq!(health.lock_trouble(at(20_000)), Some(Trouble::Locked));
        health.new_jobs_ended(true, at(20_100));
        assert_eq!(health.lock_trouble(at(20_100)), None);
    }

    #[test]
    fn contact_that_nobody_proved_counts_from_now() {
        let health = health();
        health.unproven(at(9_000));
        assert_eq!(health.unbroken_for(at(9_100)), Span(100));
        health.write_ended(Lane::Work, GONE, at(9_200));
        health.unproven(at(9_300));
        assert_eq!(health.unbroken_for(at(9_400)), Span::ZERO);
    }

    #[test]
    fn beats_that_are_stored_do_not_hide_that_work_is_not() {
        let health = health();
        assert!(health.write_ended(Lane::Work, GONE, at(1_000)));
        health.write_began(Lane::Beats, at(1_000));
        assert!(health.write_ended(Lane::Beats, Ok(()), at(1_010)));
        assert!(health.is_down() && health.unbroken_for(at(2_000)) == Span::ZERO);
        assert_eq!(health.trouble(at(2_000)), Some(Trouble::Unreachable));
        assert_eq!(health.idle(Lane::Beats, at(1_020)), Span(10));
    }

    /// Half an hour without a break was once wanted for the default visibility.
    #[test]
    fn contact_need_not_last_as_long_as_the_longest_silence() {
        let health = health();
        health.set_watch_max(Span(60_000));
        assert_eq!(health.watched(at(59_999)), Span(59_999));
        assert_eq!(health.watched(at(60_000)), Span(u64::MAX));
        health.unproven(at(60_000));
        assert_eq!(health.watched(at(60_001)), Span(1));
    }

    /// The server was ready while no lease was judged and nothing due was swept.
    #[test]
    fn reads_that_fail_or_never_end_are_trouble_until_one_of_the_same_kind_is_answered() {
        let health = health();
        health.read_began(OwnRead::Fleet, at(1_000));
        health.read_began(OwnRead::Due, at(1_000));
        health.read_ended(OwnRead::Fleet, true);
        assert_eq!(health.read_trouble(at(4_000)), None);
        assert_eq!(health.read_trouble(at(4_001)), Some(Trouble::Unreadable));
        health.read_ended(OwnRead::Due, false);
        health.read_ended(OwnRead::Fleet, true);
        assert_eq!(health.read_trouble(at(4_002)), Some(Trouble::Unreadable));
        health.read_ended(OwnRead::Due, true);
        assert_eq!(health.read_trouble(at(9_000)), None);
        assert!(health.is_writable(at(9_000)) && health.unbroken_for(at(9_000)) == Span(9_000));
    }

    #[test]
    fn failed_write_breaks_contact_until_one_is_done() {
        let health = health();
        health.write_began(Lane::Work, at(1_000));
        assert!(health.write_ended(Lane::Work, GONE, at(1_010)));
        assert!(health.is_down() && !health.is_writable(at(1_020)));
        assert_eq!(health.unbroken_for(at(9_000)), Span::ZERO);
        health.write_began(Lane::Work, at(9_000));
        assert!(health.write_ended(Lane::Work, Ok(()), at(9_010)));
        assert_eq!(health.unbroken_for(at(9_110)), Span(100));
    }
}
