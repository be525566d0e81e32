//! A route: its path, who may use it, and what it takes and returns. There is no other way to
//! add one.

use std::borrow::Cow;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::MethodFilter;
use http::{HeaderValue, Method, header};
use outlast_wire::ojs::error::Code;

use super::App;
use super::error::ApiError;
use super::request::ApiRequest;
use super::responder::Responder;
use super::response::ApiResponse;
use super::schema::Schema;
use crate::access::Scope;

/// A route's description.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: Cow<'static, str>,
    pub(crate) permission: Scope,
    /// Summary.
    pub(crate) about: &'static str,
    /// What it returns on success.
    pub(crate) gives: Schema,
    /// The status codes of that.
    pub(crate) statuses: &'static [u16],
    /// Its request body.
    pub(crate) takes: Option<Schema>,
    /// Query parameters with descriptions.
    pub(crate) query: &'static [(&'static str, &'static str)],
    /// Whether an `Idempotency-Key` is honoured.
    pub(crate) keyed: bool,
    /// Another media type that it can return.
    pub(crate) also: Option<&'static str>,
    /// Error codes that do not follow from the rest.
    pub(crate) refuses: &'static [Code],
}

/// The media type of a stream of events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

type Path = Cow<'static, str>;

impl Route {
    fn new(
        method: Method,
        path: Path,
        permission: Scope,
        about: &'static str,
        gives: Schema,
    ) -> Self {
        Self {
            method,
            path,
            permission,
            about,
            gives,
            statuses: &[200],
            takes: None,
            query: &[],
            keyed: false,
            also: None,
            refuses: &[],
        }
    }

    pub(crate) const fn takes(mut self, shape: Schema) -> Self {
        self.takes = Some(shape);
        self
    }

    pub(crate) const fn statuses(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }

    pub(crate) const fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    /// Marks it as an enqueue: it returns 201, or 200 if a unique job was there before, and can be
    /// repeated with a key.
    pub(crate) const fn enqueues(mut self, shape: Schema) -> Self {
        self.takes = Some(shape);
        self.statuses = &[200, 201];
        self.keyed = true;
        self
    }

    /// Marks it as able to be repeated with a key.
    pub(crate) const fn repeatable(mut self, shape: Schema) -> Self {
        self.takes = Some(shape);
        self.keyed = true;
        self
    }

    /// Marks it as creating a resource.
    pub(crate) const fn creates(mut self) -> Self {
        self.statuses = &[201];
        self
    }

    /// Marks it as able to stream events. It returns 204 where no more will come.
    pub(crate) const fn streams(self) -> Self {
        self.statuses(&[200, 204]).also(EVENT_STREAM)
    }

    pub(crate) const fn also(mut self, media_type: &'static str) -> Self {
        self.also = Some(media_type);
        self
    }

    pub(crate) const fn refuses(mut self, codes: &'static [Code]) -> Self {
        self.refuses = codes;
        self
    }

    pub(crate) fn is_of_the_standard(&self) -> bool {
        self.path.starts_with("/ojs")
    }

    /// Whether parts of the request other than its body are checked.
    fn is_picky(&self) -> bool {
        let named = self.path.contains("{name}");
        // Jobs of the standard are looked up for a tenant.
        let owned = self.is_of_the_standard() && self.path.contains("{id}");
        let asked = self.query.iter().any(|(name, _)| *name == "limit");
        named || owned || asked || self.is_exact()
    }

    /// Whether a parameter of the query that it does not know, or an empty one, is refused: a slip
    /// there would be a filter that does not filter. The standard lets servers pass over what they do
    /// not know, and its clients may send it. A probe that is refused would have a sound server
    /// restarted.
    fn is_exact(&self) -> bool {
        !self.is_of_the_standard() && !self.path.starts_with("/health")
    }

    fn names_something(&self) -> bool {
        // Any name will do for a queue that is paused.
        let shown = self.path.contains('{') && self.gives != Schema::QueueOrder;
        // What is set need not be there before.
        let shown = shown && self.method != Method::PUT;
        shown || self.query.iter().any(|(name, _)| *name == "worker")
    }

    /// Returns every code it may be refused with, in the catalogue's order.
    pub(crate) fn codes(&self) -> Vec<Code> {
        let may = |code: &Code| match code {
            Code::InvalidPayload | Code::PayloadTooLarge | Code::RequestTimeout => {
                self.takes.is_some()
            }
            Code::InvalidRequest => self.takes.is_some() || self.is_picky(),
            Code::Unauthenticated => self.permission != Scope::Nothing,
            // Every role may read.
            Code::PermissionDenied => !matches!(self.permission, Scope::Nothing | Scope::Read),
            Code::NotFound => self.names_something(),
            // The standard's version is checked of every request.
            Code::Unsupported => self.is_of_the_standard(),
            Code::ValidationError => self.keyed || (self.is_exact() && !self.query.is_empty()),
            Code::Conflict => self.keyed,
            // An operation stores no jobs.
            Code::Duplicate | Code::QueueFull => self.keyed && self.gives != Schema::Operation,
            Code::Unavailable => !self.gives.is_at_hand(),
            Code::Internal => true,
            // Of no route: there is none.
            Code::MethodNotAllowed => false,
        };
        let all = Code::ALL.into_iter();
        all.filter(|code| may(code) || self.refuses.contains(code)).collect()
    }
}

/// Keeps a response out of shared caches, which would give others what a cookie let one reader see.
fn not_cached(mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(no_store);
    response
}

/// A route that reads.
pub(crate) fn get(
    path: impl Into<Path>,
    permission: Scope,
    about: &'static str,
    gives: Schema,
) -> Route {
    Route::new(Method::GET, path.into(), permission, about, gives)
}

/// A route that changes something.
pub(crate) fn post(
    path: impl Into<Path>,
    permission: Scope,
    about: &'static str,
    gives: Schema,
) -> Route {
    Route::new(Method::POST, path.into(), permission, about, gives)
}

/// A route that creates or replaces something under a name that the client chooses.
pub(crate) fn put(
    path: impl Into<Path>,
    permission: Scope,
    about: &'static str,
    gives: Schema,
) -> Route {
    Route::new(Method::PUT, path.into(), permission, about, gives)
}

/// A route that changes a part of something.
pub(crate) fn patch(
    path: impl Into<Path>,
    permission: Scope,
    about: &'static str,
    gives: Schema,
) -> Route {
    Route::new(Method::PATCH, path.into(), permission, about, gives)
}

/// A route that removes something.
pub(crate) fn delete(
    path: impl Into<Path>,
    permission: Scope,
    about: &'static str,
    gives: Schema,
) -> Route {
    Route::new(Method::DELETE, path.into(), permission, about, gives)
}

/// Routes that were added.
#[derive(Debug)]
pub(crate) struct Routes {
    router: Router<App>,
    all: Vec<Route>,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), all: Vec::new() }
    }

    /// Adds a route with its handler.
    pub(crate) fn add<F, Fut>(mut self, route: Route, handler: F) -> Self
    where
        F: Fn(ApiRequest) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<ApiResponse, ApiError>> + Send,
    {
        let permission = route.permission;
        let known = route.is_exact().then_some(route.query);
        let serve = move |State(app): State<App>, request: Request| {
            let handler = handler.clone();
            async move {
                let responder = Responder::of(&request);
                let req = ApiRequest::new(app, request);
                // What a session may do beyond reading, it does on pages, which check where orders
                // come from.
                let req = if req.method().is_safe() { req.signed_in().await } else { Ok(req) };
                let req = req.and_then(|req| req.allowed(permission));
                let req = req.and_then(|req| responder.check().map(|()| req));
                let req = req.and_then(|req| req.asking_only(known));
                match req {
                    Ok(req) => {
                        let is_readers_own = req.session().is_some();
                        let response = responder.respond(handler(req).await);
                        if is_readers_own { not_cached(response) } else { response }
                    }
                    Err(error) => responder.respond(Err(error)),
                }
            }
        };
        let method = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET);
        self.router = self.router.route(&route.path, axum::routing::on(method, serve));
        self.all.push(route);
        self
    }

    /// Adds a page for people. The description of the API leaves it out.
    pub(crate) fn page<F, Fut>(mut self, method: MethodFilter, path: &str, serve: F) -> Self
    where
        F: Fn(App, Request) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Response> + Send,
    {
        let serve = move |State(app): State<App>, request: Request| serve(app, request);
        self.router = self.router.route(path, axum::routing::on(method, serve));
        self
    }

    /// Adds the routes of another part.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.all.extend(other.all);
        self
    }

    pub(crate) fn into_parts(self) -> (Router<App>, Vec<Route>) {
        (self.router, self.all)
    }
}
