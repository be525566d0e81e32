//! The HTTP APIs: OJS, executions, workers, health, metrics.
//!
//! A handler takes a [`call::Call`] and returns an [`answer::Answer`] or a
//! [`error::Failure`]; nothing else decides on status codes, content types or error bodies.
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
mod error;
mod executions;
mod health;
mod ojs;
mod orders;
mod page;
mod plan;
mod show;
mod workers;

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter};
use outlast_core::time::{BootTime, Timestamp};
use outlast_store::Store;
use tower_http::catch_panic::CatchPanicLayer;

use crate::Engine;
use crate::clock::boot_time;
use call::{Call, Caller};
use error::Failure;
use ojs::plain::PlainWorkers;

/// What every handler may use.
#[derive(Debug)]
pub(crate) struct App<S: Store> {
    engine: Engine<S>,
    plain: Arc<PlainWorkers>,
    started: BootTime,
}

impl<S: Store> Clone for App<S> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), plain: Arc::clone(&self.plain), started: self.started }
    }
}

impl<S: Store> App<S> {
    /// Returns the store's time, estimated from its latest answer where there is one.
    async fn now(&self) -> Result<Timestamp, Failure> {
        match self.engine.board().store_time() {
            Some(now) => Ok(now),
            None => Ok(self.engine.store().now().await?),
        }
    }
}

/// Returns all routes over `engine`.
pub fn router<S: Store>(engine: Engine<S>) -> Router {
    let app = App { engine, plain: Arc::new(PlainWorkers::default()), started: boot_time() };
    let conformance = app.engine.settings().conformance;
    let routes = Router::new()
        .merge(ojs::routes(conformance))
        .merge(executions::routes())
        .merge(catalog::routes())
        .merge(workers::routes())
        .merge(health::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked));
    routes.with_state(app)
}

/// Makes a route of a handler.
fn on<S, F, Fut>(method: MethodFilter, handler: F) -> MethodRouter<App<S>>
where
    S: Store,
    F: Fn(Call<S>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<answer::Answer, Failure>> + Send,
{
    axum::routing::on(
        method,
        move |axum::extract::State(app): axum::extract::State<App<S>>,
              request: axum::extract::Request| {
            let handler = handler.clone();
            async move {
                let (call, caller) = Call::new(app, request);
                match caller.check() {
                    Ok(()) => caller.respond(handler(call).await),
                    Err(failure) => caller.respond(Err(failure)),
                }
            }
        },
    )
}

fn get<S, F, Fut>(handler: F) -> MethodRouter<App<S>>
where
    S: Store,
    F: Fn(Call<S>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<answer::Answer, Failure>> + Send,
{
    on(MethodFilter::GET, handler)
}

fn post<S, F, Fut>(handler: F) -> MethodRouter<App<S>>
where
    S: Store,
    F: Fn(Call<S>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<answer::Answer, Failure>> + Send,
{
    on(MethodFilter::POST, handler)
}

fn delete<S, F, Fut>(handler: F) -> MethodRouter<App<S>>
where
    S: Store,
    F: Fn(Call<S>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<answer::Answer, Failure>> + Send,
{
    on(MethodFilter::DELETE, handler)
}

async fn unknown_path(request: axum::extract::Request) -> Response {
    let (parts, _body) = request.into_parts();
    let failure = Failure::not_found(format!("there is nothing at {}", parts.uri.path()));
    Caller::of(&parts).respond(Err(failure))
}

async fn wrong_method(request: axum::extract::Request) -> Response {
    let (parts, _body) = request.into_parts();
    let failure = Failure::Method(format!("{} does not allow {}", parts.uri.path(), parts.method));
    Caller::of(&parts).respond(Err(failure))
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
