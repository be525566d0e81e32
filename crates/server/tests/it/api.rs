//! An engine over the model store with a clock that stands still, asked without a network.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_server::{Engine, Settings, http::router};
use outlast_store::store::ManualClock;
use outlast_store_testkit::model::ModelStore;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// A server under test.
pub(crate) struct Api {
    router: Router,
    pub(crate) engine: Engine,
    /// The store's clock.
    pub(crate) clock: ManualClock,
    pub(crate) store: ModelStore,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the JSON, having checked the status.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.json()
    }

    /// Checks that this is an error of the catalogue with this code.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        let error = &body["error"];
        assert_eq!(error["code"], code, "{}", self.text);
        for field in ["message", "request_id", "hint", "docs_url"] {
            assert!(error[field].as_str().is_some_and(|text| !text.is_empty()), "{}", self.text);
        }
        assert!(error["retryable"].is_boolean(), "{}", self.text);
        error.clone()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Api {
    pub(crate) fn start() -> Self {
        Self::with(|_settings| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let packs = PackSet::embedded_core().expect("the core pack is sound");
        let mut settings = Settings::with_packs(Arc::new(packs));
        change(&mut settings);
        let clock = ManualClock::at(Timestamp(1_800_000_000_000));
        let store = ModelStore::new(Arc::new(clock.clone()));
        let engine = Engine::start(Arc::new(store.clone()), settings);
        Self { router: router(engine.clone()), engine, clock, store }
    }

    /// Another server on the same store.
    pub(crate) fn another(&self) -> Self {
        let engine = Engine::start(Arc::clone(self.engine.store()), self.engine.settings().clone());
        let (clock, store) = (self.clock.clone(), self.store.clone());
        Self { router: router(engine.clone()), engine, clock, store }
    }

    pub(crate) fn stop(&self) {
        self.engine.begin_stop();
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        Reply { status: parts.status, headers: parts.headers, text }
    }

    /// Sends a request and returns the answer with its body still to come.
    pub(crate) async fn open(&self, request: Request<Body>) -> http::Response<Body> {
        self.router.clone().oneshot(request).await.expect("an answer")
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Reply {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(Request::builder().method(method).uri(path).body(body).expect("a request")).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.ask(Method::POST, path, Some(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.ask(Method::DELETE, path, None).await
    }

    pub(crate) async fn raw(&self, path: &str, body: impl Into<Body>) -> Reply {
        self.send(Request::post(path).body(body.into()).expect("a request")).await
    }

    /// Enqueues a plain job of type `t` and returns its id.
    pub(crate) async fn enqueue(&self, options: Value) -> String {
        let job = json!({"type": "t", "args": [], "options": options});
        let reply = self.post("/ojs/v1/jobs", job).await.expect(201);
        reply["job"]["id"].as_str().expect("an id").to_owned()
    }

    /// Fetches one job of the queue `default` and returns it, or null.
    pub(crate) async fn fetch(&self, worker: &str) -> Value {
        let fetch = json!({"queues": ["default"], "worker_id": worker});
        self.post("/ojs/v1/workers/fetch", fetch).await.expect(200)["jobs"][0].clone()
    }

    pub(crate) async fn ack(&self, body: Value) -> Reply {
        self.post("/ojs/v1/workers/ack", body).await
    }

    pub(crate) async fn nack(&self, body: Value) -> Reply {
        self.post("/ojs/v1/workers/nack", body).await
    }

    pub(crate) async fn beat(&self, body: Value) -> Value {
        self.post("/ojs/v1/workers/heartbeat", body).await.expect(200)
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.get(&format!("/ojs/v1/jobs/{id}")).await.expect(200)["job"].clone()
    }
}
