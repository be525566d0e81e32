//! One request to the server, retried while that is safe.
//!
//! ```text
//! send ─▶ answered: done
//!     ├─▶ refused, for good: returned
//!     ├─▶ not reached: the next server at once
//!     └─▶ no answer, or refused for now ─▶ may it be repeated? ─no─▶ returned
//!              ▲                                  └─yes─▶ pause, with jitter,
//!              └────────────────────────────────────────  at least `Retry-After`
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde::de::DeserializeOwned;
use tonic::metadata::{Ascii, MetadataValue};
use uuid::Uuid;

use super::error::QUEUE_FULL;
use super::{ClientBuilder, ClientError, Refusal};
use crate::cause::root_cause;
use crate::clock::Stopwatch;
use crate::servers::Servers;
use crate::session::backoff::Backoff;
use crate::session::{Address, BadAddress, ShownToken, without_credentials};
use crate::tls::Tls;

/// Longest pause that a server may ask for: a wrong clock must not stop a client.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How requests are sent; all clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct Http {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: reqwest::Client,
    servers: Servers<Url>,
    token: ShownToken,
    tls: Tls,
    request_timeout: Duration,
    retry_for: Duration,
}

/// What is asked.
#[derive(Debug)]
pub(super) struct HttpRequest<'a> {
    method: Method,
    path: &'a [&'a str],
    query: Vec<(&'static str, String)>,
    body: Option<Bytes>,
    repeat: Repeat,
    key: Option<HeaderValue>,
}

/// When a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Whenever it was not answered.
    Safe,
    /// Only if it certainly was not sent.
    IfNotSent,
    /// Whenever it was not answered, with an idempotency key generated for it.
    WithKey,
}

/// The response to a successful request.
#[derive(Debug)]
pub(super) struct HttpResponse {
    what: String,
    body: Bytes,
}

/// Why a try failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// No answer.
    Unanswered { reason: String, sent: bool },
    /// A response other than success.
    Refused { refusal: Box<Refusal>, retry_after: Option<Duration> },
    /// A stream of events that has no more.
    Ended,
}

impl<'a> HttpRequest<'a> {
    pub(super) const fn get(path: &'a [&'a str]) -> Self {
        let (method, repeat) = (Method::GET, Repeat::Safe);
        Self { method, path, query: Vec::new(), body: None, repeat, key: None }
    }

    /// A POST with JSON, or with nothing.
    pub(super) fn post(path: &'a [&'a str], json: Vec<u8>) -> Self {
        let (method, repeat) = (Method::POST, Repeat::IfNotSent);
        let body = (!json.is_empty()).then(|| Bytes::from(json));
        Self { method, path, query: Vec::new(), body, repeat, key: None }
    }

    /// A PUT with JSON: what is set twice is the same.
    pub(super) fn put(path: &'a [&'a str], json: Vec<u8>) -> Self {
        Self { method: Method::PUT, ..Self::post(path, json).repeated(Repeat::Safe) }
    }

    /// A DELETE. Repeated after it was carried out, it finds nothing.
    pub(super) const fn delete(path: &'a [&'a str]) -> Self {
        let (method, repeat) = (Method::DELETE, Repeat::IfNotSent);
        Self { method, path, query: Vec::new(), body: None, repeat, key: None }
    }

    pub(super) const fn repeated(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Makes it safe to repeat, under the caller's key or one of its own.
    pub(super) fn keyed(mut self, key: Option<String>) -> Result<Self, ClientError> {
        let Some(key) = key else { return Ok(self.repeated(Repeat::WithKey)) };
        let value = HeaderValue::from_str(&key).map_err(|_invalid| {
            let problem = format!("{key:?} cannot be an idempotency key");
            ClientError::usage(problem, "use printable ASCII characters")
        })?;
        self.key = Some(value);
        Ok(self.repeated(Repeat::Safe))
    }
}

impl HttpResponse {
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.body)
            .map_err(|source| ClientError::Decode { what: self.what.clone(), source })
    }
}

impl Http {
    pub(super) fn new(builder: ClientBuilder) -> Result<Self, BadAddress> {
        let ClientBuilder { url, token, tls, connect_timeout, request_timeout, retry_for } =
            builder;
        let bad = |reason: String| BadAddress { what: without_credentials(&url), reason };
        // The same addresses as a worker's.
        let token = Address::new(&url, &token, &tls)?.token();
        let all = url.split(',').map(|url| Url::parse(url.trim()));
        let all = all.collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
        let servers = Servers::new(all).ok_or_else(|| bad("it names no server".to_owned()))?;
        // What trusts authorities will do for http:// as well.
        let secure = servers.iter().find(|url| url.scheme() == "https");
        let config = tls.config_for(secure.map_or("", Url::as_str));
        let config = config.map_err(|error| bad(error.to_string()))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            // A proxy for the web is not meant for the job server; and a token is
            // not to be shown to the target of a redirection.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .user_agent(concat!("outlast-sdk/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| bad(root_cause(&error)))?;
        let inner =
            Inner { client, servers: servers.at_random(), token, tls, request_timeout, retry_for };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Longest that a request takes.
    pub(super) fn request_timeout(&self) -> Duration {
        self.inner.request_timeout
    }

    pub(super) async fn send(
        &self,
        mut request: HttpRequest<'_>,
    ) -> Result<HttpResponse, ClientError> {
        let patience = self.inner.retry_for;
        if request.repeat == Repeat::WithKey && !patience.is_zero() {
            request.key = HeaderValue::from_str(&Uuid::now_v7().to_string()).ok();
        }
        let watch = Stopwatch::start();
        let mut backoff = Backoff::default();
        let mut tries = 0;
        loop {
            tries += 1;
            let failed = match self.once(&request).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let pause = failed.pause(&mut backoff);
            if !failed.may_repeat(request.repeat) || watch.elapsed() + pause >= patience {
                return Err(self.error(failed, tries).await);
            }
            tracing::debug!(path = ?request.path, tries, ?pause, ?failed, "retrying request");
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, Failed> {
        let longest = self.inner.request_timeout;
        let response = self.at_any(request, |builder| builder.timeout(longest)).await?;
        let body = response.bytes().await.map_err(unanswered)?;
        Ok(HttpResponse {
            what: format!("answer to {} /{}", request.method, request.path.join("/")),
            body,
        })
    }

    /// Opens a stream of events, once.
    pub(super) async fn stream(&self, request: &HttpRequest<'_>) -> Result<Response, Failed> {
        self.at_any(request, |builder| builder.header(ACCEPT, "text/event-stream")).await
    }

    /// Sends a request to the server that is used, or to the next one that can be reached: it has
    /// done nothing at one that was not. One that does not answer, or not now, is left to others.
    async fn at_any(
        &self,
        request: &HttpRequest<'_>,
        prepare: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, Failed> {
        let servers = &self.inner.servers;
        let mut untried = servers.count();
        loop {
            untried -= 1;
            let server = servers.used();
            let builder = prepare(self.builder(servers.server(server), request)?);
            let failed = match self.answered(builder).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            if failed.is_of_the_server() {
                servers.move_on(server);
            }
            if untried == 0 || !matches!(failed, Failed::Unanswered { sent: false, .. }) {
                return Err(failed);
            }
            tracing::debug!(?failed, "server cannot be reached, trying the next one");
        }
    }

    /// Sends a request and waits for the head of its answer.
    async fn answered(&self, builder: RequestBuilder) -> Result<Response, Failed> {
        let longest = self.inner.request_timeout;
        let unanswered = |_elapsed| {
            let reason = format!("no answer within {longest:?}");
            Err(Failed::Unanswered { reason, sent: true })
        };
        tokio::time::timeout(longest, self.sent(builder)).await.unwrap_or_else(unanswered)
    }

    /// Sends a request, and once more if the server refuses a token that has been replaced: it has
    /// done nothing then.
    async fn sent(&self, builder: RequestBuilder) -> Result<Response, Failed> {
        let token = &self.inner.token;
        let again = if token.may_change() { builder.try_clone() } else { None };
        let shown = token.get();
        let first = showing(builder, shown.as_ref());
        let response = first.send().await.map_err(unanswered)?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(builder) = again
            && token.is_replaced(shown.as_ref()).await
        {
            let second = showing(builder, token.get().as_ref());
            return success(second.send().await.map_err(unanswered)?).await;
        }
        success(response).await
    }

    fn builder(&self, server: &Url, request: &HttpRequest<'_>) -> Result<RequestBuilder, Failed> {
        let mut url = server.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(request.path);
            }
            // An address with a host, which this is, always has a path.
            Err(()) => {
                let reason = "its address has no path".to_owned();
                return Err(Failed::Unanswered { reason, sent: false });
            }
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut builder = self.inner.client.request(request.method.clone(), url);
        if let Some(key) = &request.key {
            builder = builder.header("idempotency-key", key);
        }
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        Ok(builder)
    }

    pub(super) async fn error(&self, failed: Failed, tries: u32) -> ClientError {
        match failed {
            Failed::Refused { refusal, .. } => ClientError::Refused(refusal),
            Failed::Ended => ClientError::JobEnded,
            Failed::Unanswered { reason, .. } => {
                let servers = &self.inner.servers;
                let server = servers.iter().map(Url::as_str).collect::<Vec<_>>().join(",");
                let used = servers.server(servers.used());
                let reason = match self.inner.tls.refusal(used.as_str()).await {
                    Some(refused) => refused.with_remedy(),
                    None => reason,
                };
                ClientError::Unreachable { server, tries, reason }
            }
        }
    }
}

impl Failed {
    /// Whether the same request may succeed later.
    pub(super) fn is_for_now(&self) -> bool {
        match self {
            Self::Unanswered { .. } => true,
            // Its producer decides whether to wait for a full queue.
            Self::Refused { refusal, .. } if refusal.code == QUEUE_FULL => false,
            Self::Ended => false,
            Self::Refused { refusal, .. } => matches!(refusal.status, 429 | 502..=504),
        }
    }

    /// Whether another server may well do better.
    fn is_of_the_server(&self) -> bool {
        match self {
            Self::Unanswered { .. } => true,
            Self::Refused { refusal, .. } => matches!(refusal.status, 502..=504),
            Self::Ended => false,
        }
    }

    fn may_repeat(&self, repeat: Repeat) -> bool {
        match repeat {
            Repeat::Safe | Repeat::WithKey => self.is_for_now(),
            Repeat::IfNotSent => matches!(self, Self::Unanswered { sent: false, .. }),
        }
    }

    /// How long to wait before the next try: what is due by itself, or what the server asks
    /// for and up to a quarter more, so that not everybody comes back at once.
    pub(super) fn pause(&self, backoff: &mut Backoff) -> Duration {
        let jitter = rand::random_range(0.0..1.0);
        let due = backoff.next(jitter);
        match self {
            Self::Refused { retry_after: Some(asked), .. } => {
                due.max(asked.mul_f64(1.0 + jitter / 4.0))
            }
            Self::Refused { retry_after: None, .. } | Self::Unanswered { .. } | Self::Ended => due,
        }
    }
}

fn showing(builder: RequestBuilder, token: Option<&MetadataValue<Ascii>>) -> RequestBuilder {
    match token.and_then(|token| HeaderValue::from_bytes(token.as_bytes()).ok()) {
        Some(mut value) => {
            value.set_sensitive(true);
            builder.header(AUTHORIZATION, value)
        }
        None => builder,
    }
}

async fn success(response: Response) -> Result<Response, Failed> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after = retry_after(response.headers());
    // If the body cannot be read, the status must do.
    let body = response.bytes().await.unwrap_or_default();
    let refusal = Box::new(Refusal { retry_after, ..Refusal::read(status, &body) });
    // A request that was cut off on its way is one that was never answered.
    if status == StatusCode::REQUEST_TIMEOUT {
        return Err(Failed::Unanswered { reason: refusal.message, sent: true });
    }
    Err(Failed::Refused { refusal, retry_after })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

#[expect(clippy::needless_pass_by_value, reason = "errors are handed over by value")]
fn unanswered(error: reqwest::Error) -> Failed {
    let reason = if error.is_timeout() && !error.is_connect() {
        "no answer in time".to_owned()
    } else {
        root_cause(&error)
    };
    Failed::Unanswered { reason, sent: !error.is_connect() && !error.is_builder() }
}
