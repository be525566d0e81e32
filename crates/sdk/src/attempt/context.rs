//! An attempt's side of the worker: orders it gets, and what it reports.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use outlast_core::limits::{CHECKPOINT_BYTES_MAX, LOG_BYTES_MAX, LOG_CHUNK_BYTES_MAX};
use outlast_core::time::BootTime;
use outlast_proto::v1;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::events::{AttemptEvent, LatestCheckpoint, Outlet, dropped_mark};
use super::guard::AttemptGuard;
use crate::delivery::AttemptId;
use crate::outcome::StopReason;

/// The cost of a chunk besides its bytes: many small ones must not fill memory either.
const LOG_CHUNK_COST: usize = 256;

/// How long output waits for room while there is a session to send it on.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// Which stream a piece of output belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Messages of the worker about the attempt.
    Worker,
}

/// One attempt's side of the worker.
#[derive(Debug)]
pub struct AttemptContext {
    attempt: AttemptId,
    stop: watch::Receiver<Option<StopReason>>,
    deadline: Option<watch::Receiver<BootTime>>,
    outlet: Arc<Outlet>,
    chunks: AtomicU32,
    dropped: AtomicU64,
    /// Bytes sent, without the worker's own lines.
    printed: AtomicUsize,
    checkpoint: Arc<LatestCheckpoint>,
    /// While one is held, the attempt's work may go on. The last field: what its drop reports
    /// comes after everything else.
    guard: Arc<AttemptGuard>,
}

impl AttemptContext {
    pub(crate) fn new(
        attempt: AttemptId,
        stop: watch::Receiver<Option<StopReason>>,
        guard: &Arc<AttemptGuard>,
    ) -> Self {
        let outlet = guard.outlet();
        Self {
            attempt,
            stop,
            deadline: guard.overlap_forbidden().then(|| outlet.deadline.subscribe()),
            outlet: Arc::clone(outlet),
            chunks: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
            printed: AtomicUsize::new(0),
            checkpoint: Arc::default(),
            guard: Arc::clone(guard),
        }
    }

    /// Which attempt this is.
    #[must_use]
    pub const fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Why the attempt must end, if it must.
    #[must_use]
    pub fn stop_reason(&self) -> Option<StopReason> {
        *self.stop.borrow()
    }

    /// Whether it is over while some of its work continues: its handler was dropped, or has
    /// returned and left something behind.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.guard.is_over()
    }

    /// Watches for a stop order, without holding on to the attempt.
    pub(crate) fn stop_seen(&self) -> watch::Receiver<Option<StopReason>> {
        self.stop.clone()
    }

    /// A token that is cancelled when the attempt must end, or is over while work of it goes
    /// on. It does not hold on to the attempt.
    pub(crate) fn cancellation(&self, runtime: &Handle) -> CancellationToken {
        let (token, is_new) = self.guard.token();
        if is_new {
            let (mut stop, token) = (self.stop.clone(), token.clone());
            runtime.spawn(async move {
                tokio::select! {
                    // An engine that is gone can order nothing, and its attempts are over.
                    _ = stop.wait_for(Option::is_some) => token.cancel(),
                    () = token.cancelled() => {}
                }
            });
        }
        token
    }

    /// Waits until the attempt must end. Safe to drop while waiting.
    pub async fn stopped(&self) -> StopReason {
        self.stop_at_least(StopReason::Cancelled).await
    }

    /// Waits until the attempt must end at once. Safe to drop while waiting.
    pub async fn forced(&self) {
        self.stop_at_least(StopReason::Forced).await;
    }

    async fn stop_at_least(&self, least: StopReason) -> StopReason {
        let mut stop = self.stop.clone();
        let reached = stop.wait_for(|reason| reason.is_some_and(|reason| reason >= least)).await;
        match reached.map(|reason| *reason) {
            Ok(Some(reason)) => reason,
            // The engine is gone: no more orders will come.
            Ok(None) | Err(_) => pending().await,
        }
    }

    /// When the attempt must be dead unless the lease is renewed; `None` where overlap is
    /// allowed.
    #[must_use]
    pub fn deadline(&self) -> Option<BootTime> {
        self.deadline.as_ref().map(|deadline| *deadline.borrow())
    }

    /// Waits for a later deadline than `than`; forever where overlap is allowed.
    pub async fn deadline_after(&self, than: BootTime) -> BootTime {
        let Some(deadline) = &self.deadline else { return pending().await };
        let mut deadline = deadline.clone();
        let later = deadline.wait_for(|at| *at > than).await.map(|at| *at);
        match later {
            Ok(later) => later,
            Err(_) => pending().await,
        }
    }

    /// Reports the start at once, without waiting to see how long the attempt lasts.
    pub fn started(&self) {
        self.outlet.send(AttemptEvent::Started(self.attempt));
    }

    /// Reports the digest of the pack that the attempt runs; it is kept with the attempt.
    pub fn runs_pack(&self, digest: impl Into<Arc<str>>) {
        self.outlet.send(AttemptEvent::Pack(self.attempt, digest.into()));
    }

    /// Stores a checkpoint for the next attempt. Returns false if it is too large.
    pub fn checkpoint(&self, bytes: impl Into<Bytes>) -> bool {
        let bytes = bytes.into();
        let fits = bytes.len() <= CHECKPOINT_BYTES_MAX;
        if fits && self.checkpoint.put(bytes) {
            self.outlet.send(AttemptEvent::Checkpoint(self.attempt, Arc::clone(&self.checkpoint)));
        }
        fits
    }

    /// Sends a piece of output without waiting: if the buffer is full it is dropped, and a mark
    /// says how much is missing.
    pub fn log_now(&self, stream: LogStream, bytes: impl Into<Bytes>) {
        let mut bytes: Bytes = bytes.into();
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(LOG_CHUNK_BYTES_MAX));
            let found = self.take_room(cost(&piece));
            self.send_or_drop(stream, piece, found);
        }
    }

    /// Sends a piece of output. It waits for a short time at most: if the buffer stays full it is
    /// dropped, and a mark says how much is missing.
    pub async fn log(&self, stream: LogStream, bytes: impl Into<Bytes>) {
        let mut bytes: Bytes = bytes.into();
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(LOG_CHUNK_BYTES_MAX));
            let found = self.find_room(cost(&piece)).await;
            self.send_or_drop(stream, piece, found);
        }
    }

    fn send_or_drop(&self, stream: LogStream, piece: Bytes, found_room: bool) {
        let room = cost(&piece);
        if found_room && self.may_be_kept(stream, piece.len()) {
            self.mark_dropped();
            self.send_chunk(stream, piece, room);
        } else {
            if found_room {
                self.outlet.log_room.add_permits(room);
            }
            let lost = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.dropped.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// A server keeps so much of an attempt's output and passes over the rest without a word. The
    /// worker's own lines are always kept.
    fn may_be_kept(&self, stream: LogStream, bytes: usize) -> bool {
        let after =
            |printed: usize| printed.checked_add(bytes).filter(|printed| *printed <= LOG_BYTES_MAX);
        stream == LogStream::Worker
            || self.printed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).is_ok()
    }

    /// Takes room that is there now. It comes back when the server has stored the piece: see the
    /// engine's outbox.
    fn take_room(&self, bytes: usize) -> bool {
        let Ok(wanted) = u32::try_from(bytes) else { return false };
        match self.outlet.log_room.try_acquire_many(wanted) {
            Ok(room) => {
                room.forget();
                true
            }
            Err(_) => false,
        }
    }

    async fn find_room(&self, bytes: usize) -> bool {
        if self.take_room(bytes) {
            return true;
        }
        let Ok(wanted) = u32::try_from(bytes) else { return false };
        if !*self.outlet.attached.borrow() {
            return false;
        }
        match tokio::time::timeout(LOG_PATIENCE, self.outlet.log_room.acquire_many(wanted)).await {
            Ok(Ok(room)) => {
                room.forget();
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    fn mark_dropped(&self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.send_chunk(LogStream::Worker, dropped_mark(dropped).into(), 0);
        }
    }

    fn send_chunk(&self, stream: LogStream, bytes: Bytes, room: usize) {
        let stream = match stream {
            LogStream::Stdout => v1::LogStream::Stdout,
            LogStream::Stderr => v1::LogStream::Stderr,
            LogStream::Worker => v1::LogStream::Worker,
        };
        let chunk = v1::LogChunk {
            attempt: Some(self.attempt.to_wire()),
            n: self.chunks.fetch_add(1, Ordering::Relaxed),
            stream: stream.into(),
            bytes,
        };
        self.outlet.send(AttemptEvent::Log(self.attempt, chunk, room));
    }
}

const fn cost(piece: &Bytes) -> usize {
    piece.len().saturating_add(LOG_CHUNK_COST)
}

/// A mark at the very end still says what is missing.
impl Drop for AttemptContext {
    fn drop(&mut self) {
        self.mark_dropped();
    }
}
