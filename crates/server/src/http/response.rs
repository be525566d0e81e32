//! What a handler returns on success.

use axum::body::Body;
use http::StatusCode;
use outlast_wire::json::Object;

/// A response: a status and a document.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
    /// Set if it is not JSON in the client's format.
    pub(crate) content_type: Option<&'static str>,
    /// Set if the response is a stream; then there is no body.
    pub(crate) stream: Option<Body>,
    /// Whether the same request was answered before.
    pub(crate) replayed: bool,
    /// Path of the new resource.
    pub(crate) location: Option<String>,
}

impl ApiResponse {
    /// Returns 200 with a document.
    pub(crate) const fn ok(body: Vec<u8>) -> Self {
        Self {
            status: StatusCode::OK,
            body,
            content_type: None,
            stream: None,
            replayed: false,
            location: None,
        }
    }

    /// Returns 201 with a document.
    pub(crate) const fn created(body: Vec<u8>) -> Self {
        Self::ok(body).with_status(StatusCode::CREATED)
    }

    /// Returns 204.
    pub(crate) const fn nothing() -> Self {
        Self::ok(Vec::new()).with_status(StatusCode::NO_CONTENT)
    }

    /// Returns a stream.
    pub(crate) fn stream(status: StatusCode, kind: &'static str, stream: Body) -> Self {
        Self { stream: Some(stream), ..Self::text(kind, Vec::new()) }.with_status(status)
    }

    /// Returns 200 with an object.
    pub(crate) fn object(fill: impl FnOnce(&mut Object<'_>)) -> Self {
        Self::ok(object(fill))
    }

    /// Returns 200 with text of another type.
    pub(crate) fn text(content_type: &'static str, body: Vec<u8>) -> Self {
        Self { content_type: Some(content_type), ..Self::ok(body) }
    }

    /// Sets the path of the new resource.
    pub(crate) fn at(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    /// Sets whether the same request was answered before.
    pub(crate) const fn replayed(mut self, replayed: bool) -> Self {
        self.replayed = replayed;
        self
    }

    /// Changes the status.
    pub(crate) const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }
}

/// Writes an object.
pub(crate) fn object(fill: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut object = Object::begin(&mut out);
    fill(&mut object);
    object.end();
    out
}
