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
//! costs nothing but its connection and loses nothing: the log is the buffer.
//!
//! The stream of one job ends after the job's last event. A client that asks for more then gets
//! 204, which tells browsers not to come back.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_store::event::{Event, EventPage, EventQuery};
use outlast_wire::Fault;
use tokio::time::Instant;

use super::commit_watch::CommitWatch;
use super::error::ApiError;
use super::event_log::PAGE;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::{App, event_log};
use crate::clock::boot_time;
use crate::write_timeout::WRITE_TIMEOUT;

/// Silence after which a comment is sent, so that both ends notice a dead connection.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often to check that the client may still read.
const ACCESS_CHECKED: Duration = Duration::from_secs(1);
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
    let commits = CommitWatch::new(&req.app);
    let mut end = match query.job {
        Some(job) => Some(JobEnd::look_for(&req.app, job).await?),
        None => None,
    };
    // All of a job's events are read, whichever are wanted: one of them says that it has ended.
    let wanted = end.is_some().then(|| query.clone());
    if wanted.is_some() {
        let EventQuery { after, job, limit, .. } = query;
        query = EventQuery { after, job, ..EventQuery::all(limit) };
    }
    // Before the first byte, so that a bad cursor is a refusal and not a stream that ends.
    let first = event_log::page(&req.app, &query).await?;
    if first.events.is_empty() && end.as_ref().is_some_and(|end| end.is_reached(&first)) {
        return Ok(ApiResponse::nothing());
    }
    if let Some(end) = &mut end {
        end.note(&first);
    }
    let (seen, sent) = (commits.count(), None);
    let app = req.app.clone();
    let access = StillAllowed { req, checked: Instant::now() };
    let mut reader = Reader { app, query, wanted, end, commits, seen, is_ahead: false, sent };
    let mut events = Vec::new();
    reader.take(&mut events, first);
    let mut greeting = format!("retry: {RETRY_MS}\n").into_bytes();
    if events.is_empty() {
        // So that a reader who has seen no event yet loses none either.
        reader.write_cursor(&mut greeting);
    }
    greeting.push(b'\n');
    greeting.append(&mut events);
    let rest = stream::unfold(Watched { reader, access }, Watched::next);
    let head = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(greeting))]);
    let body = Body::from_stream(futures_util::StreamExt::chain(head, rest));
    Ok(ApiResponse::stream(StatusCode::OK, "text/event-stream", body))
}

fn write(out: &mut Vec<u8>, cursor: &str, event: &Event) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(cursor.as_bytes());
    out.extend_from_slice(b"\nevent: ");
    out.extend_from_slice(event.kind.word().as_bytes());
    out.extend_from_slice(b"\ndata: ");
    // JSON as it is written here has no line breaks.
    event_log::write(out, cursor, event);
    out.extend_from_slice(b"\n\n");
}

/// The request that a stream answers, whose token or session may end before the stream does.
struct StillAllowed {
    req: ApiRequest,
    checked: Instant,
}

impl StillAllowed {
    /// Returns once the client may no longer read, or once that cannot be checked.
    async fn ended(&mut self) {
        loop {
            tokio::time::sleep_until(self.checked + ACCESS_CHECKED).await;
            if let Err(refused) = self.req.still_allowed().await {
                tracing::debug!("event stream ended: {}", refused.message());
                return;
            }
            self.checked = Instant::now();
        }
    }
}

/// One stream under way.
struct Reader {
    app: App,
    /// What is read.
    query: EventQuery,
    /// What is sent of it, if not all.
    wanted: Option<EventQuery>,
    /// Set for the stream of one job.
    end: Option<JobEnd>,
    commits: CommitWatch,
    /// How many commits there were at the last look.
    seen: u64,
    /// Whether events were passed over since the client was last sent a cursor.
    is_ahead: bool,
    /// When the latest piece was handed on.
    sent: Option<outlast_core::time::BootTime>,
}

/// Where the stream of one job is to end.
struct JobEnd {
    job: JobId,
    /// Whether the store had the job when it was last looked up.
    is_known: bool,
    stage: Stage,
}

/// How far the stream of one job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The job goes on.
    UnderWay,
    /// The latest event may be the last one.
    Near,
    /// The store has the event that ended the job.
    Ended,
}

impl JobEnd {
    async fn look_for(app: &App, job: JobId) -> Result<Self, ApiError> {
        let mut end = Self { job, is_known: false, stage: Stage::Near };
        end.look(app).await?;
        Ok(end)
    }

    /// Looks whether the job has ended, if that may be. Before a page is read, so that the page has
    /// all that led to its end.
    async fn look(&mut self, app: &App) -> Result<(), ApiError> {
        if self.stage != Stage::Near {
            return Ok(());
        }
        let record = app.engine.store().job(self.job).await?;
        let has_ended = match &record {
            Some(record) => record.state.is_terminal(),
            // Deleted. One that was never there may still be enqueued.
            None => self.is_known,
        };
        self.stage = if has_ended { Stage::Ended } else { Stage::UnderWay };
        self.is_known |= record.is_some();
        Ok(())
    }

    /// Whether a page that was read after the latest look has the job's last event.
    fn is_reached(&self, page: &EventPage) -> bool {
        self.stage == Stage::Ended && page.is_complete
    }

    /// Takes note of a page's events. One after the end is of another life.
    fn note(&mut self, page: &EventPage) {
        if let Some((_, event)) = page.events.last() {
            let is_near = event.state.is_none_or(State::is_terminal);
            self.stage = if is_near { Stage::Near } else { Stage::UnderWay };
        }
    }
}

type Piece = Result<Bytes, std::convert::Infallible>;

/// A stream, and whether its client may still read it.
struct Watched {
    reader: Reader,
    access: StillAllowed,
}

impl Watched {
    /// Returns the next piece; nothing when the stream ends.
    async fn next(mut self) -> Option<(Piece, Self)> {
        let Self { reader, access } = &mut self;
        let stalled = reader.sent.is_some_and(|sent| {
            u128::from(boot_time().since(sent).as_millis()) > WRITE_TIMEOUT.as_millis()
        });
        let stopping = reader.app.engine.shared().stopping();
        if stalled || stopping.is_cancelled() {
            return None;
        }
        let piece = tokio::select! {
            biased;
            () = stopping.cancelled() => return None,
            () = access.ended() => return None,
            piece = reader.piece() => piece?,
        };
        reader.sent = Some(boot_time());
        Some((Ok(piece), self))
    }
}

impl Reader {
    /// Waits for events, or for as long as silence may last; nothing when the stream ends.
    async fn piece(&mut self) -> Option<Bytes> {
        let silence = tokio::time::sleep(HEARTBEAT);
        tokio::pin!(silence);
        loop {
            // Before reading, so that commits in the meantime cause another read.
            let commits = self.commits.ready().await;
            let is_behind = commits.wrapping_sub(std::mem::replace(&mut self.seen, commits)) > LOOK;
            let page = match self.read().await {
                Ok(page) => page,
                Err(failure) => {
                    // The reader comes back when the store does.
                    tracing::warn!("event stream ended: {}", failure.message());
                    return None;
                }
            };
            let looked_on = self.query.after.as_ref() != Some(&page.next);
            let is_full = page.events.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
            if !is_full && !is_behind {
                self.commits.pause(&self.app);
            }
            let is_last = self.end.as_ref().is_some_and(|end| end.is_reached(&page));
            let mut out = Vec::with_capacity(page.events.len() * 384);
            self.take(&mut out, page);
            if !out.is_empty() {
                return Some(Bytes::from(out));
            }
            if is_last {
                return self.last_cursor();
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
            if self.end.as_ref().is_some_and(|end| end.stage == Stage::Near) {
                // That event may have been the last one.
                continue;
            }
            tokio::select! {
                changed = self.commits.changed() => changed.then_some(())?,
                () = &mut silence => return Some(self.still_here()),
            }
        }
    }

    /// Reads the next page.
    async fn read(&mut self) -> Result<EventPage, ApiError> {
        if let Some(end) = &mut self.end {
            end.look(&self.app).await?;
        }
        let page = event_log::page(&self.app, &self.query).await?;
        if let Some(end) = &mut self.end {
            end.note(&page);
        }
        Ok(page)
    }

    /// Writes what is wanted of a page, and goes on after it.
    fn take(&mut self, out: &mut Vec<u8>, page: EventPage) {
        for (cursor, event) in &page.events {
            let is_wanted = self.wanted.as_ref().is_none_or(|wanted| wanted.matches(event));
            if is_wanted {
                write(out, cursor, event);
            }
            self.is_ahead = !is_wanted;
        }
        self.query.after = Some(page.next);
    }

    /// Writes the cursor while there is no event that has it.
    fn write_cursor(&mut self, out: &mut Vec<u8>) {
        let cursor = self.query.after.as_deref().unwrap_or_default();
        if !cursor.is_empty() {
            out.extend_from_slice(b"id: ");
            out.extend_from_slice(cursor.as_bytes());
            out.push(b'\n');
        }
        self.is_ahead = false;
    }

    /// The cursor at the end of the stream, if events were passed over since the last one: a client
    /// that comes back with it learns that there is no more.
    fn last_cursor(&mut self) -> Option<Bytes> {
        if !self.is_ahead {
            return None;
        }
        let mut out = Vec::new();
        self.write_cursor(&mut out);
        out.push(b'\n');
        Some(Bytes::from(out))
    }

    /// A heartbeat with the cursor, so that a client that reconnects need not read again what
    /// did not match.
    fn still_here(&mut self) -> Bytes {
        let mut out = b": still here\n".to_vec();
        self.write_cursor(&mut out);
        out.push(b'\n');
        Bytes::from(out)
    }
}
