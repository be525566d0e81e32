//! The dashboard: pages for people, and what they may do there.
//!
//! ```text
//! GET page ─▶ read ─▶ a page of `outlast_dashboard` ─▶ HTML
//! GET live?page=… ─▶ the same page ─▶ what of it changes ─▶ JSON      (at most one a second for all who look)
//! POST page/order ─▶ the handler of the API ─▶ back to the page, or the page with what was refused
//! ```
//!
//! A page shows what the API returns, and an order does what the API does: both call the same functions.
//!
//! - [`frame`]: what stands around a page; [`response`]: responses with their headers; [`live`]: updates
//! - [`sign_in`]: with a token, once; [`orders`]: what buttons do; the others: a page each

mod catalog;
mod frame;
mod job;
mod jobs;
mod letters;
mod limits;
mod live;
mod log;
mod losses;
mod now;
mod numbers;
mod operations;
mod orders;
mod queues;
mod response;
mod run_form;
mod schedules;
mod search;
mod sessions;
mod sheet;
mod sign_in;
mod waits;
mod workers;
mod workflows;

use axum::extract::Request;
use axum::response::Response;
use axum::routing::MethodFilter;
use outlast_dashboard::Flash;

use super::App;
use super::error::{ApiError, Missing};
use super::request::{ApiRequest, decoded};
use super::route::Routes;
use crate::access::Scope;

pub(super) use live::Cache;

/// Paths of pages.
const PAGES: &[&str] = &[
    "/",
    "/waiting",
    "/jobs",
    "/jobs/{id}",
    "/operations",
    "/operations/new",
    "/operations/{id}",
    "/queues",
    "/queues/{name}",
    "/workers",
    "/workers/{id}",
    "/deploy",
    "/losses",
    "/failures",
    "/dead-letters",
    "/limits",
    "/limits/{name}",
    "/schedules",
    "/schedules/{name}",
    "/workflows",
    "/workflows/{id}",
    "/events",
    "/servers",
    "/actions",
    "/actions/{ref}",
    "/sessions",
];

pub(super) fn routes() -> Routes {
    let mut routes = Routes::new()
        .page(MethodFilter::GET, "/assets/{name}", |_app, request| async move {
            response::asset(request.uri().path())
        })
        .page(MethodFilter::GET, "/live", live::respond)
        .page(MethodFilter::GET, "/search", search::respond)
        .page(MethodFilter::GET, "/login", sign_in::show)
        .page(MethodFilter::POST, "/login", sign_in::sign_in)
        .page(MethodFilter::POST, "/logout", sign_in::sign_out);
    routes = routes.page(MethodFilter::POST, "/operations/begin", operations::begin);
    for path in PAGES {
        routes = routes.page(MethodFilter::GET, path, show);
    }
    routes.merge(orders::routes())
}

/// Shows a page.
async fn show(app: App, request: Request) -> Response {
    let is_head = request.method() == http::Method::HEAD;
    let asking = response::Asking::of(&request);
    let req = match ApiRequest::of_browser(app.clone(), request, Scope::Read).await {
        Ok(req) => req,
        Err(error) => return asking.refused(&app, error),
    };
    let done = req.query("done").and_then(|verb| orders::done(&verb));
    let said = done.map(|text| Flash { is_good: true, text: text.to_owned() });
    let response = match page(&req, said).await {
        Ok(html) => response::html(html, http::StatusCode::OK),
        Err(error) => response::failed(&req, &error).await,
    };
    response::without_body_if(is_head, response)
}

/// Writes the page that a request asks for.
async fn page(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let path = req.path().trim_matches('/').to_owned();
    let parts: Vec<String> = path.split('/').map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts[..] {
        [""] => now::page(req, said).await,
        ["waiting"] => waits::page(req, said).await,
        ["jobs"] => jobs::page(req, said).await,
        ["jobs", id] => job::page(req, id, said).await,
        ["operations"] => operations::list(req, said).await,
        ["operations", "new"] => operations::asks(req, said).await,
        ["operations", id] => operations::one(req, id, said).await,
        ["queues"] => queues::list(req, said).await,
        ["queues", name] => queues::one(req, name, said).await,
        ["workers"] => workers::list(req, said).await,
        ["workers", id] => workers::one(req, id, said).await,
        ["deploy"] => workers::deploy(req, said).await,
        ["losses"] => losses::page(req, said).await,
        ["failures"] => letters::failures(req, said).await,
        ["dead-letters"] => letters::list(req, said).await,
        ["limits"] => limits::list(req, said).await,
        ["limits", name] => limits::one(req, name, said).await,
        ["schedules"] => schedules::list(req, said).await,
        ["schedules", name] => schedules::one(req, name, said).await,
        ["workflows"] => workflows::list(req, said).await,
        ["workflows", id] => workflows::one(req, id, said).await,
        ["events"] => log::page(req, said).await,
        ["servers"] => catalog::servers(req, said).await,
        ["actions"] => catalog::list(req, said).await,
        ["actions", name] => catalog::one(req, name, said).await,
        ["sessions"] => sessions::page(req, said).await,
        _ => Err(ApiError::not_found(Missing::Path, format!("there is no page at /{path}"))),
    }
}
