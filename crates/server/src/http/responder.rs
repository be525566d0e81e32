//! Turns what a handler returned into an HTTP response.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Method, Request, StatusCode, header};
use outlast_wire::ojs::error::ErrorBody;
use outlast_wire::ojs::quirks;
use uuid::Uuid;

use super::error::{self, ApiError};
use super::idempotency;
use super::response::ApiResponse;

/// Longest request id that is returned.
const REQUEST_ID_MAX: usize = 128;

fn is_request_id(id: &HeaderValue) -> bool {
    (1..=REQUEST_ID_MAX).contains(&id.len()) && id.to_str().is_ok()
}

fn new_request_id() -> HeaderValue {
    let mut buffer = Uuid::encode_buffer();
    let id = Uuid::now_v7().hyphenated().encode_lower(&mut buffer);
    HeaderValue::from_str(id).unwrap_or_else(|_never| HeaderValue::from_static("none"))
}

/// Turns what a handler returned into the response format that the client asked for.
#[derive(Debug)]
pub(crate) struct Responder {
    content_type: &'static str,
    is_ojs: bool,
    is_head: bool,
    version: Option<HeaderValue>,
    request_id: HeaderValue,
}

impl Responder {
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

    /// Returns one for a client whose request is lost.
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
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        let Some(version) = self.version.as_ref().filter(|_| self.is_ojs) else { return Ok(()) };
        let text = version.to_str().unwrap_or_default();
        if text.split('.').next() == Some("1") {
            return Ok(());
        }
        let message = format!("OJS-Version {text:?} is not supported; this server speaks 1.0");
        Err(ApiError::Unsupported(message))
    }

    /// Turns the outcome of a handler into an HTTP response.
    pub(crate) fn respond(&self, result: Result<ApiResponse, ApiError>) -> Response {
        match result {
            Ok(answer) => {
                let kind = answer.content_type.unwrap_or(self.content_type);
                let mut response = self.response(answer.status, kind, answer.body);
                if let Some(stream) = answer.stream.filter(|_| !self.is_head) {
                    *response.body_mut() = stream;
                    let headers = response.headers_mut();
                    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                    // Keeps proxies from buffering the stream.
                    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
                }
                let location = answer.location.map(HeaderValue::try_from);
                if let Some(Ok(location)) = location {
                    response.headers_mut().insert(header::LOCATION, location);
                }
                if answer.replayed {
                    let replayed = HeaderValue::from_static("true");
                    response.headers_mut().insert(idempotency::REPLAYED, replayed);
                }
                response
            }
            Err(failure) => self.refuse(&failure),
        }
    }

    fn refuse(&self, failure: &ApiError) -> Response {
        let id = self.request_id.to_str().unwrap_or_default();
        let (code, message) = (failure.code(), failure.message());
        let status = error::status(code);
        if status.is_server_error() {
            tracing::warn!(request_id = %id, %status, "request failed: {message}");
        }
        let details = failure.details().map(|details| details.to_string());
        let body = ErrorBody {
            code,
            message: &message,
            details: details.as_deref(),
            request_id: id,
            hint: failure.hint(),
        };
        let mut response = self.response(status, self.content_type, body.document());
        let headers = response.headers_mut();
        if let Some(seconds) = failure.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(depth) = failure.depth() {
            headers.insert("x-ojs-queue-depth", HeaderValue::from(depth.jobs));
            headers.insert("x-ojs-queue-bound", HeaderValue::from(depth.max));
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
        // Browsers must not guess another type.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}
