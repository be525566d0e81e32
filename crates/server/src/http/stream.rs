//! Streams of Server-Sent Events that can be resumed.
//!
//! ```text
//! cursor ─▶ read a page ─▶ some: send, each with `id:` = its cursor, and read on
//!              ▲             └ none: wait for a commit; a comment every few seconds
//!              └──woken by a commit────┘            stop or too slow: end, to be resumed
//!                 or, if other servers may commit, after a second
//! ```
//!
//! A stream holds one page at most and reads the next when that one was sent, so a slow client
//! costs nothing but its connection and loses nothing: the log is the buffer. The more streams
//! there are, the longer each pauses between reads: everyone who waits for a job has one, and
//! together they must leave the machine to the jobs.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use outlast_store::event::EventQuery;
use outlast_wire::Fault;
use tokio::sync::watch;
use tokio::time::Instant;

use super::error::ApiError;
use super::event_log::PAGE;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::{App, event_log};
use crate::clock::boot_time;
use crate::write_timeout::WRITE_TIMEOUT;

/// Silence after which a comment is sent, so that both ends notice a dead connection.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Streams get no signal of commits by other servers, so they look this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two reads of a stream, for each stream: 10,000 reads a second in all.
const PAUSE_A_STREAM: Duration = Duration::from_micros(100);
/// Longest and shortest such pause; timers are no finer than the latter.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// More commits than this since the last read may not fit into one read.
const LOOK: u64 = 10_000;
/// How long a client should wait before it reconnects, in milliseconds.
const RETRY_MS: u32 = 1000;

/// Returns whether a request asks for a stream rather than a page.
pub(super) fn is_wanted(req: &ApiRequest, otherwise: bool) -> Result<bool, ApiError> {
    match req.query("stream").as_deref() {
        Some("true" | "1") => return Ok(true),
        Some("false" | "0") => return Ok(false),
        Some(_) => return Err(Fault::field("stream", "must be `true` or `false`").into()),
        None => {}
    }
    let accept = req.header("accept").unwrap_or_default();
    if accept.contains("text/event-stream") {
        return Ok(true);
    }
    Ok(otherwise && !accept.contains("application/json"))
}

/// Answers with a stream of what `query` is about. Without a cursor it begins with what the
/// query alone would give.
pub(super) async fn respond(
    req: ApiRequest,
    mut query: EventQuery,
) -> Result<ApiResponse, ApiError> {
    // Before the first byte, so that a bad cursor is a refusal and not a stream that ends.
    let first = event_log::page(&req.app, &query).await?;
    let commits = req.app.engine.shared().commits.subscribe();
    let mut greeting = format!("retry: {RETRY_MS}\n").into_bytes();
    if first.events.is_empty() {
        // So that a reader who has seen no event yet loses none either.
        write_cursor(&mut greeting, &first.next);
    }
    greeting.push(b'\n');
    for (cursor, event) in &first.events {
        write(&mut greeting, cursor, event);
    }
    query.after = Some(first.next);
    let (seen, again_at) = (*commits.borrow(), Instant::now());
    let reader = Reader { app: req.app, query, commits, seen, again_at, sent: None };
    let rest = stream::unfold(reader, Reader::next);
    let head = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(greeting))]);
    let body = Body::from_stream(futures_util::StreamExt::chain(head, rest));
    Ok(ApiResponse::stream(StatusCode::OK, "text/event-stream", body))
}

fn write(out: &mut Vec<u8>, cursor: &str, event: &outlast_store::event::Event) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(cursor.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    // JSON as it is written here has no line breaks.
    event_log::write(out, cursor, event);
    out.extend_from_slice(b"\n\n");
}

/// Says where a stream is while there is no event to say it.
fn write_cursor(out: &mut Vec<u8>, cursor: &str) {
    if !cursor.is_empty() {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(cursor.as_bytes());
        out.push(b'\n');
    }
}

/// One stream under way.
struct Reader {
    app: App,
    query: EventQuery,
    /// Changes with every commit.
    commits: watch::Receiver<u64>,
    /// How many there were at the last look.
    seen: u64,
    /// When the log may be read again.
    again_at: Instant,
    /// When the latest piece was handed on.
    sent: Option<outlast_core::time::BootTime>,
}

type Piece = Result<Bytes, std::convert::Infallible>;

impl Reader {
    async fn next(mut self) -> Option<(Piece, Self)> {
        let stalled = self.sent.is_some_and(|sent| {
            u128::from(boot_time().since(sent).as_millis()) > WRITE_TIMEOUT.as_millis()
        });
        let stopping = self.app.engine.shared().stopping();
        if stalled || stopping.is_cancelled() {
            return None;
        }
        let piece = tokio::select! {
            biased;
            () = stopping.cancelled() => return None,
            piece = self.piece() => piece?,
        };
        self.sent = Some(boot_time());
        Some((Ok(piece), self))
    }

    /// Waits for events, or for as long as silence may last; nothing when the log is gone.
    async fn piece(&mut self) -> Option<Bytes> {
        let silence = tokio::time::sleep(HEARTBEAT);
        tokio::pin!(silence);
        loop {
            tokio::time::sleep_until(self.again_at).await;
            // Noted before reading, so that commits in the meantime cause another read.
            let commits = *self.commits.borrow_and_update();
            let is_behind = commits.wrapping_sub(std::mem::replace(&mut self.seen, commits)) > LOOK;
            let page = match event_log::page(&self.app, &self.query).await {
                Ok(page) => page,
                Err(failure) => {
                    // The reader comes back when the store does.
                    tracing::warn!("event stream ended: {}", failure.message());
                    return None;
                }
            };
            let looked_on = self.query.after.as_ref() != Some(&page.next);
            self.query.after = Some(page.next);
            let is_full = page.events.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
            if !is_full && !is_behind {
                self.again_at = Instant::now() + pause(self.streams());
            }
            if !page.events.is_empty() {
                let mut out = Vec::with_capacity(page.events.len() * 384);
                for (cursor, event) in &page.events {
                    write(&mut out, cursor, event);
                }
                return Some(Bytes::from(out));
            }
            if looked_on {
                if silence.deadline() <= Instant::now() {
                    // Events that do not match are silence to the client.
                    return Some(self.still_here());
                }
                // Nothing that matches so far; there may be more behind it.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                changed = self.commits.changed() => changed.ok()?,
                () = &mut silence => return Some(self.still_here()),
                () = tokio::time::sleep(LOOK_INTERVAL), if self.is_shared() => {}
            }
        }
    }

    /// Whether other servers may write to the store.
    fn is_shared(&self) -> bool {
        !self.app.engine.store().has_one_writer()
    }

    /// How many streams there are.
    fn streams(&self) -> usize {
        self.app.engine.shared().commits.receiver_count()
    }

    /// A heartbeat with the cursor, so that a client that reconnects need not read again what
    /// did not match.
    fn still_here(&self) -> Bytes {
        let mut out = b": still here\n".to_vec();
        write_cursor(&mut out, self.query.after.as_deref().unwrap_or_default());
        out.push(b'\n');
        Bytes::from(out)
    }
}

/// Returns how long each of `streams` streams waits between two reads.
fn pause(streams: usize) -> Duration {
    let pause = PAUSE_A_STREAM.saturating_mul(u32::try_from(streams).unwrap_or(u32::MAX));
    if pause < PAUSE_MIN { Duration::ZERO } else { pause.min(PAUSE_MAX) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::pause;

    #[test]
    fn a_few_streams_look_at_once_and_a_thousand_share_what_the_store_can_give() {
        for (streams, ms) in [(1, 0), (9, 0), (10, 1), (1_000, 100), (1_000_000, 1_000)] {
            assert_eq!(pause(streams), Duration::from_millis(ms), "{streams}");
        }
    }
}
