//! A route: where it is, what it needs, what it is for. There is no other way to add one.

use std::borrow::Cow;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::MethodFilter;
use http::Method;
use outlast_wire::ojs::error::Code;

use super::App;
use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::shape::Shape;
use crate::access::Need;

/// What is said about a route where it is added.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: Cow<'static, str>,
    pub(crate) need: Need,
    /// What it does, in half a line.
    pub(crate) about: &'static str,
    /// What it answers when all is well.
    pub(crate) gives: Shape,
    /// The statuses of that.
    pub(crate) statuses: &'static [u16],
    /// What it wants to be sent.
    pub(crate) takes: Option<Shape>,
    /// Parameters of the query, each with what it does.
    pub(crate) query: &'static [(&'static str, &'static str)],
    /// Whether an `Idempotency-Key` is honoured.
    pub(crate) keyed: bool,
    /// The media type that it answers with when asked to, beside its own.
    pub(crate) also: Option<&'static str>,
    /// What it may refuse for, beyond what follows from the rest.
    pub(crate) refuses: &'static [Code],
}

/// The media type of a stream of events.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

type Path = Cow<'static, str>;

impl Route {
    fn new(method: Method, path: Path, need: Need, about: &'static str, gives: Shape) -> Self {
        Self {
            method,
            path,
            need,
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

    pub(crate) const fn takes(mut self, shape: Shape) -> Self {
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

    /// Says that it enqueues: answered with 201, safe to repeat under a key.
    pub(crate) const fn enqueues(mut self, shape: Shape) -> Self {
        self.takes = Some(shape);
        self.statuses = &[201];
        self.keyed = true;
        self
    }

    /// Says that it makes something new.
    pub(crate) const fn creates(mut self) -> Self {
        self.statuses = &[201];
        self
    }

    /// Says that it streams events where that is wanted.
    pub(crate) const fn streams(self) -> Self {
        self.also(EVENT_STREAM)
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
    /// not know, and its clients may send it.
    fn is_exact(&self) -> bool {
        !self.query.is_empty() && !self.is_of_the_standard()
    }

    fn names_something(&self) -> bool {
        // Any name will do for a queue that is paused.
        let shown = self.path.contains('{') && self.gives != Shape::QueueOrder;
        shown || self.query.iter().any(|(name, _)| *name == "worker")
    }

    /// Returns every code it may be refused with, in the catalogue's order.
    pub(crate) fn codes(&self) -> Vec<Code> {
        let may = |code: &Code| match code {
            Code::InvalidPayload | Code::PayloadTooLarge | Code::RequestTimeout => {
                self.takes.is_some()
            }
            Code::InvalidRequest => self.takes.is_some() || self.is_picky(),
            Code::Unauthenticated => self.need != Need::Nothing,
            // Every role may read.
            Code::PermissionDenied => !matches!(self.need, Need::Nothing | Need::Read),
            Code::NotFound => self.names_something(),
            // The standard's version is checked of every request.
            Code::Unsupported => self.is_of_the_standard(),
            Code::ValidationError => self.keyed || self.is_exact(),
            Code::Conflict => self.keyed,
            Code::Duplicate => self.keyed && self.is_of_the_standard(),
            Code::Unavailable => !self.gives.is_at_hand(),
            Code::Internal => true,
            // Of no route: there is none.
            Code::MethodNotAllowed => false,
        };
        let all = Code::ALL.into_iter();
        all.filter(|code| may(code) || self.refuses.contains(code)).collect()
    }
}

/// A route that reads.
pub(crate) fn get(path: impl Into<Path>, need: Need, about: &'static str, gives: Shape) -> Route {
    Route::new(Method::GET, path.into(), need, about, gives)
}

/// A route that changes something.
pub(crate) fn post(path: impl Into<Path>, need: Need, about: &'static str, gives: Shape) -> Route {
    Route::new(Method::POST, path.into(), need, about, gives)
}

/// A route that removes something.
pub(crate) fn delete(
    path: impl Into<Path>,
    need: Need,
    about: &'static str,
    gives: Shape,
) -> Route {
    Route::new(Method::DELETE, path.into(), need, about, gives)
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
        F: Fn(Call) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Answer, Failure>> + Send,
    {
        let need = route.need;
        let known = route.is_exact().then_some(route.query);
        let serve = move |State(app): State<App>, request: Request| {
            let handler = handler.clone();
            async move {
                let (call, caller) = Call::new(app, request);
                let call = call.allowed(need).and_then(|call| caller.check().map(|()| call));
                let call = call.and_then(|call| call.asking_only(known));
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

    pub(crate) fn into_parts(self) -> (Router<App>, Vec<Route>) {
        (self.router, self.all)
    }
}
