//! One request: what it brings, and in which flavour its sender wants the answer.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use outlast_core::id::JobId;
use outlast_core::limits::PAGE_MAX;
use outlast_store::query::Page;
use outlast_wire::Fault;
use outlast_wire::ojs::error::ErrorBody;
use outlast_wire::ojs::{names, quirks};
use uuid::Uuid;

use super::answer::Answer;
use super::error::{self, Failure};
use super::page_origin::{self, Sender};
use super::{App, once};
use crate::access::{Found, KnownToken, Need, Shown};
use crate::connections::Peer;
use crate::intake::ANONYMOUS;
use crate::tls::CertificateNames;

/// Longest a client may take to send a body: a slow one must not hold a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Rows of a list unless asked otherwise.
const PAGE_DEFAULT: u32 = 50;
/// Parameters of a query that say which page is wanted, and may be empty.
const PLACES: &[&str] = &["limit", "cursor", "after"];
/// Longest request id that is given back.
const REQUEST_ID_MAX: usize = 128;

/// A request on its way through a handler.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) app: App,
    parts: Parts,
    body: Body,
    /// The token that was shown; none where the server knows none.
    who: Option<KnownToken>,
}

impl Call {
    pub(crate) fn new(app: App, request: Request<Body>) -> (Self, Caller) {
        let caller = Caller::of(&request);
        let (parts, body) = request.into_parts();
        (Self { app, parts, body, who: None }, caller)
    }

    /// Goes on if the token that was shown allows what the request needs.
    pub(crate) fn allowed(mut self, need: Need) -> Result<Self, Failure> {
        let settings = self.app.engine.settings();
        let certificate = self.parts.extensions.get::<Arc<CertificateNames>>();
        let shown = Shown {
            authorization: self.header(header::AUTHORIZATION.as_str()),
            certificate: certificate.map(AsRef::as_ref),
        };
        let what = format_args!("{} {}", self.method(), self.path());
        let (who, sender) = match settings.access.check(shown, need, what)? {
            Found::Anybody => (None, Some(Sender::Anybody)),
            Found::Certificate(name) => (Some(name), Some(Sender::Certificate)),
            Found::Token(token) => (Some(token), None),
        };
        self.who = who;
        if need == Need::Work
            && let Some(peer) = self.parts.extensions.get::<Arc<Peer>>()
        {
            peer.works();
        }
        if let Some(sender) = sender
            && !matches!(need, Need::Nothing | Need::Read)
        {
            page_origin::check(&self.parts, sender)?;
        }
        Ok(self)
    }

    pub(crate) const fn method(&self) -> &Method {
        &self.parts.method
    }

    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Returns the token that was shown, where the server knows any.
    pub(crate) const fn token(&self) -> Option<&KnownToken> {
        self.who.as_ref()
    }

    pub(crate) fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// Reads the body, bounded in length and in time.
    pub(crate) async fn body(&mut self) -> Result<Bytes, Failure> {
        self.is_json()?;
        let max = self.app.engine.settings().max_body;
        let body = Limited::new(std::mem::take(&mut self.body), max);
        match tokio::time::timeout(BODY_TIMEOUT, body.collect()).await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::TooLarge { max }),
            Ok(Err(error)) => {
                Err(Fault::payload(format!("request body could not be read: {error}")).into())
            }
            Err(_elapsed) => Err(Failure::TooSlow),
        }
    }

    /// Refuses a body that says to be something else than JSON. What `curl -d` says of any body
    /// says nothing.
    fn is_json(&self) -> Result<(), Failure> {
        let Some(kind) = self.header(header::CONTENT_TYPE.as_str()) else { return Ok(()) };
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_json = essence.ends_with("/json") || essence.ends_with("+json");
        if is_json || essence.is_empty() || essence == "application/x-www-form-urlencoded" {
            return Ok(());
        }
        let message = format!(
            "request body is {essence}; it must be application/openjobspec+json or \
             application/json"
        );
        Err(Fault::payload(message).into())
    }

    /// Returns a part of the path.
    pub(crate) async fn param(&mut self, name: &str) -> String {
        let params = RawPathParams::from_request_parts(&mut self.parts, &()).await;
        let params = params.ok();
        let found = params.as_ref().and_then(|params| params.iter().find(|(key, _)| *key == name));
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    }

    /// Returns the job that the path names. An id that no job can have is not found.
    pub(crate) async fn job(&mut self) -> Result<JobId, Failure> {
        let id = self.param("id").await;
        let id = Uuid::try_parse(&id).map_err(|_not| Failure::no_job(&id))?;
        Ok(JobId(id))
    }

    /// Returns the queue that the path names.
    pub(crate) async fn queue(&mut self) -> Result<String, Failure> {
        let name = self.param("name").await;
        names::queue(&name)?;
        Ok(name)
    }

    /// Refuses a parameter of the query that is not among the `known` ones, if those are
    /// all there are, and one that is empty: a filter that does not filter.
    pub(super) fn asking_only(
        self,
        known: Option<&'static [(&'static str, &'static str)]>,
    ) -> Result<Self, Failure> {
        let (Some(known), Some(query)) = (known, self.parts.uri.query()) else { return Ok(self) };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (name, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            let name = decoded(name);
            if !name.is_empty() && known.iter().all(|(one, _)| *one != name) {
                let all: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                let problem = format!("is not a parameter here; there are {}", all.join(", "));
                return Err(Fault::field(&name, problem).into());
            }
            let is_empty = decoded(value).split(',').all(|word| word.trim().is_empty());
            if is_empty && !PLACES.contains(&name.as_str()) && !name.is_empty() {
                let problem = "is empty, which would select everything; leave it out for that";
                return Err(Fault::rule(&name, problem).into());
            }
        }
        Ok(self)
    }

    /// Returns a parameter of the query, empty ones left out.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query()?;
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let found = pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next();
        found.filter(|value| !value.is_empty())
    }

    /// Returns a number in the query.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.query(name) else { return Ok(None) };
        let number = T::from_str(&text);
        number
            .map(Some)
            .map_err(|_not| Fault::field(name, "must be a whole number, not negative").into())
    }

    /// Returns a comma-separated list in the query.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let text = self.query(name).unwrap_or_default();
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Into::into).collect()
    }

    /// Returns which page of a list is wanted.
    pub(crate) fn page(&self) -> Result<Page, Failure> {
        self.page_of(PAGE_DEFAULT)
    }

    /// The same, of `standard` rows if the request does not say.
    pub(crate) fn page_of(&self, standard: u32) -> Result<Page, Failure> {
        let limit = self.number::<u32>("limit")?.unwrap_or(standard);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(Fault::field("limit", format!("must be from 1 to {PAGE_MAX}")).into());
        }
        Ok(Page { limit, cursor: self.query("cursor") })
    }

    /// Returns the tenant that the request is limited to.
    pub(crate) fn tenant(&self) -> Result<Option<String>, Failure> {
        let Some(value) = self.parts.headers.get("x-ojs-tenant") else { return Ok(None) };
        let name = value.to_str().unwrap_or_default();
        if name.is_empty() || name.len() > 255 {
            return Err(
                Fault::field("X-OJS-Tenant", "must be 1 to 255 printable characters").into()
            );
        }
        Ok(Some(name.to_owned()))
    }

    /// Returns a header's text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns who asks, for the event log.
    pub(crate) fn by(&self) -> String {
        let agent = self.header(header::USER_AGENT.as_str()).unwrap_or("unnamed client");
        let agent = agent.chars().take(100).collect::<String>();
        let who = self.who.as_ref().map_or(ANONYMOUS, |token| &token.name);
        format!("api: {who} ({agent})")
    }
}

/// Undoes percent-encoding; `+` is a space.
fn decoded(text: &str) -> String {
    if !text.contains(['%', '+']) {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let mut rest = bytes.clone();
                let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                match (hex(rest.next()), hex(rest.next())) {
                    (Some(high), Some(low)) => {
                        out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                        bytes = rest;
                    }
                    _ => out.push(b'%'),
                }
            }
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_request_id(id: &HeaderValue) -> bool {
    (1..=REQUEST_ID_MAX).contains(&id.len()) && id.to_str().is_ok()
}

fn new_request_id() -> HeaderValue {
    let mut buffer = Uuid::encode_buffer();
    let id = Uuid::now_v7().hyphenated().encode_lower(&mut buffer);
    HeaderValue::from_str(id).unwrap_or_else(|_never| HeaderValue::from_static("none"))
}

/// In which flavour a client wants its answers.
#[derive(Debug)]
pub(crate) struct Caller {
    content_type: &'static str,
    is_ojs: bool,
    is_head: bool,
    version: Option<HeaderValue>,
    request_id: HeaderValue,
}

impl Caller {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        let is_ojs = request.uri().path().starts_with("/ojs");
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let content_type = if is_ojs {
            quirks::content_type(text(header::USER_AGENT), text(header::ACCEPT))
        } else {
            "application/json"
        };
        let request_id = headers.get("x-request-id").filter(|id| is_request_id(id)).cloned();
        Self {
            content_type,
            is_ojs,
            is_head: request.method() == Method::HEAD,
            version: headers.get("ojs-version").cloned(),
            request_id: request_id.unwrap_or_else(new_request_id),
        }
    }

    /// A client of which nothing is known any more.
    pub(crate) fn unknown() -> Self {
        Self {
            content_type: "application/json",
            is_ojs: false,
            is_head: false,
            version: None,
            request_id: new_request_id(),
        }
    }

    /// Checks that client and server speak the same version of the standard.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Some(version) = self.version.as_ref().filter(|_| self.is_ojs) else { return Ok(()) };
        let text = version.to_str().unwrap_or_default();
        if text.split('.').next() == Some("1") {
            return Ok(());
        }
        let message = format!("OJS-Version {text:?} is not supported; this server speaks 1.0");
        Err(Failure::Unsupported(message))
    }

    /// Makes a response of what a handler returned.
    pub(crate) fn respond(&self, result: Result<Answer, Failure>) -> Response {
        match result {
            Ok(answer) => {
                let kind = answer.content_type.unwrap_or(self.content_type);
                let mut response = self.response(answer.status, kind, answer.body);
                if let Some(stream) = answer.stream.filter(|_| !self.is_head) {
                    *response.body_mut() = stream;
                    let headers = response.headers_mut();
                    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                    // A proxy that collects an answer would hold it back.
                    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
                }
                if let Some(option) = answer.unenforced {
                    let warning = format!("299 outlast \"`{option}` is stored and not enforced\"");
                    if let Ok(warning) = HeaderValue::from_str(&warning) {
                        response.headers_mut().insert(header::WARNING, warning);
                    }
                }
                let location = answer.location.map(HeaderValue::try_from);
                if let Some(Ok(location)) = location {
                    response.headers_mut().insert(header::LOCATION, location);
                }
                if answer.replayed {
                    let told = HeaderValue::from_static("true");
                    response.headers_mut().insert(once::REPLAYED, told);
                }
                response
            }
            Err(failure) => self.refuse(&failure),
        }
    }

    fn refuse(&self, failure: &Failure) -> Response {
        let id = self.request_id.to_str().unwrap_or_default();
        let (code, message) = (failure.code(), failure.message());
        let status = error::status(code);
        if status.is_server_error() {
            tracing::warn!(request_id = %id, %status, "request failed: {message}");
        }
        let details = failure.details();
        let body =
            ErrorBody { code, message: &message, details: details.as_deref(), request_id: id };
        let mut response = self.response(status, self.content_type, body.document());
        let headers = response.headers_mut();
        if let Some(seconds) = failure.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    fn response(&self, status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response {
        let body = if self.is_head { Body::empty() } else { Body::from(body) };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert("x-request-id", self.request_id.clone());
        if self.is_ojs {
            headers.insert("ojs-version", HeaderValue::from_static("1.0"));
        }
        // Nothing served here is meant to be read as anything but what it says it is.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}
