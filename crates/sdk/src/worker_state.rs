//! State shared by the engine and the heartbeat thread.
//!
//! The lock is held for a few instructions only, never across a wait: a heartbeat is
//! answered truthfully even while the engine's runtime is blocked.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outlast_core::id::WorkerId;
use outlast_core::lease::in_flight_digest;
use outlast_core::time::{BootTime, Span};
use outlast_proto::v1;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::clock::boot_now;
use crate::delivery::AttemptId;

/// The heartbeat interval and the lease that the server has put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) interval: Span,
    pub(crate) lease: Span,
}

#[derive(Debug)]
pub(crate) struct WorkerState {
    reported: Mutex<Reported>,
    last_turn: AtomicU64,
    /// When the lease ends at the latest, by what this worker knows.
    lease_end: AtomicU64,
    /// Attempts that forbid overlap and are running.
    forbidden: AtomicU32,
    pub(crate) forbidden_began: Notify,
    deadline: watch::Sender<BootTime>,
}

/// What a heartbeat reports.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) worker: WorkerId,
    /// Registered, and not known to have lapsed: only then is there a lease to renew.
    pub(crate) live: bool,
    pub(crate) phase: v1::Phase,
    pub(crate) free_slots: u32,
    /// Why nothing can be run; empty if it can.
    pub(crate) unhealthy: String,
    pub(crate) terms: Terms,
    /// The server sees another set of held attempts: it wants the list.
    pub(crate) send_held: bool,
    in_flight: HashSet<AttemptId>,
    digest: u64,
}

impl WorkerState {
    /// The deadline goes to `deadline` whenever the lease is renewed.
    pub(crate) fn new(terms: Terms, deadline: watch::Sender<BootTime>) -> Arc<Self> {
        Arc::new(Self {
            reported: Mutex::new(Reported {
                worker: new_identity(),
                live: false,
                phase: v1::Phase::Running,
                free_slots: 0,
                unhealthy: String::new(),
                terms,
                send_held: false,
                in_flight: HashSet::new(),
                digest: 0,
            }),
            last_turn: AtomicU64::new(boot_now().0),
            lease_end: AtomicU64::new(0),
            forbidden: AtomicU32::new(0),
            forbidden_began: Notify::new(),
            deadline,
        })
    }

    pub(crate) fn reported(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the engine's loop turned.
    pub(crate) fn turned(&self, now: BootTime) {
        self.last_turn.store(now.0, Ordering::Relaxed);
    }

    pub(crate) fn turn_age(&self, now: BootTime) -> Span {
        now.since(BootTime(self.last_turn.load(Ordering::Relaxed)))
    }

    /// Notes that a renewal sent at `sent` was accepted.
    pub(crate) fn renewed(&self, sent: BootTime, terms: Terms) {
        self.reported().terms = terms;
        let end = sent.after(terms.lease);
        // Answers may overtake each other; an older one takes nothing away.
        let before = self.lease_end.fetch_max(end.0, Ordering::AcqRel);
        if before < end.0 {
            self.deadline.send_replace(BootTime(end.0.saturating_sub(margin(terms.lease).0)));
        }
    }

    pub(crate) fn forbidden_run(&self, count: u32) {
        if self.forbidden.swap(count, Ordering::AcqRel) == 0 && count > 0 {
            self.forbidden_began.notify_one();
        }
    }

    /// When the process must have ended unless the lease is renewed before; `None` while
    /// nothing runs that forbids overlap, or no lease is held. Later than the deadline that
    /// attempts see: an attempt that keeps that one never sees this one.
    pub(crate) fn last_instant(&self) -> Option<BootTime> {
        if !self.runs_forbidden() {
            return None;
        }
        let lease = self.reported().terms.lease;
        let end = self.lease_end();
        // The engine deals with a lease that was taken away.
        (end > BootTime::default()).then(|| BootTime(end.0.saturating_sub(margin(lease).0 / 2)))
    }

    pub(crate) fn runs_forbidden(&self) -> bool {
        self.forbidden.load(Ordering::Acquire) > 0
    }

    /// Forgets the lease: the worker has lapsed.
    pub(crate) fn lease_lost(&self) {
        self.lease_end.store(0, Ordering::Release);
    }

    pub(crate) fn lease_end(&self) -> BootTime {
        BootTime(self.lease_end.load(Ordering::Acquire))
    }

    /// Makes the next beat, or none while there is nothing to renew.
    pub(crate) fn beat(&self, now: BootTime) -> Option<(WorkerId, v1::BeatRequest)> {
        let mut reported = self.reported();
        if !reported.live {
            return None;
        }
        let keys =
            if std::mem::take(&mut reported.send_held) { reported.in_flight() } else { Vec::new() };
        let request = v1::BeatRequest {
            worker_id: identity_bytes(reported.worker),
            in_flight: u32::try_from(reported.in_flight.len()).unwrap_or(u32::MAX),
            held_digest: reported.digest,
            free_slots: reported.free_slots,
            last_poll_age_ms: self.turn_age(now).0,
            held: keys,
            phase: reported.phase.into(),
            unhealthy: reported.unhealthy.clone(),
        };
        Some((reported.worker, request))
    }
}

impl Reported {
    pub(crate) fn hold(&mut self, attempt: AttemptId) {
        if self.in_flight.insert(attempt) {
            self.digest ^= in_flight_digest([(attempt.job, attempt.epoch)]);
        }
    }

    pub(crate) fn release(&mut self, attempt: AttemptId) {
        if self.in_flight.remove(&attempt) {
            self.digest ^= in_flight_digest([(attempt.job, attempt.epoch)]);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn in_flight(&self) -> Vec<v1::AttemptKey> {
        self.in_flight.iter().map(|attempt| attempt.to_wire()).collect()
    }

    /// Becomes another worker, which holds nothing.
    pub(crate) fn reset_identity(&mut self) {
        self.worker = new_identity();
        self.live = false;
        self.in_flight.clear();
        self.digest = 0;
        self.send_held = false;
    }
}

/// How long before the lease ends an attempt that forbids overlap is killed: a SIGKILL and
/// its proof take milliseconds, a busy host may need more.
pub(crate) fn margin(lease: Span) -> Span {
    Span((lease.0 / 4).min(1000))
}

pub(crate) fn identity_bytes(worker: WorkerId) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(worker.0.as_bytes())
}

fn new_identity() -> WorkerId {
    WorkerId(Uuid::now_v7())
}
