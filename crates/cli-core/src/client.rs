//! Requests to a server over HTTP; refusals become exit codes.
//!
//! A request is sent once: repeating one that may have taken effect is the caller's decision.

mod refusal;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_sdk::Tls;
use outlast_sdk::servers::{ServerNumber, Servers, moved};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::mask::without_passwords;

/// Longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest a single request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest one stream of events lasts before it is opened again.
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Longest id or name in an address. The server takes none that long.
const PART_MAX: usize = 4096;

/// A parameter of a query, left out when there is no value.
pub type Query<'a> = (&'a str, Option<String>);

/// A server, and how to be let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Base address of the server; commas separate those of several servers of one deployment.
    pub server: String,
    /// Bearer token to show.
    pub token: Option<String>,
    /// The file that it was read from, to read it again when it is refused.
    pub token_file: Option<PathBuf>,
    /// How its certificate is verified, and which one to show.
    pub tls: Tls,
}

impl ClientConfig {
    /// A server of our own, which asks for nothing.
    #[must_use]
    pub fn plain(server: String) -> Self {
        Self { server, token: None, token_file: None, tls: Tls::new() }
    }
}

/// A server to ask.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    config: ClientConfig,
    /// The first one that can be reached is asked.
    servers: Servers<Url>,
    /// Shown now; clones share it.
    token: Arc<Mutex<Option<String>>>,
}

impl Client {
    pub fn new(config: ClientConfig) -> Result<Self, Failure> {
        // Proxy variables are meant for the web, not for the job server.
        // One that trusts authorities will do for http:// as well.
        let mut servers = config.server.split(',');
        let secure = servers.find(|url| url.starts_with("https://")).unwrap_or(&config.server);
        let tls = config.tls.config_for(secure);
        let tls = tls.map_err(|error| Failure::usage(error.to_string()))?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .user_agent(concat!("outlast-cli/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Failure::failed(format!("cannot set up HTTP: {error}")))?;
        let token = Arc::new(Mutex::new(config.token.clone()));
        let servers = servers_of(&config.server)?;
        Ok(Self { http, config, servers, token })
    }

    /// The address of the server that is used, without a password.
    pub fn server(&self) -> String {
        without_passwords(shown(self.used()))
    }

    pub async fn get(&self, path: &[&str], query: &[Query<'_>]) -> Result<Value, Failure> {
        self.send(Method::GET, self.url(path, query)?, None).await
    }

    /// Opens a stream of events.
    pub async fn stream(&self, path: &[&str], query: &[Query<'_>]) -> Result<Response, Failure> {
        let request = self.http.get(self.url(path, query)?).timeout(STREAM_TIMEOUT);
        let request = request.header("Accept", "text/event-stream");
        let response = self.answered(self.sent(request).await).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = self.answered(response.text().await).await?;
        Err(refusal::of(status.as_u16(), &text))
    }

    /// The items of a list; empty if the request fails.
    pub async fn get_list(&self, path: &[&str]) -> Vec<Value> {
        let answer = self.get(path, &[]).await.unwrap_or_default();
        answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    pub async fn post(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.send(Method::POST, self.url(path, &[])?, Some(body)).await
    }

    /// Sends a request with an idempotency key: it is carried out once, even if sent again.
    pub async fn post_once(
        &self,
        path: &[&str],
        body: &Value,
        key: Option<&str>,
    ) -> Result<Value, Failure> {
        let mut request = self.http.request(Method::POST, self.url(path, &[])?).json(body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        self.answer(request).await
    }

    pub async fn put(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.send(Method::PUT, self.url(path, &[])?, Some(body)).await
    }

    pub async fn delete(&self, path: &[&str]) -> Result<Value, Failure> {
        self.send(Method::DELETE, self.url(path, &[])?, None).await
    }

    /// The address of a request to the first server; it is sent to the one that is used.
    fn url(&self, path: &[&str], query: &[Query<'_>]) -> Result<Url, Failure> {
        for part in path {
            refuse_unusable(part)?;
        }
        let mut url = self.first().clone();
        match url.path_segments_mut() {
            Ok(mut segments) => {
                segments.pop_if_empty().extend(path);
            }
            Err(()) => return Err(not_an_address(self.first().as_str())),
        }
        for (name, value) in query {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        Ok(url)
    }

    async fn send(&self, method: Method, url: Url, body: Option<&Value>) -> Result<Value, Failure> {
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let response = self.answered(self.sent(request).await).await?;
        let status = response.status();
        let text = self.answered(response.text().await).await?;
        if !status.is_success() {
            return Err(refusal::of(status.as_u16(), &text));
        }
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| {
            let server = self.server();
            Failure::failed(format!("{server} does not answer as an Outlast server: {error}"))
        })
    }

    /// Sends a request, and once more if the server refuses a token that has been replaced in its
    /// file: it has done nothing then.
    async fn sent(&self, request: RequestBuilder) -> Result<Response, reqwest::Error> {
        let again = self.config.token_file.as_ref().zip(request.try_clone());
        let shown = self.token().clone();
        let response = self.at_any(showing(request, shown.as_deref())).await?;
        match again {
            Some((file, request)) if response.status() == StatusCode::UNAUTHORIZED => {
                // A file that cannot be used leaves it at the refusal.
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || outlast_sdk::read_token(&file));
                match read.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
                    Ok(token) if shown.as_ref() != Some(&token) => {
                        let request = showing(request, Some(&token));
                        *self.token() = Some(token);
                        self.at_any(request).await
                    }
                    Ok(_) | Err(_) => Ok(response),
                }
            }
            Some(_) | None => Ok(response),
        }
    }

    /// Sends a request to the server that is used, or to the next one that can be reached: it has done
    /// nothing at a server that it did not reach.
    async fn at_any(&self, request: RequestBuilder) -> Result<Response, reqwest::Error> {
        let mut request = request.build()?;
        let first = request.url().clone();
        for _ in 1..self.servers.count() {
            let server = self.servers.used();
            *request.url_mut() = moved(&first, self.first(), self.servers.server(server));
            let Some(again) = request.try_clone() else { break };
            match self.http.execute(request).await {
                Err(error) if error.is_connect() => self.servers.move_on(server),
                sent => return sent,
            }
            request = again;
        }
        *request.url_mut() = moved(&first, self.first(), self.used());
        self.http.execute(request).await
    }

    fn first(&self) -> &Url {
        self.servers.server(ServerNumber::default())
    }

    fn used(&self) -> &Url {
        self.servers.server(self.servers.used())
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answered<T>(&self, outcome: Result<T, reqwest::Error>) -> Result<T, Failure> {
        match outcome {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.unreachable(&error).await),
        }
    }

    async fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let server = self.server();
        if let Some(refused) = self.config.tls.refusal(self.used().as_str()).await {
            let message = format!("server {server} cannot be used: {refused}");
            let remedy = refused.remedy();
            let hint = format!("{remedy}; --client-cert and --client-key name it and its key");
            return Failure::new(Exit::Unreachable, message).with_hint(hint);
        }
        let reason = deepest(error);
        let what = if error.is_timeout() { "does not answer" } else { "cannot be reached" };
        let hint = certificate_hint(&reason).unwrap_or(
            "is it running? `outlast dev` starts one; --server or OUTLAST_SERVER names another",
        );
        Failure::new(Exit::Unreachable, format!("server {server} {what}: {reason}")).with_hint(hint)
    }
}

/// Reads addresses that commas separate.
fn servers_of(addresses: &str) -> Result<Servers<Url>, Failure> {
    let read = |url: &str| Url::parse(url).map_err(|_parse| not_an_address(url));
    let all = addresses.split(',').map(read).collect::<Result<_, _>>()?;
    Servers::new(all).ok_or_else(|| not_an_address(addresses))
}

fn not_an_address(url: &str) -> Failure {
    Failure::usage(format!("`{}` is not a server address", without_passwords(url)))
}

/// An address as its user writes it, without the slash that stands for no path.
fn shown(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

fn showing(request: RequestBuilder, token: Option<&str>) -> RequestBuilder {
    match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
}

/// Refuses an id or a name that no address can hold: with it, something else would be asked for.
fn refuse_unusable(part: &str) -> Result<(), Failure> {
    match part {
        "" => Err(Failure::usage("an id or name is empty")),
        "." | ".." => Err(Failure::usage(format!(
            "`{part}` is not an id or name: it must contain a letter or digit"
        ))),
        _ if part.len() > PART_MAX => {
            let length = part.len();
            Err(Failure::usage(format!("an id or name of {length} bytes is too long")))
        }
        _ => Ok(()),
    }
}

/// A hint for a failed TLS handshake; `None` for other errors.
pub fn certificate_hint(reason: &str) -> Option<&'static str> {
    const HINTS: &[(&str, &str)] = &[
        ("unknownissuer", "its authority is not trusted here: name it with --ca-file"),
        (
            "causedasendentity",
            "it presents the certificate of an authority: sign another one for the server with it",
        ),
        ("expired", "its certificate has expired, or this host's clock is wrong"),
        ("not valid for name", "its certificate is for another name: ask for it by that one"),
        ("notvalidforname", "its certificate is for another name: ask for it by that one"),
        ("invalidcontenttype", "it does not speak TLS there: ask for http://"),
    ];
    let reason = reason.to_lowercase();
    HINTS.iter().find(|(sign, _)| reason.contains(sign)).map(|(_, hint)| *hint)
}

/// The innermost cause, which says what happened.
fn deepest(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
