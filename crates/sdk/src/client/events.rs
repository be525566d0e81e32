//! Events of the server, in order, without gaps.
//!
//! ```text
//! begin ─▶ connect at the cursor ─▶ read ─▶ event: keep its cursor, hand it over
//!             ▲    ├─▶ refused for good: returned, and the end
//!             │    └─▶ 204, as a job has no more events: the same
//!             └─ pause ◀── lost, silent, or refused for now
//! ```

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::State;
use reqwest::{Response, StatusCode};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use super::http::{Failed, Http, HttpRequest};
use super::sse::{Message, Reader};
use super::{ClientError, instant};
use crate::cause::root_cause;
use crate::session::backoff::Backoff;

/// Silence after which a stream is considered lost: the server sends something every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Which events to follow. Default: all of them, from now on.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct EventFilter {
    types: Vec<String>,
    queues: Vec<String>,
    job: Option<JobId>,
    after: Option<String>,
}

/// Events as they happen. After a lost connection it continues with the next event. Only the events
/// of one job end, with [`ClientError::JobEnded`].
#[derive(Debug)]
pub struct Events {
    http: Http,
    filter: EventFilter,
    cursor: Option<String>,
    stream: Option<Response>,
    reader: Reader,
    ready: VecDeque<Event>,
    backoff: Backoff,
    tries: u32,
    /// How long to wait before the next connection.
    pause: Option<Duration>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// Where to continue after it: see [`EventFilter::after`].
    #[serde(rename = "id")]
    pub cursor: String,
    /// The event's type, such as `job.completed`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// When, by the server's clock.
    #[serde(deserialize_with = "instant::read")]
    pub time: SystemTime,
    /// More about it.
    #[serde(default)]
    pub data: EventData,
}

/// An event's data. Which fields are present depends on its type.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct EventData {
    /// The job it is about.
    #[serde(default, rename = "job_id", deserialize_with = "job_id_if")]
    pub job: Option<JobId>,
    /// Its type.
    #[serde(default)]
    pub job_type: Option<String>,
    /// Its queue.
    #[serde(default)]
    pub queue: Option<String>,
    /// The state it moved to.
    #[serde(default, deserialize_with = "state_if")]
    pub state: Option<State>,
    /// Attempts that counted against its retries.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// The claim.
    #[serde(default, deserialize_with = "epoch_if")]
    pub epoch: Option<Epoch>,
    /// How an attempt ended.
    #[serde(default)]
    pub outcome: Option<String>,
    /// How long it ran, in milliseconds.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// The worker it is about, or that did it.
    #[serde(default)]
    pub worker_id: Option<Uuid>,
    /// Who did it.
    #[serde(default)]
    pub by: String,
    /// The evidence for it, as a sentence.
    #[serde(default)]
    pub evidence: String,
}

impl EventFilter {
    /// Only events of these types, such as `job.completed`; `job.*` is a whole family.
    pub fn types<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.types = types.into_iter().map(Into::into).collect();
        self
    }

    /// Only events of jobs in these queues.
    pub fn queues<T: Into<String>>(mut self, queues: impl IntoIterator<Item = T>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Only events of this job; without [`Self::after`] from its first one on.
    pub const fn job(mut self, id: JobId) -> Self {
        self.job = Some(id);
        self
    }

    /// Continues after an event that was seen before: see [`Events::cursor`].
    pub fn after(mut self, cursor: impl Into<String>) -> Self {
        self.after = Some(cursor.into());
        self
    }
}

impl Events {
    pub(super) fn new(http: Http, filter: EventFilter) -> Self {
        Self {
            http,
            cursor: filter.after.clone(),
            filter,
            stream: None,
            reader: Reader::default(),
            ready: VecDeque::new(),
            backoff: Backoff::default(),
            tries: 0,
            pause: None,
        }
    }

    /// The current position: a later [`EventFilter::after`] continues from here. `None` until the
    /// server has sent one. It is past every event that was returned, and no other.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        match self.ready.front() {
            // Read ahead: the cursor of what was handed over came before.
            Some(_) => self.filter.after.as_deref(),
            None => self.cursor.as_deref(),
        }
    }

    /// Waits for the next event, through lost connections and servers that restart. Safe to
    /// drop while waiting: nothing is lost.
    ///
    /// # Errors
    /// When the server refuses for good: the token does not allow it, the job is not known,
    /// the cursor is not one of its own. [`ClientError::JobEnded`] after the last event of a job.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.filter.after = Some(event.cursor.clone());
                return Ok(event);
            }
            if let Some(failed) = self.advance().await {
                if !failed.is_for_now() {
                    return Err(self.http.error(failed, self.tries).await);
                }
                tracing::debug!(?failed, "event stream lost, reconnecting");
                self.pause = Some(failed.pause(&mut self.backoff));
            }
        }
    }

    /// As [`Self::next`], but returns an error if the stream cannot be opened, whatever the reason.
    pub(super) async fn next_or_failed(&mut self) -> Result<Event, Failed> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if let Some(failed) = self.advance().await {
                return Err(failed);
            }
        }
    }

    /// Connects, or reads a piece. Every wait in it may be dropped and begun again.
    async fn advance(&mut self) -> Option<Failed> {
        if let Some(pause) = self.pause {
            tokio::time::sleep(pause).await;
            self.pause = None;
        }
        let Some(stream) = &mut self.stream else { return self.connect().await.err() };
        let lost = match tokio::time::timeout(SILENCE_MAX, stream.chunk()).await {
            Ok(Ok(Some(piece))) if self.reader.feed(&piece).is_ok() => {
                self.take_in();
                return None;
            }
            Ok(Ok(Some(_))) => "an event is too long".to_owned(),
            Ok(Ok(None)) => "the server ended it".to_owned(),
            Ok(Err(error)) => root_cause(&error),
            Err(_) => format!("silent for {SILENCE_MAX:?}"),
        };
        self.stream = None;
        Some(Failed::Unanswered { reason: format!("event stream: {lost}"), sent: true })
    }

    async fn connect(&mut self) -> Result<(), Failed> {
        self.tries = self.tries.saturating_add(1);
        let id = self.filter.job.map(|id| id.to_string()).unwrap_or_default();
        let path: &[&str] = match self.filter.job {
            Some(_) => &["api", "v1", "executions", &id, "events"],
            None => &["api", "v1", "events"],
        };
        let mut request = HttpRequest::get(path).query("stream", "true");
        if !self.filter.types.is_empty() {
            request = request.query("types", self.filter.types.join(","));
        }
        if !self.filter.queues.is_empty() {
            request = request.query("queues", self.filter.queues.join(","));
        }
        if let Some(cursor) = &self.cursor {
            request = request.query("cursor", cursor);
        }
        let stream = self.http.stream(&request).await?;
        if stream.status() == StatusCode::NO_CONTENT {
            return Err(Failed::Ended);
        }
        self.stream = Some(stream);
        self.reader = Reader::default();
        Ok(())
    }

    fn take_in(&mut self) {
        while let Some(Message { id, data }) = self.reader.next() {
            self.backoff.reset();
            self.tries = 0;
            // What cannot be parsed is skipped: a newer server may know more.
            match serde_json::from_str::<Event>(&data) {
                Ok(event) => self.ready.push_back(event),
                Err(error) if !data.is_empty() => {
                    tracing::debug!(%error, data, "cannot parse event");
                }
                Err(_) => {}
            }
            if id.is_some() {
                self.cursor = id;
            }
        }
    }
}

fn job_id_if<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<JobId>, D::Error> {
    Ok(Option::<Uuid>::deserialize(deserializer)?.map(JobId))
}

fn epoch_if<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Epoch>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.map(Epoch))
}

fn state_if<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<State>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|word| State::parse(&word)))
}
