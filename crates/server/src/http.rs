//! The HTTP APIs: OJS, executions, workers, health, metrics.
//!
//! A handler takes a [`request::ApiRequest`] and returns an [`response::ApiResponse`] or an
//! [`error::ApiError`]. Only the [`responder`] turns these into status codes, headers and error
//! bodies. A route says which role a request needs ([`route`]).
//!
//! ```text
//! request ─▶ ApiRequest ─▶ handler ─▶ ApiResponse ─┐
//!                                └──▶ ApiError ────┴▶ Responder ─▶ response
//! ```
//!
//! Handlers read from the store and change things through the engine only.

mod admission;
mod catalog;
mod commit_watch;
mod csrf;
mod cursor;
mod dead_letters;
mod doctor;
mod enqueue;
mod error;
mod event_log;
mod events;
mod executions;
mod findings;
pub(crate) mod gate;
mod health;
mod idempotency;
pub(crate) mod job_view;
mod limits;
mod metrics;
mod ojs;
mod openapi;
mod operations;
mod orders;
mod queues;
mod recent;
mod request;
mod responder;
mod response;
mod route;
mod schedules;
mod schema;
mod sessions;
mod sign_in;
mod skew;
mod stream;
mod ui;
mod workers;
mod workflows;

use std::any::Any;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use http::Method;
use outlast_core::time::{BootTime, Timestamp};
use outlast_store::StoreError;
use tower_http::catch_panic::CatchPanicLayer;

use crate::Engine;
use crate::access::Scope;
use crate::base_path::BasePath;
use crate::clock::boot_time;
use crate::settings::UiMode;
use crate::snapshot::{Snapshot, Snapshots};
use admission::Admission;
use error::{ApiError, Missing};
pub(crate) use limits::with_in_flight as limits_in_use;
use ojs::plain_workers::PlainWorkers;
use request::ApiRequest;
use responder::Responder;
use route::Routes;

/// What every handler may use.
#[derive(Clone, Debug)]
pub(crate) struct App {
    engine: Engine,
    plain: Arc<PlainWorkers>,
    disk: Arc<doctor::LastLook>,
    /// The numbers that all who look share.
    snapshots: Arc<Snapshots>,
    admission: Admission,
    started: BootTime,
    /// What happened in the last minutes, for findings.
    recent: Arc<recent::RecentEvents>,
    /// The latest updates of pages.
    updates: Arc<ui::Cache>,
    sign_ins: Arc<sign_in::SignIns>,
    /// The answer of `/openapi.json`, written once the routes are known.
    description: Arc<OnceLock<Vec<u8>>>,
}

impl App {
    /// Returns the store's time, estimated from its latest answer where there is one.
    async fn now(&self) -> Result<Timestamp, ApiError> {
        Ok(self.engine.now().await?)
    }

    /// Returns the numbers of the whole store, at most a second old.
    async fn snapshot(&self) -> Result<Arc<Snapshot>, StoreError> {
        self.snapshots.latest(&self.engine).await
    }
}

/// Returns all routes over `engine`.
pub fn router(engine: Engine) -> Router {
    let app = App {
        engine,
        plain: Arc::default(),
        disk: Arc::default(),
        snapshots: Arc::default(),
        admission: Admission::default(),
        started: boot_time(),
        recent: Arc::default(),
        updates: Arc::default(),
        sign_ins: Arc::default(),
        description: Arc::default(),
    };
    let conformance = app.engine.settings().conformance;
    let routes = Routes::new()
        .merge(ojs::routes(conformance))
        .merge(executions::routes())
        .merge(catalog::routes())
        .merge(workers::routes())
        .merge(limits::routes())
        .merge(schedules::routes())
        .merge(workflows::routes())
        .merge(operations::routes())
        .merge(dead_letters::routes())
        .merge(queues::routes())
        .merge(doctor::routes())
        .merge(events::routes())
        .merge(sessions::routes())
        .merge(health::routes())
        .merge(openapi::routes());
    let settings = app.engine.settings();
    let routes = if settings.ui == UiMode::Off { routes } else { routes.merge(ui::routes()) };
    let (router, all) = routes.into_parts();
    let described = openapi::document(&all, settings.version, &settings.base_path).to_string();
    // It is not shared yet.
    app.description.set(described.into_bytes()).unwrap_or_default();
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

/// Responds to a request that is not below the server's path.
pub(crate) fn outside<B>(request: &http::Request<B>, base: &BasePath) -> Response {
    let path = request.uri().path();
    let message =
        format!("there is nothing at {path}: this server is below {base}/ (`server.base_path`)");
    Responder::of(request).respond(Err(ApiError::not_found(Missing::Path, message)))
}

async fn unknown_path(State(app): State<App>, request: Request) -> Response {
    nowhere(app, request, |_method, path| {
        ApiError::not_found(Missing::Path, format!("there is nothing at {path}"))
    })
    .await
}

async fn wrong_method(State(app): State<App>, request: Request) -> Response {
    nowhere(app, request, |method, path| {
        ApiError::Method(format!("{path} does not allow {method}"))
    })
    .await
}

/// Responds if there is no route. Clients that may not read do not learn which routes exist.
async fn nowhere(app: App, request: Request, failure: fn(&Method, &str) -> ApiError) -> Response {
    let responder = Responder::of(&request);
    let refused = match ApiRequest::of_browser(app, request, Scope::Read).await {
        Ok(req) => failure(req.method(), req.path()),
        Err(refused) => refused,
    };
    responder.respond(Err(refused))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over by value")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = message.unwrap_or("unknown"), "a request handler panicked");
    Responder::unknown().respond(Err(ApiError::Internal("internal error".to_owned())))
}
