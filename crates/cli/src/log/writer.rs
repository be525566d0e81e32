//! Log lines of processes that must not wait for whatever reads their stderr.
//!
//! ```text
//! any thread ──line──▶ queue, bounded in bytes ──thread of its own──▶ stderr
//!                        └─ full: the line is dropped and counted, which is said later
//! ```
//!
//! A reader that has stopped, such as a pager or a stalled log driver, holds up that thread alone.
//! What is queued at the end is written before the process exits, but not for long.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use outlast_cli_core::clock::{self, Moment};

/// Bytes that may wait: seconds of the busiest log, and little memory.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of one write. A reader that has stopped is noticed at the first one that it does not take.
const PIECE_BYTES: usize = 4096;

/// How long an exit waits for lines that are still queued.
const EXIT_MAX: Duration = Duration::from_millis(500);

/// Time from one line about dropped lines to the next, while a slow reader lags behind.
const SAY_AFTER: Duration = Duration::from_secs(1);

/// The thread formats a line now and then, and does nothing else.
const STACK_BYTES: usize = 256 * 1024;

/// The queue of this process, if its lines go through one.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Starts the thread that writes. From here on [`lines`] go through the queue.
pub(super) fn start() -> io::Result<()> {
    if QUEUE.get().is_some() {
        return Ok(());
    }
    let writer = std::thread::Builder::new().name("log".to_owned()).stack_size(STACK_BYTES);
    // Signals are for the threads that act on them.
    outlast_worker::signals::out_of_reach(|| {
        writer.spawn(|| QUEUE.get_or_init(Queue::default).write_to(&mut io::stderr()))
    })?;
    QUEUE.get_or_init(Queue::default);
    outlast_worker::at_exit(flush);
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        let captured = trace.status() == std::backtrace::BacktraceStatus::Captured;
        let trace = if captured { format!("\n{trace}") } else { String::new() };
        lines().write_all(format!("{panic}{trace}\n").as_bytes()).unwrap_or_default();
    }));
    Ok(())
}

/// Writes what is queued, or as much as is read in time.
extern "C" fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.await_written(EXIT_MAX);
    }
}

/// Where a line goes: one call of `write_all` is one line.
pub(super) fn lines() -> Lines {
    QUEUE.get().map_or_else(|| Lines::Direct(io::stderr()), Lines::Queued)
}

/// A writer of lines.
#[derive(Debug)]
pub(super) enum Lines {
    /// Waits for the reader.
    Direct(io::Stderr),
    /// Never waits.
    Queued(&'static Queue),
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Direct(stderr) => stderr.write(bytes),
            Self::Queued(queue) => {
                queue.push(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Direct(stderr) => stderr.flush(),
            Self::Queued(_) => Ok(()),
        }
    }
}

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Box<[u8]>>,
    /// Of all lines, and of what is being written.
    bytes: usize,
    /// Lines that did not fit since that was said last.
    dropped: u64,
}

impl Queue {
    fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > QUEUE_BYTES_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        self.changed.notify_all();
    }

    /// Writes lines for as long as the process runs. Without a reader they are lost.
    fn write_to(&self, target: &mut impl Write) {
        let mut said = clock::moment();
        loop {
            for piece in self.next_lines().chunks(PIECE_BYTES) {
                target.write_all(piece).unwrap_or_default();
                self.lock().bytes -= piece.len();
                self.changed.notify_all();
            }
            let dropped = self.dropped_since(said);
            if dropped > 0 {
                said = clock::moment();
                tracing::warn!(dropped, "log lines were dropped: stderr was not read");
                // Not before: an exit waits until it is said.
                self.lock().dropped -= dropped;
            }
        }
    }

    /// How many lines were dropped, if it is time to say so: the reader has caught up, or is slow.
    fn dropped_since(&self, said: Moment) -> u64 {
        let waiting = self.lock();
        let is_time = waiting.lines.is_empty() || clock::moment().since(said) >= SAY_AFTER;
        if is_time { waiting.dropped } else { 0 }
    }

    /// Waits for lines and takes as many as make a write worth while.
    fn next_lines(&self) -> Vec<u8> {
        let mut waiting = self.lock();
        while waiting.lines.is_empty() {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let mut taken = Vec::new();
        while taken.len() < PIECE_BYTES
            && let Some(line) = waiting.lines.pop_front()
        {
            taken.extend_from_slice(&line);
        }
        taken
    }

    /// Waits until everything is written, at most for `limit`.
    fn await_written(&self, limit: Duration) {
        let began = clock::moment();
        let mut waiting = self.lock();
        while (waiting.bytes > 0 || waiting.dropped > 0)
            && let Some(left) = limit.checked_sub(clock::moment().since(began))
        {
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::time::Duration;

    use super::{QUEUE_BYTES_MAX, Queue};

    // A thread that logged waited for whatever reads stderr.
    #[test]
    fn lines_that_do_not_fit_are_counted_and_the_others_come_out_in_order() {
        let queue: &'static Queue = Box::leak(Box::default());
        let (mut reader, mut stuck) = io::pipe().unwrap();
        let line = |n: usize| format!("{n:0>127}\n").into_bytes();
        let fits = QUEUE_BYTES_MAX / line(0).len();
        for n in 0..fits + 9 {
            queue.push(&line(n));
        }
        assert_eq!(queue.lock().dropped, 9);
        std::thread::spawn(move || queue.write_to(&mut stuck));
        queue.await_written(Duration::from_millis(20));
        assert!(queue.lock().bytes > 0, "nothing reads it");
        let mut all = vec![0; fits * line(0).len()];
        reader.read_exact(&mut all).unwrap();
        assert!((0..fits).flat_map(line).eq(all), "all that fitted, once each");
        queue.await_written(Duration::from_secs(10));
        let left = queue.lock();
        assert_eq!((left.bytes, left.lines.len()), (0, 0));
    }
}
