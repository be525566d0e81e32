//! Log lines of processes that must not wait for whatever reads their stderr.
//!
//! ```text
//! any thread ──line──▶ queue, bounded in bytes ──thread of its own──▶ stderr
//!                        └─ full: the line is dropped and counted, which is said later
//! ```
//!
//! A reader that has stopped, such as a pager or a stalled log driver, holds up that thread alone.
//! What is queued at the end is written before the process exits, but not for long.
//!
//! Several processes of a worker write to one pipe. A write holds whole lines, and as few bytes as a
//! pipe takes in one piece, so that lines of one are not cut by lines of another.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use outlast_cli_core::clock::{self, Moment};
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes that may wait: seconds of the busiest log, and little memory.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of one write, unless one line is longer: `PIPE_BUF`, which a pipe takes in one piece.
const WRITE_BYTES: usize = 4096;

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

/// Writes what is queued, or as much as is read in time, before another program takes this one's
/// place.
pub(super) fn write_queued() {
    flush();
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
    fn write_to(&self, target: &mut (impl Write + AsFd)) {
        let mut said = clock::moment();
        let mut output = Output { target, lost: 0, is_open: false };
        loop {
            let (lines, count) = self.next_lines();
            let missed = output.write(&lines, count);
            let mut waiting = self.lock();
            waiting.bytes -= lines.len();
            // Not while nothing can be written: it could not be said either.
            waiting.dropped += missed;
            drop(waiting);
            self.changed.notify_all();
            let dropped = self.dropped_since(said);
            if dropped > 0 {
                said = clock::moment();
                tracing::warn!(dropped, "log lines were dropped: stderr did not take them");
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

    /// Waits for lines, and takes as many as fit into one write; returns how many these are.
    fn next_lines(&self) -> (Vec<u8>, u64) {
        let mut waiting = self.lock();
        while waiting.lines.is_empty() {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut taken, mut count) = (Vec::new(), 0);
        while let Some(line) = waiting.lines.front()
            && (count == 0 || taken.len() + line.len() <= WRITE_BYTES)
        {
            taken.extend_from_slice(line);
            waiting.lines.pop_front();
            count += 1;
        }
        (taken, count)
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

/// Where lines are written, and what could not be.
struct Output<'a, T> {
    target: &'a mut T,
    /// Lines that could not be written, as on a full disk, and were not counted as dropped yet.
    lost: u64,
    /// Whether a line was begun and could not be ended.
    is_open: bool,
}

impl<T: Write + AsFd> Output<'_, T> {
    /// Writes so many lines. Returns how many were lost before, once lines get through again.
    fn write(&mut self, lines: &[u8], count: u64) -> u64 {
        let end = if self.is_open { self.write_all(b"\n") } else { Ok(()) };
        if end.and_then(|()| self.write_all(lines)).is_err() {
            self.lost += count;
            return 0;
        }
        std::mem::take(&mut self.lost)
    }

    /// Writes everything, and waits where the target does not: others may have made it so.
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.target.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let (done, rest) = bytes.split_at(written.min(bytes.len()));
                    self.is_open = done.last() != Some(&b'\n');
                    bytes = rest;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut room = [PollFd::new(self.target, PollFlags::OUT)];
                    // An interrupted wait is begun again.
                    poll(&mut room, None).unwrap_or_default();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::time::Duration;

    use super::{Output, QUEUE_BYTES_MAX, Queue, WRITE_BYTES};

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

    /// Takes so many bytes, and then fails until it is given room again.
    struct Disk {
        room: usize,
        written: Vec<u8>,
        file: std::fs::File,
    }

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl std::os::fd::AsFd for Disk {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.file.as_fd()
        }
    }

    // Lines of a busy log were cut every 4096 bytes, and another process's lines came in between.
    #[test]
    fn a_write_holds_whole_lines_and_no_more_than_a_pipe_takes_in_one_piece() {
        let queue = Queue::default();
        for length in [1000, 3000, 200, 9000, 1, 4095, 1, 1] {
            queue.push(&[vec![b'x'; length], b"\n".to_vec()].concat());
        }
        let mut writes = Vec::new();
        while !queue.lock().lines.is_empty() {
            let (lines, count) = queue.next_lines();
            assert!(lines.ends_with(b"\n") && (lines.len() <= WRITE_BYTES || count == 1));
            writes.push(count);
        }
        assert_eq!(writes, [2, 1, 1, 1, 1, 2], "1000+3000, 200, 9000, 1, 4095, 1+1");
    }

    // A write that would have to wait failed, and its lines were lost without a word.
    #[test]
    fn a_pipe_that_does_not_wait_gets_every_line() {
        use rustix::fs::{OFlags, fcntl_setfl};
        let queue: &'static Queue = Box::leak(Box::default());
        let (mut reader, mut pipe) = io::pipe().unwrap();
        fcntl_setfl(&pipe, OFlags::NONBLOCK).unwrap();
        let line = |n: usize| format!("{n:0>999}\n").into_bytes();
        (0..500).for_each(|n| queue.push(&line(n)));
        std::thread::spawn(move || queue.write_to(&mut pipe));
        let mut all = vec![0; 500 * 1000];
        reader.read_exact(&mut all).unwrap();
        assert!((0..500).flat_map(line).eq(all));
    }

    #[test]
    fn lines_that_could_not_be_written_are_counted_when_there_is_room_again() {
        let file = tempfile::tempfile().unwrap();
        let mut disk = Disk { room: 6, written: Vec::new(), file };
        let mut output = Output { target: &mut disk, lost: 0, is_open: false };
        assert_eq!(output.write(b"one\n", 1), 0);
        assert_eq!(output.write(b"two\nthree\n", 2), 0, "only `tw` fits");
        assert_eq!(output.write(b"four\n", 1), 0);
        output.target.room = 100;
        assert_eq!(output.write(b"five\n", 1), 3);
        assert_eq!(output.write(b"six\n", 1), 0, "said once");
        assert_eq!(disk.written, b"one\ntw\nfive\nsix\n");
    }
}
