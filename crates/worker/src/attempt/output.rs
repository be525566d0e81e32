//! Reading what a job writes, within bounds whatever it writes.
//!
//! Each stream is read 64 KiB at a time, and the reader of the chunks is never waited for: the
//! cap bounds what may gather before it does. Beyond the cap output is still read, so that the
//! job is not held up, but only counted. Beside that the last part of each stream is kept for
//! the result and for the failure's message.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Most that is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// What is kept of standard error for a message.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// How long pipes are read after the tree is empty: only a process outside the tree, which
/// was handed a pipe, can use it.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// How much output is kept.
#[derive(Debug, Clone, Copy)]
pub struct OutputLimits {
    /// Delivered as chunks, both streams together.
    pub log_bytes_max: usize,
    /// Kept of the end of standard output.
    pub result_bytes_max: usize,
}

/// Which of its two streams a job wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output, or the mark that some is missing.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes as they were written; a chunk may end anywhere.
    Chunk {
        /// Where it was written.
        stream: Stream,
        /// At most 64 KiB.
        bytes: Vec<u8>,
    },
    /// Comes after all chunks if at all: this many bytes were dropped after the cap was reached.
    Truncated {
        /// Both streams together.
        dropped: u64,
    },
    /// Comes last if at all: reading was given up, what followed is unknown.
    GivenUp {
        /// The stream that was still open.
        stream: Stream,
    },
}

/// The last part of a stream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The part that was kept.
    pub bytes: Vec<u8>,
    /// How long the whole stream was, as far as it was read.
    pub total: u64,
    /// Reading was given up before its end.
    pub cut: bool,
}

/// What was kept of an attempt's output, and what was not.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OutputSummary {
    /// The last part of standard output, from which a result is read.
    pub stdout: Captured,
    /// The last part of standard error, for the failure's message.
    pub stderr: Captured,
    /// Bytes of both beyond the limit, not delivered as chunks.
    pub dropped: u64,
    /// A pipe was still open, or output unread, when reading was given up after the end.
    pub cut: bool,
}

impl Captured {
    /// Says whether the whole stream was kept.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.cut && u64::try_from(self.bytes.len()) == Ok(self.total)
    }

    fn push(&mut self, bytes: &[u8], max: usize) {
        self.total = self.total.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let kept = bytes.get(bytes.len().saturating_sub(max)..).unwrap_or_default();
        self.bytes.extend_from_slice(kept);
        // Trim only at twice the limit, so that a flood costs one copy a byte.
        if self.bytes.len() > max.saturating_mul(2) {
            self.trim(max);
        }
    }

    fn trim(&mut self, max: usize) {
        let excess = self.bytes.len().saturating_sub(max);
        self.bytes.drain(..excess);
    }
}

/// What both readers share.
struct Budget {
    remaining: AtomicU64,
    dropped: AtomicU64,
}

impl Budget {
    /// Takes up to `wanted` bytes and returns how many were left to take.
    fn take(&self, wanted: usize) -> usize {
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let before = self
            .remaining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(wanted))
            })
            .unwrap_or_else(|left| left);
        let taken = before.min(wanted);
        self.dropped.fetch_add(wanted.saturating_sub(taken), Ordering::Relaxed);
        usize::try_from(taken).unwrap_or(usize::MAX)
    }
}

/// The readers of one attempt.
pub(super) struct Readers {
    tasks: [JoinHandle<()>; 2],
    captured: [Arc<Mutex<Captured>>; 2],
    budget: Arc<Budget>,
    chunks: mpsc::UnboundedSender<Output>,
    result_bytes_max: usize,
}

impl Readers {
    /// Starts reading both streams.
    pub(super) fn start(
        stdout: pipe::Receiver,
        stderr: pipe::Receiver,
        limits: OutputLimits,
        chunks: mpsc::UnboundedSender<Output>,
    ) -> Self {
        let cap = u64::try_from(limits.log_bytes_max).unwrap_or(u64::MAX);
        let budget =
            Arc::new(Budget { remaining: AtomicU64::new(cap), dropped: AtomicU64::new(0) });
        let captured = [Arc::default(), Arc::default()];
        let [kept_stdout, kept_stderr] = captured.clone();
        let reader = |stream, captured, captured_max| Reader {
            stream,
            captured,
            captured_max,
            budget: Arc::clone(&budget),
            chunks: chunks.clone(),
        };
        let tasks = [
            tokio::spawn(reader(Stream::Stdout, kept_stdout, limits.result_bytes_max).run(stdout)),
            tokio::spawn(reader(Stream::Stderr, kept_stderr, MESSAGE_BYTES_MAX).run(stderr)),
        ];
        Self { tasks, captured, budget, chunks, result_bytes_max: limits.result_bytes_max }
    }

    /// Reads what is left after the tree is empty, for a bounded time, then closes the pipes.
    pub(super) async fn finish(self) -> OutputSummary {
        let Self { tasks: [mut stdout, mut stderr], captured, budget, chunks, result_bytes_max } =
            self;
        // Each by itself: a pipe that someone holds open says nothing about the other.
        let (stdout_end, stderr_end) =
            tokio::join!(timeout(DRAIN_MAX, &mut stdout), timeout(DRAIN_MAX, &mut stderr));
        let cuts = [stdout_end.is_err(), stderr_end.is_err()];
        stdout.abort();
        stderr.abort();
        let dropped = budget.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            // Without a listener the number is still in the end's summary.
            let _ = chunks.send(Output::Truncated { dropped });
        }
        for (stream, is_cut) in [Stream::Stdout, Stream::Stderr].into_iter().zip(cuts) {
            if is_cut {
                let _ = chunks.send(Output::GivenUp { stream });
            }
        }
        let [stdout, stderr] = captured.map(|shared| {
            std::mem::take(&mut *shared.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let (mut stdout, mut stderr) = (stdout, stderr);
        stdout.trim(result_bytes_max);
        stderr.trim(MESSAGE_BYTES_MAX);
        [stdout.cut, stderr.cut] = cuts;
        OutputSummary { stdout, stderr, dropped, cut: cuts.contains(&true) }
    }
}

struct Reader {
    stream: Stream,
    captured: Arc<Mutex<Captured>>,
    captured_max: usize,
    budget: Arc<Budget>,
    chunks: mpsc::UnboundedSender<Output>,
}

impl Reader {
    async fn run(self, mut pipe: pipe::Receiver) {
        let mut buffer = vec![0_u8; CHUNK_BYTES];
        loop {
            let read = match pipe.read(&mut buffer).await {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::warn!(%error, stream = ?self.stream, "cannot read a job's output");
                    return;
                }
            };
            let bytes = buffer.get(..read).unwrap_or_default();
            self.captured
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(bytes, self.captured_max);
            let allowed = self.budget.take(read);
            let Some(bytes) = bytes.get(..allowed).filter(|bytes| !bytes.is_empty()) else {
                continue;
            };
            // Reading goes on without a listener.
            let chunk = Output::Chunk { stream: self.stream, bytes: bytes.to_vec() };
            let _ = self.chunks.send(chunk);
        }
    }
}
