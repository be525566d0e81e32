//! What everyone may read of a session: the event loop writes it, and heartbeats add how long
//! ago the worker polled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use outlast_core::id::WorkerId;
use outlast_core::time::Span;

use crate::engine::profile::Profile;

/// A worker that has not polled for this long gets no new jobs.
pub(crate) const NOT_POLLING_AFTER: Span = Span::from_secs(10);

/// Whether a worker takes new jobs, and if not, why. Ordered from most to least able.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    /// It takes new jobs.
    Active,
    /// Its connection is lost; it may come back before its lease is over.
    Away,
    /// It sends heartbeats, but has not polled for this long, as its last server signalled: it may
    /// poll again by now.
    NotPollingThere(Span),
    /// It sends heartbeats, but has not polled for this long.
    NotPolling(Span),
    /// It takes no new jobs for now.
    Quiet,
    /// It takes none because it has found itself unhealthy.
    Unhealthy,
    /// It is about to exit.
    Draining,
    /// It has lapsed or left.
    Gone,
}

/// The current facts about a session.
#[derive(Debug)]
pub(crate) struct SessionFacts {
    pub(crate) worker: WorkerId,
    pub(crate) name: Arc<str>,
    pub(crate) profile: Arc<Profile>,
    running: AtomicBool,
    /// How many attempts it holds.
    in_flight: AtomicUsize,
    /// Digest of the attempts it holds.
    digest: AtomicU64,
    slots: AtomicUsize,
    /// How long ago the worker polled, by its latest heartbeat, in milliseconds.
    poll_age: AtomicU64,
}

impl SessionFacts {
    pub(crate) fn new(worker: WorkerId, name: &str, profile: Arc<Profile>) -> Self {
        Self {
            worker,
            name: name.into(),
            profile,
            running: AtomicBool::new(true),
            in_flight: AtomicUsize::new(0),
            digest: AtomicU64::new(0),
            slots: AtomicUsize::new(0),
            poll_age: AtomicU64::new(0),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Acquire)
    }

    /// Records how many attempts the session holds, and the digest of those that changed.
    pub(crate) fn set_in_flight(&self, in_flight: usize, changed: u64) {
        self.in_flight.store(in_flight, Ordering::Relaxed);
        self.digest.fetch_xor(changed, Ordering::AcqRel);
    }

    /// Returns how many attempts the worker runs at a time.
    pub(crate) fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slots(&self, slots: u32) {
        self.slots.store(usize::try_from(slots).unwrap_or(usize::MAX), Ordering::Relaxed);
    }

    pub(crate) fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Relaxed);
    }

    /// Returns how long ago the worker polled, if that is too long ago.
    pub(crate) fn not_polling_for(&self) -> Option<Span> {
        let age = Span(self.poll_age.load(Ordering::Relaxed));
        (age >= NOT_POLLING_AFTER).then_some(age)
    }

    /// Records a heartbeat's poll age; returns whether that changes whether it gets new jobs.
    pub(crate) fn set_poll_age(&self, age: Span) -> bool {
        let before = self.poll_age.swap(age.0, Ordering::Relaxed);
        (before >= NOT_POLLING_AFTER.0) != (age >= NOT_POLLING_AFTER)
    }

    pub(crate) fn condition(&self) -> Condition {
        match self.not_polling_for() {
            _ if !self.running.load(Ordering::Relaxed) => Condition::Quiet,
            Some(age) => Condition::NotPolling(age),
            None => Condition::Active,
        }
    }
}
