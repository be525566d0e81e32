//! A route: where it is, what it needs, what it is for. There is no other way to add one.

use std::borrow::Cow;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::MethodFilter;
use http::Method;
use outlast_store::Store;

use super::App;
use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use crate::access::Need;

/// What is said about a route where it is added.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: Cow<'static, str>,
    pub(crate) need: Need,
    /// What it does, in half a line.
    #[expect(dead_code, reason = "read by the description of the API, which comes next")]
    pub(crate) about: &'static str,
}

/// A route that reads.
pub(crate) fn get(path: impl Into<Cow<'static, str>>, need: Need, about: &'static str) -> Route {
    Route { method: Method::GET, path: path.into(), need, about }
}

/// A route that changes something.
pub(crate) fn post(path: impl Into<Cow<'static, str>>, need: Need, about: &'static str) -> Route {
    Route { method: Method::POST, path: path.into(), need, about }
}

/// A route that removes something.
pub(crate) fn delete(path: impl Into<Cow<'static, str>>, need: Need, about: &'static str) -> Route {
    Route { method: Method::DELETE, path: path.into(), need, about }
}

/// Routes that were added.
#[derive(Debug)]
pub(crate) struct Routes<S: Store> {
    router: Router<App<S>>,
    all: Vec<Route>,
}

impl<S: Store> Routes<S> {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), all: Vec::new() }
    }

    /// Adds a route with its handler.
    pub(crate) fn add<F, Fut>(mut self, route: Route, handler: F) -> Self
    where
        F: Fn(Call<S>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer, Failure>> + Send,
    {
        let need = route.need;
        let serve = move |State(app): State<App<S>>, request: Request| {
            let handler = handler.clone();
            async move {
                let (call, caller) = Call::new(app, request);
                let call = call.allowed(need).and_then(|call| caller.check().map(|()| call));
                match call {
                    Ok(call) => caller.respond(handler(call).await),
                    Err(failure) => caller.respond(Err(failure)),
                }
            }
        };
        let method = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET);
        self.router = self.router.route(&route.path, axum::routing::on(method, serve));
        self.all.push(route);
        self
    }

    /// Adds the routes of another part.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.all.extend(other.all);
        self
    }

    pub(crate) fn into_parts(self) -> (Router<App<S>>, Vec<Route>) {
        (self.router, self.all)
    }
}
