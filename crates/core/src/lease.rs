//! Leases: who may speak for an attempt, and when time alone may end that right.
//!
//! A native worker holds one lease for all its attempts and renews it by beating. The
//! store's clock is a necessary judge, not a sufficient one (I8): the sweeping server
//! must itself have watched the same renewal number for the whole length, on its own
//! CLOCK_BOOTTIME, without losing contact with the store. So a restart, an outage or a
//! jump of a clock lapses no worker.
//!
//! ```text
//! first seen ──renewed──▶ seen again … ──unchanged for its length──▶ may lapse
//! any of them ──contact with the store lost, or its row held──▶ forgotten
//! ```
//!
//! A renewal that does not reach its worker is useless: the worker ends what it must by its
//! own clock, and the server would wait forever. So a worker that was welcomed and has sent
//! nothing since, for a whole lease, is not renewed any more.

mod closings;

use std::collections::HashMap;

use self::closings::Closings;
pub use self::closings::{FLOOD_WINDOW, is_flood};
use crate::id::{Epoch, JobId, WorkerId};
use crate::time::{BootTime, Span};
use crate::worker::liveness::Liveness;

/// What one server has itself seen of the workers' renewals.
#[derive(Debug, Default)]
pub struct Watch {
    seen: HashMap<WorkerId, Seen>,
    /// Since when a worker's welcomes have not been followed by a word.
    unheard: HashMap<WorkerId, BootTime>,
    closings: Closings,
}

/// Stands for the renewal number of a worker that was not read from the store yet; real
/// ones start at 1.
const UNKNOWN: u64 = 0;

#[derive(Clone, Copy, Debug)]
struct Seen {
    renewal: u64,
    since: BootTime,
    dropped: Option<BootTime>,
}

/// What a read of the store showed for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// How often the worker has renewed its lease.
    pub renewal: u64,
    /// What the store knows of its connection and its lease.
    pub liveness: Liveness,
    /// When this server began the read.
    pub asked: BootTime,
}

/// How long a worker may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The lease: heartbeat interval times the staleness multiplier.
    pub lease: Span,
    /// After a connection dropped without goodbye (`worker.reconnect_window`).
    pub reconnect_window: Span,
    /// After the worker's system closed both of its connections (`worker.closed_window`).
    pub closed_window: Span,
    /// How many workers are attached to this server: if many of them drop at once, that is a
    /// proxy's end or the network's, and the closed window does not count.
    pub attached: usize,
}

/// Which of a worker's leases may be ended now, by what this server saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// None yet; look again no later than this.
    WaitUntil(BootTime),
    /// The reconnect window has passed after a drop: what may overlap may move.
    WindowPassed,
    /// The whole lease has passed: everything may move.
    LeasePassed,
}

impl Watch {
    /// Notes what the store showed for a worker, at `now`.
    ///
    /// A renewal takes a drop back only if it came after it. One that came before the drop may
    /// well be seen for the first time now, and so may a worker that was live before it: only a
    /// read that began after the drop shows what came of it.
    pub fn observe(&mut self, worker: WorkerId, stored: StoredLease, now: BootTime) {
        let StoredLease { renewal, liveness, asked } = stored;
        let seen = self.seen.entry(worker).or_insert(Seen { renewal, since: now, dropped: None });
        // A number read from the store may be older than one seen since: it says nothing.
        if seen.renewal == UNKNOWN {
            seen.renewal = renewal;
        } else if seen.renewal < renewal {
            *seen = Seen { renewal, since: now, dropped: seen.dropped };
        }
        if liveness == Liveness::Live {
            seen.dropped = seen.dropped.filter(|dropped| asked <= *dropped);
        }
    }

    /// Notes that this server saw the worker's connection drop without goodbye.
    pub fn dropped(&mut self, worker: WorkerId, now: BootTime) {
        let unseen = Seen { renewal: UNKNOWN, since: now, dropped: None };
        let seen = self.seen.entry(worker).or_insert(unseen);
        seen.dropped = seen.dropped.or(Some(now));
    }

    /// Notes that a heartbeat of a worker came over this connection.
    pub fn beats(&mut self, worker: WorkerId, connection: u64) {
        self.closings.beats(worker, connection);
    }

    /// Notes that the other side closed a connection over which a worker's heartbeats came.
    pub fn beats_closed(&mut self, worker: WorkerId, connection: u64, now: BootTime) {
        self.closings.beats_closed(worker, connection, now);
    }

    /// Notes that a worker's session ended without goodbye, and whether the other side closed its
    /// connection.
    pub fn session_ended(&mut self, worker: WorkerId, closed: bool, now: BootTime) {
        self.closings.session_ended(worker, closed, now);
    }

    /// Returns whether the worker's system seems to have ended it: it closed both connections at
    /// the same moment, and not those of many other workers as well.
    #[must_use]
    pub fn is_closed(&self, worker: WorkerId, attached: usize) -> bool {
        self.closings.both_closed(worker, attached).is_some()
    }

    /// Notes that the worker is attached again, here or at another server.
    pub fn attached(&mut self, worker: WorkerId) {
        if let Some(seen) = self.seen.get_mut(&worker) {
            seen.dropped = None;
        }
        self.closings.attached(worker);
    }

    /// Notes that a worker was sent a welcome; whether it arrives is not known yet.
    pub fn welcomed(&mut self, worker: WorkerId, now: BootTime) {
        self.unheard.entry(worker).or_insert(now);
    }

    /// Notes that a worker said something after its welcome: it hears us.
    pub fn heard(&mut self, worker: WorkerId) {
        self.unheard.remove(&worker);
    }

    /// Returns whether a worker seems to hear nothing from the server: for a whole lease
    /// it has been welcomed, once or many times, and has said nothing since.
    #[must_use]
    pub fn is_unheard(&self, worker: WorkerId, lease: Span, now: BootTime) -> bool {
        self.unheard.get(&worker).is_some_and(|since| since.after(lease) <= now)
    }

    /// Forgets a worker that is no longer live.
    pub fn forget(&mut self, worker: WorkerId) {
        self.seen.remove(&worker);
        self.unheard.remove(&worker);
        self.closings.forget(worker);
    }

    /// Starts watching one worker again: nothing could be stored about it, so its silence may
    /// have been ours.
    pub fn unproven(&mut self, worker: WorkerId) {
        self.forget(worker);
    }

    /// Starts watching all workers again: contact with the store was lost, so silence may
    /// have been ours.
    pub fn lost_contact(&mut self) {
        self.seen.clear();
        self.unheard.clear();
        self.closings.forget_ends();
    }

    /// Returns whether a worker's connection was seen to drop, here, and was not restored.
    #[must_use]
    pub fn is_dropped(&self, worker: WorkerId) -> bool {
        self.seen.get(&worker).is_some_and(|seen| seen.dropped.is_some())
    }

    /// Returns whether a worker has missed beats: it was silent for half its lease.
    #[must_use]
    pub fn is_silent(&self, worker: WorkerId, lease: Span, now: BootTime) -> bool {
        let half = Span(lease.0.checked_div(2).unwrap_or_default());
        self.seen.get(&worker).is_some_and(|seen| seen.since.after(half) <= now)
    }

    /// Returns whether a worker's lease had ended before this server began to watch it. `age` is
    /// the time since its last heartbeat. No server took heartbeats when it ended: the worker may
    /// have lived, and ended its attempts for want of a lease.
    #[must_use]
    pub fn began_too_late(&self, worker: WorkerId, lease: Span, age: Span, now: BootTime) -> bool {
        self.seen.get(&worker).is_some_and(|seen| {
            let unwatched = age.0.saturating_sub(now.since(seen.since).0);
            unwatched >= lease.0
        })
    }

    /// Judges one worker's silence at `now`.
    #[must_use]
    pub fn judge(&self, worker: WorkerId, patience: Patience, now: BootTime) -> Expiry {
        let Some(seen) = self.seen.get(&worker) else {
            return Expiry::WaitUntil(now.after(patience.lease));
        };
        let lease_end = seen.since.after(patience.lease);
        if lease_end <= now {
            return Expiry::LeasePassed;
        }
        let window_end = seen.dropped.map(|at| {
            let end = at.after(patience.reconnect_window);
            let closed = self.closings.both_closed(worker, patience.attached);
            closed.map_or(end, |at| end.min(at.after(patience.closed_window)))
        });
        match window_end {
            Some(window_end) if window_end <= now => Expiry::WindowPassed,
            Some(window_end) => Expiry::WaitUntil(window_end.min(lease_end)),
            None => Expiry::WaitUntil(lease_end),
        }
    }
}

/// Returns a digest of a set of held attempts, whatever their order.
///
/// A heartbeat carries it so that worker and server find out that they disagree without
/// sending the list: the exclusive-or of one mixed word for each attempt.
#[must_use]
pub fn in_flight_digest(in_flight: impl IntoIterator<Item = (JobId, Epoch)>) -> u64 {
    in_flight.into_iter().fold(0, |digest, (job, epoch)| {
        let (high, low) = job.0.as_u64_pair();
        digest ^ mix(mix(high ^ epoch.0).wrapping_add(low))
    })
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every input bit reaches
/// every output bit.
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
