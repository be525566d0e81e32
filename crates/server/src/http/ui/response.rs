//! Responses of the dashboard, with the headers that browsers go by.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, header};
use outlast_dashboard::pages::{ErrorPage, html as written};
use outlast_dashboard::{Frame, Place, Reader, assets};

use super::frame;
use crate::http::App;
use crate::http::error::{self, ApiError};
use crate::http::request::ApiRequest;
use crate::http::responder::Responder;

/// Scripts and styles of this server only, and texts never become HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// An asset has another name once it is another.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

pub(super) fn html(page: String, status: StatusCode) -> Response {
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers a request for the headers alone.
pub(super) fn without_body_if(is_head: bool, mut response: Response) -> Response {
    if is_head {
        *response.body_mut() = Body::empty();
    }
    response
}

/// Sends a browser to another page. The way is relative, so that it holds behind any proxy.
pub(super) fn to(location: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let location = HeaderValue::try_from(location).unwrap_or(HeaderValue::from_static("./"));
    response.headers_mut().insert(header::LOCATION, location);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn asset(path: &str) -> Response {
    let name = path.rsplit('/').next().unwrap_or_default();
    let Some(asset) = assets::find(name) else {
        let mut response = Response::new(Body::from("there is no such file\n"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let mut response = Response::new(Body::from(asset.bytes));
    let cached = if name == assets::ICON.name { "public, max-age=3600" } else { FOR_EVER };
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, cached),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The frame of a page for readers whom the server does not know.
pub(super) fn bare(app: &App, title: &str, depth: usize) -> Frame {
    Frame {
        place: Place::Elsewhere,
        title: title.to_owned(),
        depth,
        path: String::new(),
        reader: Reader::default(),
        now: crate::clock::wall(),
        counted: None,
        server: "This page shows nothing of the server".to_owned(),
        trouble: None,
        version: app.engine.settings().version,
        command: "outlast --help".to_owned(),
        flash: None,
        is_live: false,
        is_bare: true,
    }
}

/// Who cannot be told by a page why there is none: who asked, and for what kind of answer.
pub(super) struct Asking {
    responder: Responder,
    wants_page: bool,
    method: Method,
    /// Whether it names a token by itself.
    has_header: bool,
    /// Its path and query, without the slash that they begin with.
    path: String,
}

impl Asking {
    pub(super) fn of(request: &Request) -> Self {
        let accepts = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let wants_page = accepts.is_some_and(|kinds| kinds.contains("text/html"));
        let path = request.uri().path_and_query().map_or("", |all| all.as_str());
        Self {
            responder: Responder::of(request),
            wants_page,
            method: request.method().clone(),
            has_header: request.headers().contains_key(header::AUTHORIZATION),
            path: path.strip_prefix('/').unwrap_or(path).to_owned(),
        }
    }

    /// Says why someone may not read or do something: in a page to a browser, and else as the API does. A
    /// browser that is not signed in gets the page that signs in.
    pub(super) fn refused(&self, app: &App, error: ApiError) -> Response {
        let message = error.message().into_owned();
        let plain = self.responder.respond(Err(error));
        if !self.wants_page {
            return plain;
        }
        let is_unknown = plain.status() == StatusCode::UNAUTHORIZED;
        let path = self.path.split('?').next().unwrap_or_default();
        let depth = path.matches('/').count();
        let mut sign_in = None;
        if is_unknown && !self.has_header && app.engine.settings().access.has_tokens() {
            let root = if depth == 0 { "./".to_owned() } else { "../".repeat(depth) };
            // An order is of the page above it.
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let reads = self.method.is_safe();
            let next = if reads { self.path.as_str() } else { folder };
            let way = format!("{root}{}", frame::sign_in_for(next));
            if reads {
                return to(&way);
            }
            sign_in = Some(way);
        }
        let title = match plain.status() {
            _ if sign_in.is_some() => "Signed out",
            StatusCode::SERVICE_UNAVAILABLE => "Not now",
            _ => "No access",
        };
        let message = match &sign_in {
            Some(_) => "You are signed out. Nothing was changed.".to_owned(),
            None => message,
        };
        let hint = "A browser is let in by a token, a client certificate, or through a proxy that adds the token.";
        let hint = (is_unknown && sign_in.is_none()).then(|| hint.to_owned());
        let frame = bare(app, title, depth);
        let page = ErrorPage { frame, message, hint, back: None, sign_in };
        let mut response = html(written(&page), plain.status());
        for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER] {
            if let Some(value) = plain.headers().get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response
    }
}

/// Shows why there is no page.
pub(super) async fn failed(req: &ApiRequest, failure: &ApiError) -> Response {
    because(req, failure, None).await
}

/// Shows why an order was not carried out, with the way back to the page it was given on.
pub(super) async fn not_done(req: &ApiRequest, failure: &ApiError, back: String) -> Response {
    because(req, failure, Some(back)).await
}

async fn because(req: &ApiRequest, failure: &ApiError, back: Option<String>) -> Response {
    let status = error::status(failure.code());
    if status.is_server_error() {
        tracing::warn!(%status, "page failed: {}", failure.message());
    }
    let title = match (status, &back) {
        (_, Some(_)) => "Not done",
        (StatusCode::NOT_FOUND, None) => "Not found",
        (StatusCode::SERVICE_UNAVAILABLE, None) => "Not now",
        (_, None) => "This did not work",
    };
    let (title, command) = (title.to_owned(), "outlast doctor".to_owned());
    let frame = frame::of(req, Place::Elsewhere, title, command).await;
    let hint = Some(failure.hint().to_owned()).filter(|hint| back.is_none() && !hint.is_empty());
    let message = failure.message().into_owned();
    html(written(&ErrorPage { frame, message, hint, back, sign_in: None }), status)
}
