//! Talking to the server: executions, workers, Open Job Spec.

use std::time::Duration;

use reqwest::Method;
use reqwest::blocking::{Client, Response};
use reqwest::header::HeaderMap;
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::authority::trusting_nobody;
use crate::wait::{LEASE, eventually, within};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_TIMEOUT: Duration = Duration::from_secs(120);
const OJS_MEDIA_TYPE: &str = "application/openjobspec+json";

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Api {
    url: String,
    client: Client,
    token: Option<String>,
}

/// What the server answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body as text.
    pub text: String,
    /// Body as JSON; null when it is not.
    pub body: Value,
}

impl Reply {
    /// Tells whether the status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the body when the status is this one.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[track_caller]
    #[must_use]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }
}

fn client(tls: ClientConfig) -> Client {
    let builder = Client::builder().tls_backend_preconfigured(tls).timeout(REQUEST_TIMEOUT);
    builder.build().expect("an HTTP client")
}

impl Api {
    /// Makes a client of the server at `url`.
    ///
    /// # Panics
    ///
    /// When the HTTP client cannot be built.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), client: client(trusting_nobody()), token: None }
    }

    /// Connects with this trust, on connections of its own.
    #[must_use]
    pub fn trusting(mut self, tls: ClientConfig) -> Self {
        self.client = client(tls);
        self
    }

    /// Shows this bearer token from now on.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request whose body, if any, is this text; `Err` when no answer came.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub fn try_send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Reply, reqwest::Error> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header("Content-Type", content_type).body(body);
        }
        reply(request.send()?)
    }

    /// Sends JSON to the executions API; `Err` when no answer came.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub fn try_post(&self, path: &str, body: &Value) -> Result<Reply, reqwest::Error> {
        let is_ojs = path.starts_with("/ojs/");
        let content_type = if is_ojs { OJS_MEDIA_TYPE } else { "application/json" };
        self.try_send(Method::POST, path, content_type, Some(body.to_string().into_bytes()))
    }

    /// Gets a path; `Err` when no answer came.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub fn try_get(&self, path: &str) -> Result<Reply, reqwest::Error> {
        self.try_send(Method::GET, path, "", None)
    }

    /// Sends JSON.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    #[track_caller]
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.try_post(path, body).unwrap_or_else(|error| panic!("POST {path}: {error:?}"))
    }

    /// Opens a stream of events after a cursor; it is read as it comes.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    #[track_caller]
    #[must_use]
    pub fn stream(&self, path: &str, last_event_id: &str) -> Response {
        let mut request = self.client.get(format!("{}{path}", self.url)).timeout(STREAM_TIMEOUT);
        if !last_event_id.is_empty() {
            request = request.header("Last-Event-ID", last_event_id);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        request.send().unwrap_or_else(|error| panic!("GET {path}: {error:?}"))
    }

    /// Sends JSON with headers.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    #[track_caller]
    #[must_use]
    pub fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Reply {
        let sent = self.try_post_with(path, headers, body);
        sent.unwrap_or_else(|error| panic!("POST {path}: {error:?}"))
    }

    /// Sends JSON with headers; `Err` when no answer came.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub fn try_post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Reply, reqwest::Error> {
        let mut request = self.client.post(format!("{}{path}", self.url)).body(body.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        request.send().and_then(reply)
    }

    /// Gets a path.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    #[track_caller]
    #[must_use]
    pub fn get(&self, path: &str) -> Reply {
        self.try_get(path).unwrap_or_else(|error| panic!("GET {path}: {error:?}"))
    }

    /// Deletes a path.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    #[track_caller]
    #[must_use]
    pub fn delete(&self, path: &str) -> Reply {
        let sent = self.try_send(Method::DELETE, path, "", None);
        sent.unwrap_or_else(|error| panic!("DELETE {path}: {error:?}"))
    }

    /// Returns one execution.
    #[track_caller]
    #[must_use]
    pub fn execution(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/executions/{id}")).expect(200)["data"].clone()
    }

    /// Waits until the server says that a job waits for this reason.
    #[track_caller]
    pub fn await_reason(&self, id: &str, reason: &str) {
        eventually("the reason is given", within(LEASE), || {
            (self.execution(id)["waiting_reason"] == reason).then_some(())
        });
    }

    /// Returns one execution if the server answers just now.
    #[must_use]
    pub fn try_execution(&self, id: &str) -> Option<Value> {
        let reply = self.try_get(&format!("/api/v1/executions/{id}")).ok()?;
        reply.is_success().then(|| reply.body["data"].clone())
    }

    /// Returns the attempts of an execution, in the order of their epochs.
    #[track_caller]
    #[must_use]
    pub fn attempts(&self, id: &str) -> Vec<Value> {
        let body = self.get(&format!("/api/v1/executions/{id}/attempts")).expect(200);
        let mut attempts = body["data"].as_array().cloned().unwrap_or_default();
        attempts.sort_by_key(|attempt| attempt["epoch"].as_u64());
        attempts
    }

    /// Returns the outcomes of an execution's attempts, in the order of their epochs.
    #[track_caller]
    #[must_use]
    pub fn outcomes(&self, id: &str) -> Vec<String> {
        let word = |attempt: &Value| attempt["outcome"].as_str().unwrap_or("running").to_owned();
        self.attempts(id).iter().map(word).collect()
    }

    /// Asks to cancel an execution.
    #[track_caller]
    #[must_use]
    pub fn cancel(&self, id: &str) -> Reply {
        self.post(&format!("/api/v1/executions/{id}/cancel"), &json!({}))
    }

    /// Returns one worker by its id, if the server answers and knows it.
    #[must_use]
    pub fn try_worker(&self, id: &str) -> Option<Value> {
        let reply = self.try_get("/api/v1/workers").ok()?;
        reply.body["data"].as_array()?.iter().find(|worker| worker["id"] == id).cloned()
    }

    /// Enqueues a plain OJS job and returns its id.
    #[track_caller]
    #[must_use]
    pub fn ojs_enqueue(&self, kind: &str, options: &Value) -> String {
        let body = json!({"type": kind, "args": [{}], "options": options});
        let body = self.post("/ojs/v1/jobs", &body).expect(201);
        body["job"]["id"].as_str().expect("an id").to_owned()
    }

    /// Fetches up to `count` jobs from a queue.
    #[track_caller]
    #[must_use]
    pub fn ojs_fetch(&self, queue: &str, worker: &str, count: u32) -> Vec<Value> {
        let body = json!({"queues": [queue], "worker_id": worker, "count": count});
        let body = self.post("/ojs/v1/workers/fetch", &body).expect(200);
        body["jobs"].as_array().cloned().unwrap_or_default()
    }

    /// Returns one OJS job.
    #[track_caller]
    #[must_use]
    pub fn ojs_job(&self, id: &str) -> Value {
        self.get(&format!("/ojs/v1/jobs/{id}")).expect(200)["job"].clone()
    }
}

fn reply(response: Response) -> Result<Reply, reqwest::Error> {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text()?;
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Reply { status, headers, text, body })
}
