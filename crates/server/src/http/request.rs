//! A request: who sent it, and what it asks for.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use outlast_core::author::Author;
use outlast_core::id::JobId;
use outlast_core::limits::PAGE_MAX;
use outlast_core::time::Timestamp;
use outlast_store::idempotency::Fingerprint;
use outlast_store::query::Page;
use outlast_wire::ojs::names;
use outlast_wire::{Fault, time};
use uuid::Uuid;

use super::App;
use super::admission::Admitted;
use super::csrf::{self, Sender};
use super::error::ApiError;
use super::sign_in::{self, SignedIn};
use crate::access::{Credentials, Denied, KnownToken, Principal, Scope};
use crate::connections::Peer;
use crate::id;
use crate::intake::ANONYMOUS;
use crate::tls::CertificateNames;

/// How much of a body that is too long is taken before it is refused, in bytes.
const DISCARDED_MAX: usize = 64 << 20;
/// Longest a client may take to send a body: a slow one must not hold a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Rows of a list unless asked otherwise.
const PAGE_DEFAULT: u32 = 50;
/// Longest name of a client that the event log takes, in characters.
const AGENT_MAX: usize = 100;
/// Query parameters that select a page, and may be empty.
const PLACES: &[&str] = &["limit", "cursor", "after"];

/// A request that is being handled.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) app: App,
    parts: Parts,
    /// Never locked: requests are looked at from several threads, and bodies alone may not be.
    body: Mutex<Body>,
    /// The client's token; none if the server has none.
    who: Option<KnownToken>,
    /// How the client is known: the first word of [`Author`].
    known_by: &'static str,
    /// The browser's session, if it is signed in.
    session: Option<SignedIn>,
    /// What the request needs.
    permission: Option<Scope>,
    /// The room that its body takes.
    admitted: Option<Admitted>,
    /// Whether a page is asked for only to see what of it has changed.
    pub(super) is_update: bool,
    /// How long its body may be.
    body_max: usize,
}

/// Takes the rest of a body that is too long, within bounds: a client that is still sending sees its
/// connection break instead of the answer, and sends it all again.
async fn discard(body: &mut Body) {
    let reading = async {
        let mut rest = 0;
        while let Some(Ok(frame)) = body.frame().await {
            rest += frame.data_ref().map_or(0, Bytes::len);
            if rest > DISCARDED_MAX {
                break;
            }
        }
    };
    // The client is answered whether or not all of it was read.
    let _ = tokio::time::timeout(BODY_TIMEOUT, reading).await;
}

impl ApiRequest {
    pub(crate) fn new(app: App, request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        let body_max = app.engine.settings().max_body;
        Self {
            app,
            parts,
            body: Mutex::new(body),
            who: None,
            known_by: "api",
            session: None,
            permission: None,
            admitted: None,
            is_update: false,
            body_max,
        }
    }

    /// Lets a request in that may come from a browser, if its token or session allows what it needs.
    pub(super) async fn of_browser(
        app: App,
        request: Request<Body>,
        permission: Scope,
    ) -> Result<Self, ApiError> {
        Self::new(app, request).signed_in().await?.allowed(permission)
    }

    /// Looks up whether a browser is signed in. What comes with a header of its own is no browser's.
    pub(crate) async fn signed_in(mut self) -> Result<Self, ApiError> {
        if !self.parts.headers.contains_key(header::AUTHORIZATION) {
            self.session = sign_in::signed_in(&self.app, &self.parts).await?;
        }
        Ok(self)
    }

    /// Returns the browser's session.
    pub(super) const fn session(&self) -> Option<&SignedIn> {
        self.session.as_ref()
    }

    /// Returns the head of the request.
    pub(super) const fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Checks that the client's token allows what the request needs.
    pub(crate) fn allowed(mut self, permission: Scope) -> Result<Self, ApiError> {
        let settings = self.app.engine.settings();
        let certificate = self.parts.extensions.get::<Arc<CertificateNames>>();
        let shown = Credentials {
            authorization: self.header(header::AUTHORIZATION.as_str()),
            session: self.session.as_ref().map(|session| &session.token),
            certificate: certificate.map(AsRef::as_ref),
        };
        let what = format_args!("{} {}", self.method(), self.path());
        let (who, sender, known_by) = match settings.access.check(shown, permission, what)? {
            Principal::Anybody => (None, Some(Sender::Anybody), "api"),
            Principal::Certificate(name) => (Some(name), Some(Sender::Certificate), "certificate"),
            Principal::Token(token) => (Some(token), None, "api"),
            Principal::Session(token) => (Some(token), None, "dashboard"),
        };
        (self.who, self.known_by) = (who, known_by);
        self.permission = Some(permission);
        if permission == Scope::Work
            && let Some(peer) = self.parts.extensions.get::<Arc<Peer>>()
        {
            peer.works();
        }
        let changes = match permission {
            Scope::Nothing => false,
            Scope::Read => !self.method().is_safe(),
            _ => true,
        };
        if let Some(sender) = sender.filter(|_| changes) {
            csrf::check(&self.parts, sender)?;
        }
        Ok(self)
    }

    /// Refuses an order that was sent by a page of another site, however the client is identified: a proxy may
    /// have added its token.
    pub(super) fn of_own_page(mut self) -> Result<Self, ApiError> {
        csrf::check_page(&self.parts)?;
        if self.known_by == "api" {
            self.known_by = "dashboard";
        }
        Ok(self)
    }

    /// Whether pages that this server showed to the client may give orders.
    pub(super) fn may_order(&self) -> bool {
        self.who.is_some() || csrf::is_known_host(&self.parts)
    }

    /// Returns what the sessions of the client's token are stored under.
    pub(super) fn session_key(&self) -> Option<Fingerprint> {
        self.who.as_ref().map(|token| token.hash.session_key())
    }

    /// Returns a request of the same client for another path and query, without a body.
    pub(super) fn for_path(&self, path: &str) -> Option<Self> {
        let mut parts = self.parts.clone();
        parts.method = Method::GET;
        parts.uri = format!("/{path}").parse().ok()?;
        let (app, who, session) = (self.app.clone(), self.who.clone(), self.session.clone());
        Some(Self {
            app,
            parts,
            body: Mutex::default(),
            who,
            known_by: self.known_by,
            session,
            permission: None,
            admitted: None,
            is_update: false,
            body_max: 0,
        })
    }

    /// Reads the fields of a form of so many bytes at most.
    pub(super) async fn fields_up_to(
        &mut self,
        max: usize,
    ) -> Result<Vec<(String, String)>, ApiError> {
        self.body_max = self.body_max.min(max);
        self.fields().await
    }

    /// Reads the fields of a form.
    pub(super) async fn fields(&mut self) -> Result<Vec<(String, String)>, ApiError> {
        let body = self.body().await?;
        let text = String::from_utf8_lossy(&body);
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Ok(pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    /// The same request with these fields as its query.
    pub(super) fn with_query(mut self, fields: &[(String, String)]) -> Self {
        let pairs =
            fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        // What is encoded is a query.
        if let Ok(uri) = format!("{}?{query}", self.parts.uri.path()).parse() {
            self.parts.uri = uri;
        }
        self
    }

    /// The same request with this body.
    pub(super) fn with_json(mut self, body: &serde_json::Value) -> Self {
        let json = http::HeaderValue::from_static("application/json");
        self.parts.headers.insert(header::CONTENT_TYPE, json);
        self.body = Mutex::new(Body::from(body.to_string()));
        self
    }

    /// The same request with a header, if that can be one.
    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = http::HeaderValue::from_str(value) {
            self.parts.headers.insert(name, value);
        }
        self
    }

    /// Checks once more what was checked when the request came: its token or its session may have ended.
    pub(super) async fn still_allowed(&self) -> Result<(), ApiError> {
        let again = Request::from_parts(self.parts.clone(), Body::empty());
        let again = Self::new(self.app.clone(), again);
        let again = if self.session.is_some() { again.signed_in().await? } else { again };
        again.allowed(self.permission.unwrap_or(Scope::Read)).map(drop)
    }

    /// Returns the path and the query, without the slash that they begin with.
    pub(super) fn path_and_query(&self) -> &str {
        let all = self.parts.uri.path_and_query().map_or("", |all| all.as_str());
        all.strip_prefix('/').unwrap_or(all)
    }

    pub(crate) const fn method(&self) -> &Method {
        &self.parts.method
    }

    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Returns the client's token, if the server has any.
    pub(crate) const fn token(&self) -> Option<&KnownToken> {
        self.who.as_ref()
    }

    pub(crate) fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// Reads the body, bounded in length and in time, once there is room for it.
    pub(crate) async fn body(&mut self) -> Result<Bytes, ApiError> {
        self.is_json()?;
        let max = self.body_max;
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut body = std::mem::take(body);
        let announced = body.size_hint().upper();
        let length = announced.and_then(|it| usize::try_from(it).ok()).unwrap_or(max).min(max);
        self.admitted = Some(self.app.admission.admit(length, self.permission).await?);
        let limited = Limited::new(&mut body, max);
        match tokio::time::timeout(BODY_TIMEOUT, limited.collect()).await {
            Ok(Ok(collected)) => {
                let body = collected.to_bytes();
                self.holds_only(body.len());
                Ok(body)
            }
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                self.holds_only(0);
                discard(&mut body).await;
                Err(ApiError::TooLarge { max })
            }
            Ok(Err(error)) => {
                Err(Fault::payload(format!("request body could not be read: {error}")).into())
            }
            Err(_elapsed) => Err(ApiError::TooSlow),
        }
    }

    /// Gives back the room that its body took, but for so many bytes that it still holds.
    pub(crate) fn holds_only(&mut self, bytes: usize) {
        match &mut self.admitted {
            Some(admitted) if bytes > 0 => admitted.keep(bytes),
            admitted => *admitted = None,
        }
    }

    /// Refuses a body whose content type is not JSON. The one that `curl -d` sends by default is
    /// ignored.
    fn is_json(&self) -> Result<(), ApiError> {
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
        found.map(|(_, value)| without_null(value)).unwrap_or_default()
    }

    /// Returns the job that the path names. An id that no job can have is not found.
    pub(crate) async fn job(&mut self) -> Result<JobId, ApiError> {
        let id = self.param("id").await;
        let id = Uuid::try_parse(&id).map_err(|_not| ApiError::no_job(&id))?;
        Ok(JobId(id))
    }

    /// Returns the queue that the path names.
    pub(crate) async fn queue(&mut self) -> Result<String, ApiError> {
        let name = self.param("name").await;
        names::queue(&name)?;
        Ok(name)
    }

    /// Refuses query parameters that are not `known`, if the route lists them, and empty ones:
    /// a mistake there would be a filter that does not filter.
    pub(super) fn asking_only(
        self,
        known: Option<&'static [(&'static str, &'static str)]>,
    ) -> Result<Self, ApiError> {
        let (Some(known), Some(query)) = (known, self.parts.uri.query()) else { return Ok(self) };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for (name, value) in pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))) {
            let name = decoded(name);
            if !name.is_empty() && known.iter().all(|(one, _)| *one != name) {
                let all: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                let problem = match &all[..] {
                    [] => "is not a parameter here; there are none".to_owned(),
                    all => format!("is not a parameter here; known are {}", all.join(", ")),
                };
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

    /// Returns every value of a parameter that may be given several times, empty ones left out.
    pub(crate) fn every(&self, name: &str) -> Vec<String> {
        let pairs = self.parts.uri.query().unwrap_or_default().split('&');
        let pairs = pairs.filter_map(|pair| pair.split_once('='));
        let found = pairs.filter(|(key, _)| decoded(key) == name).map(|(_, value)| decoded(value));
        found.filter(|value| !value.is_empty()).collect()
    }

    /// Returns a number in the query.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(text) = self.query(name) else { return Ok(None) };
        let number = T::from_str(&text);
        number
            .map(Some)
            .map_err(|_not| Fault::field(name, "must be a whole number, not negative").into())
    }

    /// Returns the time in the query, which may also be how long ago it was.
    pub(crate) fn time(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
        let Some(text) = self.query(name) else { return Ok(None) };
        time::past(name, &text, now).map(Some)
    }

    /// Returns whether the query asks for something that is on or off.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Fault> {
        match self.query(name).as_deref() {
            Some("true" | "1") => Ok(true),
            Some("false" | "0") | None => Ok(false),
            Some(_) => Err(Fault::field(name, "must be `true` or `false`")),
        }
    }

    /// Returns the first and the last id with the prefix in the parameter `id`. Hyphens do not
    /// matter.
    pub(crate) fn ids(&self) -> Result<Option<(Uuid, Uuid)>, ApiError> {
        let Some(prefix) = self.query("id") else { return Ok(None) };
        Ok(Some(id::that_begin(&outlast_wire::id::digits("id", "first", &prefix)?)))
    }

    /// Returns the digits that an id ends with, from the parameter `id_suffix`, without hyphens.
    pub(crate) fn id_suffix(&self) -> Result<Option<String>, Fault> {
        let suffix = self.query("id_suffix");
        suffix.map(|suffix| outlast_wire::id::digits("id_suffix", "last", &suffix)).transpose()
    }

    /// Returns a comma-separated list in the query.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let text = self.query(name).unwrap_or_default();
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Into::into).collect()
    }

    /// Returns the page of a list that is asked for.
    pub(crate) fn page(&self) -> Result<Page, ApiError> {
        self.page_of(PAGE_DEFAULT)
    }

    /// The same, with `standard` rows by default.
    pub(crate) fn page_of(&self, standard: u32) -> Result<Page, ApiError> {
        let limit = self.number::<u32>("limit")?.unwrap_or(standard);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(Fault::field("limit", format!("must be from 1 to {PAGE_MAX}")).into());
        }
        Ok(Page { limit, cursor: self.query("cursor") })
    }

    /// Returns the tenant that the request is limited to.
    pub(crate) fn tenant(&self) -> Result<Option<String>, ApiError> {
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

    /// Refuses a client whose role does not allow `what`, beyond what its route asks for.
    pub(crate) fn require(&self, scope: Scope, what: &str) -> Result<(), ApiError> {
        match &self.who {
            Some(KnownToken { name, role, .. }) if !role.allows(scope) => {
                let message = format!(
                    "{name:?} has the role {role}; {what} needs the role {}",
                    scope.roles()
                );
                Err(ApiError::Denied(Denied::Forbidden(message)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns who changes something by the request, and from where, for the event log.
    pub(crate) fn by(&self) -> String {
        Author { who: &self.client(), from: sign_in::address(&self.parts) }.to_string()
    }

    /// Returns the client alone: who reports work is no author of a change.
    pub(crate) fn client(&self) -> String {
        let agent = self.header(header::USER_AGENT.as_str()).unwrap_or("unnamed client");
        let agent = agent.chars().take(AGENT_MAX).collect::<String>();
        let who = self.who.as_ref().map_or(ANONYMOUS, |token| &token.name);
        format!("{}: {who} ({agent})", self.known_by)
    }
}

/// Writes a text so that it may stand in a query or a path.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Undoes percent-encoding; `+` is a space.
pub(super) fn decoded(text: &str) -> String {
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
    without_null(&String::from_utf8_lossy(&out))
}

/// Replaces the null character: PostgreSQL takes no text with one, and nothing has it in its name.
fn without_null(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
