//! The HTTP APIs: OJS, executions, workers, health, metrics.
//!
//! A handler takes a [`call::Call`] and returns an [`answer::Answer`] or a
//! [`error::Failure`]; nothing else decides on status codes, content types or error bodies.
//! What a request's token must allow is said where its route is added ([`route`]).
//!
//! ```text
//! request ─▶ Call ─▶ handler ─▶ Answer  ─▶ response
//!                        └────▶ Failure ─▶ error body (http/error.rs)
//! ```
//!
//! Handlers read from the store and change things through the engine only.

mod answer;
mod call;
mod catalog;
mod doctor;
mod error;
mod events;
mod executions;
pub(crate) mod gate;
mod health;
mod metrics;
mod ojs;
mod once;
mod openapi;
mod orders;
mod page;
mod page_origin;
mod route;
mod shape;
mod show;
mod stream;
mod workers;

use std::any::Any;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use http::Method;
use outlast_core::time::{BootTime, Timestamp};
use tower_http::catch_panic::CatchPanicLayer;

use crate::Engine;
use crate::access::Need;
use crate::clock::boot_time;
use call::{Call, Caller};
use error::Failure;
use ojs::plain::PlainWorkers;
use route::Routes;

/// What every handler may use.
#[derive(Clone, Debug)]
pub(crate) struct App {
    engine: Engine,
    plain: Arc<PlainWorkers>,
    disk: Arc<doctor::LastLook>,
    started: BootTime,
    /// The answer of `/openapi.json`, written once the routes are known.
    description: Arc<OnceLock<Vec<u8>>>,
}

impl App {
    /// Returns the store's time, estimated from its latest answer where there is one.
    async fn now(&self) -> Result<Timestamp, Failure> {
        Ok(self.engine.now().await?)
    }
}

/// Returns all routes over `engine`.
pub fn router(engine: Engine) -> Router {
    let app = App {
        engine,
        plain: Arc::default(),
        disk: Arc::default(),
        started: boot_time(),
        description: Arc::default(),
    };
    let conformance = app.engine.settings().conformance;
    let routes = Routes::new()
        .merge(ojs::routes(conformance))
        .merge(executions::routes())
        .merge(catalog::routes())
        .merge(workers::routes())
        .merge(doctor::routes())
        .merge(events::routes())
        .merge(health::routes())
        .merge(openapi::routes());
    let (router, all) = routes.into_parts();
    let described = openapi::document(&all, app.engine.settings().version).to_string();
    // Nobody else has it yet.
    app.description.set(described.into_bytes()).unwrap_or_default();
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

async fn unknown_path(State(app): State<App>, request: Request) -> Response {
    nowhere(app, request, |_method, path| Failure::not_found(format!("there is nothing at {path}")))
}

async fn wrong_method(State(app): State<App>, request: Request) -> Response {
    nowhere(app, request, |method, path| Failure::Method(format!("{path} does not allow {method}")))
}

/// Answers where there is no route. Who may not read is not told which those are.
fn nowhere(app: App, request: Request, failure: fn(&Method, &str) -> Failure) -> Response {
    let (call, caller) = Call::new(app, request);
    let refused = match call.allowed(Need::Read) {
        Ok(call) => failure(call.method(), call.path()),
        Err(refused) => refused,
    };
    caller.respond(Err(refused))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over by value")]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let told = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = told.unwrap_or("unknown"), "a request handler panicked");
    Caller::unknown().respond(Err(Failure::Internal("internal error".to_owned())))
}
