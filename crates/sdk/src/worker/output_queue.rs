//! Output on its way to the server, kept until the server has stored it.
//!
//! ```text
//! waiting ──sent──▶ unanswered ──stored──▶ (gone)
//!    ▲                  │
//!    └─ session lost ───┘
//! ```
//!
//! Output that was sent and not yet stored is bounded by a window. A slow link fills no
//! transport's buffers with it, so that pings and reports get through behind it.
//!
//! A server of an older version does not say what it stored: there, sent is gone.

use std::collections::{HashMap, VecDeque};

use outlast_core::limits::SESSION_MESSAGE_BYTES_AIM;
use outlast_core::time::{BootTime, Span};
use outlast_proto::v1::{LogChunk, LogStream};

use crate::attempt::events::dropped_mark;
use crate::delivery::AttemptId;

/// Bytes that may be unanswered at first, and at least and at most later.
const WINDOW_FIRST: usize = 256 * 1024;
const WINDOW_MIN: usize = 64 * 1024;
const WINDOW_MAX: usize = SESSION_MESSAGE_BYTES_AIM;

#[derive(Debug)]
pub(crate) struct OutputQueue {
    waiting: VecDeque<Piece>,
    waiting_bytes: usize,
    /// Pieces queued, and sent or forgotten, so far.
    queued: u64,
    sent: u64,
    /// The last waiting piece of each attempt that has any.
    last_of: HashMap<AttemptId, u64>,
    unanswered: VecDeque<Message>,
    unanswered_bytes: usize,
    /// Messages of this session that the server has stored.
    stored: u64,
    window: usize,
    /// How the session that is attached goes about it.
    answers: Answers,
}

/// Whether the server says what it has stored, and how soon it should on a good link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Never,
    Within(Span),
}

/// A piece of output, and how many bytes of room it takes.
#[derive(Clone, Debug)]
struct Piece {
    attempt: AttemptId,
    chunk: LogChunk,
    room: usize,
    /// What it stands for, if it is the mark of output that was dropped: so many bytes.
    dropped: Option<usize>,
}

#[derive(Debug)]
struct Message {
    pieces: Vec<Piece>,
    bytes: usize,
    sent_at: BootTime,
}

impl OutputQueue {
    pub(crate) fn push(&mut self, attempt: AttemptId, chunk: LogChunk, room: usize) {
        self.queued += 1;
        self.waiting_bytes += chunk.bytes.len();
        self.last_of.insert(attempt, self.queued);
        self.waiting.push_back(Piece { attempt, chunk, room, dropped: None });
    }

    /// Whether nothing waits to be sent or to be stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.unanswered.is_empty()
    }

    /// Bytes that were not sent yet.
    pub(crate) const fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// How many pieces must have been sent before what the attempt says next.
    pub(crate) fn before(&self, attempt: Option<AttemptId>) -> u64 {
        attempt.and_then(|attempt| self.last_of.get(&attempt)).copied().unwrap_or(self.sent)
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) const fn queued(&self) -> u64 {
        self.queued
    }

    /// Says whether a message may be sent.
    pub(crate) fn has_next(&self) -> bool {
        !self.waiting.is_empty() && (self.unanswered.is_empty() || self.free() > 0)
    }

    const fn free(&self) -> usize {
        match self.answers {
            Answers::Never => WINDOW_MAX,
            Answers::Within(_) => self.window.saturating_sub(self.unanswered_bytes),
        }
    }

    /// Takes the next message, at least one piece of output; returns the room that is free
    /// again.
    pub(crate) fn next(&mut self, now: BootTime) -> (Vec<LogChunk>, usize) {
        let max = self.free();
        let (mut pieces, mut bytes) = (Vec::new(), 0_usize);
        while (bytes < max || pieces.is_empty())
            && let Some(piece) = self.waiting.pop_front()
        {
            bytes += piece.chunk.bytes.len();
            self.sent += 1;
            if self.last_of.get(&piece.attempt) == Some(&self.sent) {
                self.last_of.remove(&piece.attempt);
            }
            pieces.push(piece);
        }
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        let chunks = pieces.iter().map(|piece| piece.chunk.clone()).collect();
        match self.answers {
            Answers::Never => (chunks, pieces.iter().map(|piece| piece.room).sum()),
            Answers::Within(_) => {
                self.unanswered_bytes += bytes;
                self.unanswered.push_back(Message { pieces, bytes, sent_at: now });
                (chunks, 0)
            }
        }
    }

    /// Forgets what the server has stored: this many messages of this session. Returns the room
    /// that it took.
    pub(crate) fn stored(&mut self, messages: u64, now: BootTime) -> usize {
        let mut room = 0_usize;
        while self.stored < messages
            && let Some(message) = self.unanswered.pop_front()
        {
            self.stored += 1;
            self.unanswered_bytes = self.unanswered_bytes.saturating_sub(message.bytes);
            self.adapt(now.since(message.sent_at));
            room += message.pieces.iter().map(|piece| piece.room).sum::<usize>();
        }
        room
    }

    /// The window follows from how long the server took to say that it stored a message.
    fn adapt(&mut self, took: Span) {
        let Answers::Within(soon) = self.answers else { return };
        if took.0 <= soon.0 / 2 {
            self.window = self.window.saturating_mul(2).min(WINDOW_MAX);
        } else if took > soon {
            self.window = (self.window / 2).max(WINDOW_MIN);
        }
    }

    /// A session begins: what was not stored is sent again. The server knows what it has.
    pub(crate) fn begin_session(&mut self, answers: Answers) {
        if !self.unanswered.is_empty() {
            self.window = WINDOW_MIN;
        }
        while let Some(message) = self.unanswered.pop_back() {
            self.waiting_bytes += message.bytes;
            for piece in message.pieces.into_iter().rev() {
                self.last_of.entry(piece.attempt).or_insert(self.sent);
                self.sent -= 1;
                self.waiting.push_front(piece);
            }
        }
        self.unanswered_bytes = 0;
        self.stored = 0;
        self.answers = answers;
    }

    /// Puts a mark of what is missing in the place of all that was not sent; returns the room
    /// that it took.
    pub(crate) fn cut(&mut self) -> usize {
        let mut marks: Vec<(Piece, usize)> = Vec::new();
        let mut room = 0_usize;
        for piece in self.waiting.drain(..) {
            room += piece.room;
            let bytes = piece.dropped.unwrap_or(piece.chunk.bytes.len());
            match marks.iter_mut().find(|(last, _)| last.attempt == piece.attempt) {
                // Its last number: if the server has that piece, it has them all.
                Some(mark) => *mark = (piece, mark.1 + bytes),
                None => marks.push((piece, bytes)),
            }
        }
        self.waiting_bytes = 0;
        self.last_of.clear();
        self.queued = self.sent;
        // The marks are small and wait for nothing.
        self.window = usize::MAX;
        for (last, bytes) in marks {
            let mark = LogChunk {
                stream: LogStream::Worker.into(),
                bytes: dropped_mark(bytes).into(),
                ..last.chunk
            };
            self.push(last.attempt, mark, 0);
            if let Some(mark) = self.waiting.back_mut() {
                mark.dropped = Some(bytes);
            }
        }
        room
    }

    /// Forgets all output; returns how many bytes that is, and the room that it took.
    pub(crate) fn clear(&mut self) -> (usize, usize) {
        let bytes = self.waiting_bytes + self.unanswered_bytes;
        self.sent = self.queued;
        self.waiting_bytes = 0;
        self.last_of.clear();
        self.unanswered_bytes = 0;
        self.stored += u64::try_from(self.unanswered.len()).unwrap_or(u64::MAX);
        let unanswered = self.unanswered.drain(..).flat_map(|message| message.pieces);
        let room = self.waiting.drain(..).chain(unanswered).map(|piece| piece.room).sum();
        (bytes, room)
    }
}

impl Default for OutputQueue {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            queued: 0,
            sent: 0,
            last_of: HashMap::new(),
            unanswered: VecDeque::new(),
            unanswered_bytes: 0,
            stored: 0,
            window: WINDOW_FIRST,
            answers: Answers::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::id::{Epoch, JobId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_cut_twice_is_counted_once() {
        let attempt = AttemptId { job: JobId(Uuid::from_u128(1)), epoch: Epoch(1) };
        let mut queue = OutputQueue::default();
        for n in 0..2 {
            let chunk = LogChunk { n, bytes: vec![b'x'; 50_000].into(), ..LogChunk::default() };
            queue.push(attempt, chunk, 50_000);
        }
        assert_eq!(queue.cut(), 100_000);
        // The mark was not sent before the next cut.
        assert_eq!(queue.cut(), 0);
        let (chunks, _) = queue.next(BootTime(0));
        assert_eq!(chunks.len(), 1);
        assert_eq!(chunks[0].bytes, dropped_mark(100_000).as_bytes());
    }
}
