//! Sends webhooks: signed, to addresses that are allowed, following no redirect.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits;
use outlast_core::time::Timestamp;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};

use super::guard::GuardedNames;
use super::{Handlers, message};
use crate::clock::millis;

/// Most bytes of an answer that are kept, for people who look for the cause of a failure.
const ANSWER_MAX: usize = 500;

/// Sends to the receivers of some rules.
#[derive(Clone)]
pub(crate) struct Sender {
    client: Client,
    handlers: Handlers,
}

/// A message for one receiver.
pub(crate) struct Message<'a> {
    /// The same for each try.
    pub(crate) id: String,
    /// Where it is sent.
    pub(crate) url: &'a str,
    /// JSON.
    pub(crate) body: &'a str,
    /// The present time.
    pub(crate) now: Timestamp,
}

/// Why a message was not taken.
#[derive(Debug)]
pub(crate) struct NotDelivered {
    /// In words.
    pub(crate) reason: String,
    /// Whether another try may do.
    pub(crate) may_pass: bool,
}

impl NotDelivered {
    fn now(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), may_pass: true }
    }

    fn for_good(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), may_pass: false }
    }
}

impl Sender {
    pub(crate) fn new(handlers: &Handlers) -> Result<Self, String> {
        let timeout = millis(handlers.timeout);
        let client = Client::builder()
            .tls_backend_preconfigured(tls().map_err(|error| error.to_string())?)
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(GuardedNames(handlers.allowed.clone())))
            .connect_timeout(timeout.min(Duration::from_secs(5)))
            .timeout(timeout)
            .user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, handlers: handlers.clone() })
    }

    /// Sends a message; returns the status of the answer.
    pub(crate) async fn send(&self, message: Message<'_>) -> Result<StatusCode, NotDelivered> {
        let Message { id, url, body, now } = message;
        let webhook = self.handlers.webhook(url).ok_or_else(|| {
            NotDelivered::now("no rule of this server's configuration has this address any more")
        })?;
        let parsed = Url::parse(url).map_err(|error| NotDelivered::for_good(error.to_string()))?;
        self.check(&parsed)?;
        let sent = message::seconds(now);
        let mut request = self
            .client
            .post(parsed)
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", sent.to_string())
            .body(body.to_owned());
        if let Some(secret) = &webhook.secret {
            request = request.header("webhook-signature", secret.sign(&id, sent, body));
        }
        let answer = request.send().await.map_err(|error| NotDelivered::now(innermost(&error)))?;
        match answer.status() {
            status if status.is_success() => Ok(status),
            status if status.is_redirection() => {
                Err(NotDelivered::now(format!("answered {status}, and redirects are not followed")))
            }
            // The receiver wants no more (Standard Webhooks).
            StatusCode::GONE => Err(NotDelivered::for_good("answered 410 Gone: it wants no more")),
            status => Err(NotDelivered::now(format!("answered {status}{}", said(answer).await))),
        }
    }

    /// An address that is no name is not looked up.
    fn check(&self, url: &Url) -> Result<(), NotDelivered> {
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match literal {
            Ok(address) if !self.handlers.allowed.allow(address) => Err(NotDelivered::now(
                format!("{address} is not public, and not in `webhooks.allow_networks`"),
            )),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// The beginning of an answer, after a colon.
async fn said(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_MAX {
        let Ok(Some(chunk)) = answer.chunk().await else { break };
        bytes.extend_from_slice(&chunk);
    }
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    if text.is_empty() { String::new() } else { format!(": {}", limits::cut(text, ANSWER_MAX)) }
}

fn innermost(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn tls() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // Without any, `https://` receivers fail, and say why.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let building = ClientConfig::builder_with_provider(provider);
    Ok(building
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
