//! Events as they are committed: Server-Sent Events that can be resumed.
//!
//! ```text
//! cursor ─▶ read a page ─▶ some: send, each with `id:` = its cursor, and read on
//!              ▲             └ none: wait for a commit; a comment every few seconds
//!              └──woken by a commit────┘            stop or too slow: end, to be resumed
//! ```
//!
//! A stream holds one page at most and reads the next when the last one was taken, so a slow
//! reader costs nothing but its connection, and loses nothing: the log is the buffer. The
//! more streams there are, the longer each pauses between its looks at the log: whoever waits
//! for a job has one, and all of them together must leave the machine to the jobs.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use outlast_core::id::{JobId, WorkerId};
use outlast_store::event::{EventName, EventQuery};
use outlast_wire::Fault;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::ojs::events as event_log;
use super::{App, workers};
use crate::clock::boot_time;
use crate::stall::WRITE_STALL_MAX;

/// Most events in one page.
const PAGE: u32 = 200;
/// Silence after which a comment is sent, so that both ends know that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Pause between two looks of a stream, for each stream there is: 10,000 looks a second in all.
const PAUSE_A_STREAM: Duration = Duration::from_micros(100);
/// Longest such pause; a timer knows no shorter one than the other.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// More commits than this since the last look may be more than one look takes in.
const LOOK: u64 = 10_000;
/// What a reader should wait before it comes back, in milliseconds.
const RETRY_MS: u32 = 1000;

/// Returns whether a request wants a stream rather than a page.
pub(super) fn is_wanted(call: &Call, otherwise: bool) -> Result<bool, Failure> {
    match call.query("stream").as_deref() {
        Some("true" | "1") => return Ok(true),
        Some("false" | "0") => return Ok(false),
        Some(_) => return Err(Fault::field("stream", "must be `true` or `false`").into()),
        None => {}
    }
    let accept = call.header("accept").unwrap_or_default();
    if accept.contains("text/event-stream") {
        return Ok(true);
    }
    Ok(otherwise && !accept.contains("application/json"))
}

/// Reads which events a request is about.
pub(super) async fn filter(call: &mut Call) -> Result<EventQuery, Failure> {
    let (names, queues) = (list(call, "type", "types"), list(call, "queue", "queues"));
    if let Some(name) = names.iter().find(|name| !EventName::is_pattern(name)) {
        let problem = format!("holds {name:?}, which names no event; `job.*` is every one of jobs");
        return Err(Fault::field("type", problem).into());
    }
    let job = call.query("execution").or_else(|| call.query("job_id"));
    let job = job.map(|id| Uuid::try_parse(&id).map(JobId)).transpose();
    let job = job.map_err(|_not| Fault::field("execution", "is not a UUID"))?;
    let worker = match call.query("worker") {
        None => None,
        // A worker that is forgotten may still be in the log.
        Some(name) => Some(match Uuid::try_parse(&name) {
            Ok(id) => WorkerId(id),
            Err(_name) => workers::find(&call.app, &name).await?.id,
        }),
    };
    Ok(EventQuery { after: None, names, queues, job, worker, limit: PAGE })
}

/// Returns a list of the query by either of its names.
fn list(call: &Call, name: &str, other: &str) -> Vec<String> {
    let list = call.list(name);
    if list.is_empty() { call.list(other) } else { list }
}

/// Returns where a stream goes on: after the last event that the reader has seen, if it says.
pub(super) fn cursor(call: &Call) -> Option<String> {
    let last = call.header("last-event-id").map(ToOwned::to_owned);
    let last = last.filter(|cursor| !cursor.is_empty());
    last.or_else(|| call.query("cursor")).or_else(|| call.query("after"))
}

/// Answers with a stream of what `query` is about. Without a cursor it begins with what the
/// query alone would give.
pub(super) async fn answer(call: Call, mut query: EventQuery) -> Result<Answer, Failure> {
    // Before the first byte, so that a bad cursor is a refusal and not a stream that ends.
    let first = event_log::page(&call.app, &query).await?;
    let commits = call.app.engine.board().commits.subscribe();
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
    let reader = Reader { app: call.app, query, commits, seen, again_at, sent: None };
    let rest = stream::unfold(reader, Reader::next);
    let head = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(greeting))]);
    let body = Body::from_stream(futures_util::StreamExt::chain(head, rest));
    Ok(Answer::stream(StatusCode::OK, "text/event-stream", body))
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
    /// When the log may be looked at again.
    again_at: Instant,
    /// When the latest piece was handed on.
    sent: Option<outlast_core::time::BootTime>,
}

type Piece = Result<Bytes, std::convert::Infallible>;

impl Reader {
    async fn next(mut self) -> Option<(Piece, Self)> {
        let stalled = self.sent.is_some_and(|sent| {
            u128::from(boot_time().since(sent).as_millis()) > WRITE_STALL_MAX.as_millis()
        });
        let stopping = self.app.engine.board().stopping();
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
            // Noted before looking: what is committed meanwhile is looked for again.
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
                    // A long log of what does not concern the reader is silence to him.
                    return Some(self.still_here());
                }
                // Nothing that matches so far; there may be more behind it.
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                changed = self.commits.changed() => changed.ok()?,
                () = &mut silence => return Some(self.still_here()),
            }
        }
    }

    /// How many streams there are.
    fn streams(&self) -> usize {
        self.app.engine.board().commits.receiver_count()
    }

    /// A sign of life, and how far the log was read: whoever comes back need not read what
    /// did not concern him again.
    fn still_here(&self) -> Bytes {
        let mut out = b": still here\n".to_vec();
        write_cursor(&mut out, self.query.after.as_deref().unwrap_or_default());
        out.push(b'\n');
        Bytes::from(out)
    }
}

/// Returns how long a stream pauses between two looks, of so many that there are.
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
