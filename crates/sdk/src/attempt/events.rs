//! What attempts tell the engine, and what they share on the way there.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use outlast_core::time::BootTime;
use outlast_proto::v1;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::delivery::AttemptId;
use crate::outcome::Outcome;

/// Output of all attempts together that may wait to be sent while the server is slow.
pub(crate) const LOG_BYTES_WAITING: usize = 32 * 1024 * 1024;

/// The line in the place of output that was dropped.
pub(crate) fn dropped_mark(bytes: impl std::fmt::Display) -> String {
    format!("[{bytes} bytes of output were dropped here]\n")
}

/// What attempts tell the engine, in order for each attempt.
#[derive(Debug)]
pub(crate) enum AttemptEvent {
    /// Output, and how many bytes of room it took.
    Log(AttemptId, v1::LogChunk, usize),
    /// There is a newer checkpoint; the newest is taken out when this is heard.
    Checkpoint(AttemptId, Arc<LatestCheckpoint>),
    Started(AttemptId),
    /// It runs this version of its pack.
    Pack(AttemptId, Arc<str>),
    Ended(AttemptId, Outcome),
    /// Its handler is gone, but its work may not have ended.
    Unstoppable(AttemptId),
    /// Work of an attempt that was over has ended: a slot is free again.
    LeftoverEnded,
}

/// The newest checkpoint that the engine has not heard of: a handler that writes them faster
/// than they can be sent fills one place and no more.
#[derive(Debug, Default)]
pub(crate) struct LatestCheckpoint(Mutex<Option<Bytes>>);

impl LatestCheckpoint {
    /// Stores it; true if there was none, so that the engine must be notified.
    pub(crate) fn put(&self, bytes: Bytes) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(bytes).is_none()
    }

    pub(crate) fn take(&self) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What all attempts of a worker share.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) events: mpsc::UnboundedSender<AttemptEvent>,
    /// Bytes of output that may still be queued.
    pub(crate) log_room: Arc<Semaphore>,
    /// Whether a session is attached.
    pub(crate) attached: watch::Sender<bool>,
    /// Attempts that are over while work of theirs, on a thread say, goes on. Each keeps its
    /// slot.
    pub(crate) leftovers: AtomicU32,
    /// When attempts that forbid overlap must be dead.
    pub(crate) deadline: watch::Sender<BootTime>,
}

impl Outlet {
    pub(crate) fn send(&self, event: AttemptEvent) {
        // Closed only when the worker has left without waiting for this attempt.
        let _ = self.events.send(event);
    }
}
