//! Updates of pages: what of a page changes, at most once a second for all who look at it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use outlast_core::time::{BootTime, Span};
use outlast_dashboard::live::Live;
use outlast_store::idempotency::Fingerprint;
use outlast_wire::Fault;

use super::{page, response};
use crate::access::{Role, Scope};
use crate::clock::boot_time;
use crate::http::App;
use crate::http::error::{self, ApiError};
use crate::http::request::{ApiRequest, decoded};

/// How long an update is good for everybody who asks for it.
const FRESH: Span = Span(900);
/// How long an update is remembered, and from how many on they are looked through.
const KEPT: Span = Span::from_secs(5);
const SWEEP_AT: usize = 50;
/// How many pages are remembered.
const PAGES_MAX: usize = 500;
/// Longest path and query of a page, in bytes.
const PATH_MAX: usize = 2_000;

/// The latest updates by page.
#[derive(Debug, Default)]
pub(in crate::http) struct Cache(Mutex<HashMap<Key, Arc<Slot>>>);

/// What tells updates apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    path: String,
    /// What its readers may do there.
    role: Option<Role>,
    /// Whose they are, if its readers see only theirs.
    reader: Option<Fingerprint>,
    tenant: Option<String>,
}

type Slot = tokio::sync::Mutex<Option<Update>>;

#[derive(Clone, Debug)]
struct Update {
    at: BootTime,
    document: Arc<str>,
    tag: Arc<str>,
}

impl Cache {
    fn slot(&self, key: Key) -> Arc<Slot> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that no one has asked for lately; who looks makes them again.
        let now = boot_time();
        let is_kept = |slot: &Arc<Slot>| {
            let is_asked_for = Arc::strong_count(slot) > 1;
            is_asked_for
                || slot.try_lock().is_ok_and(|slot| {
                    slot.as_ref().is_some_and(|update| now.since(update.at) < KEPT)
                })
        };
        if all.len() >= SWEEP_AT {
            all.retain(|_, slot| is_kept(slot));
        }
        if all.len() >= PAGES_MAX {
            all.clear();
        }
        Arc::clone(all.entry(key).or_default())
    }
}

pub(super) async fn respond(app: App, request: Request) -> Response {
    let asking = response::Asking::of(&request);
    let req = match ApiRequest::of_browser(app.clone(), request, Scope::Read).await {
        Ok(req) => req,
        Err(error) => return asking.refused(&app, error),
    };
    match update(&req).await {
        Ok(update) => {
            let known = req.header(header::IF_NONE_MATCH.as_str());
            sent(&update, known == Some(&*update.tag))
        }
        Err(failure) => {
            let mut response = Response::new(Body::from(failure.message().into_owned()));
            *response.status_mut() = error::status(failure.code());
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
            let nosniff = HeaderValue::from_static("nosniff");
            response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
            response
        }
    }
}

/// Returns the update of the page that is asked for: the latest one if it is new enough.
async fn update(req: &ApiRequest) -> Result<Update, ApiError> {
    let path = req.query("page").unwrap_or_default();
    let known = || Fault::field("page", "must be the path of a page");
    if path.len() > PATH_MAX {
        return Err(known().into());
    }
    let role = req.token().map(|token| token.role);
    let reader = req.session_key().filter(|_| is_of_reader(&path));
    let tenant = req.tenant()?;
    let slot = req.app.updates.slot(Key { path: path.clone(), role, reader, tenant });
    // One that is not there any more does not wait: while the store hangs, they would add up.
    let mut slot = slot.lock_owned().await;
    if let Some(update) = slot.as_ref()
        && boot_time().since(update.at) < FRESH
    {
        return Ok(update.clone());
    }
    let mut of = req.for_path(&path).ok_or_else(known)?;
    of.is_update = true;
    // It is made to its end though its reader has gone: the next one finds it.
    let making = tokio::spawn(async move {
        let html = page(&of, None).await?;
        let now = of.app.now().await?.as_millis();
        let (document, tag) = Live::of(&html, now).document();
        let update = Update { at: boot_time(), document: document.into(), tag: tag.into() };
        *slot = Some(update.clone());
        Ok(update)
    });
    making.await.map_err(|error| ApiError::Internal(error.to_string()))?
}

/// Whether a page shows its reader something else than other readers of the same role.
fn is_of_reader(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default().trim_matches('/');
    decoded(path.split('/').next().unwrap_or_default()) == "sessions"
}

fn sent(update: &Update, is_known: bool) -> Response {
    let body = if is_known { Body::empty() } else { Body::from(update.document.to_string()) };
    let mut response = Response::new(body);
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
    }
    if let Ok(tag) = HeaderValue::from_str(&update.tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
