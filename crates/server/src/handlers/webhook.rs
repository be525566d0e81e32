//! Sends webhooks: signed, to addresses that are allowed, following no redirect.
//!
//! A receiver that does not answer is left alone for a while, and one that is slow gets a part of what is
//! under way: what is for others goes on. What is not sent now fails at once, and is tried again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::limits;
use outlast_core::time::{BootTime, Span, Timestamp};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};

use super::guard::GuardedNames;
use super::{Handlers, Webhook};
use crate::clock::{boot_time, millis};

/// Most bytes of an answer that are kept, for people who look for the cause of a failure.
const ANSWER_MAX: usize = 500;

/// Sends to the receivers of some rules.
#[derive(Clone)]
pub(crate) struct Sender {
    client: Client,
    handlers: Arc<Handlers>,
    /// How long a receiver has for its answer.
    timeout: Span,
    receivers: Arc<Mutex<HashMap<String, Receiver>>>,
}

/// How a receiver has answered of late.
#[derive(Clone, Copy, Debug, Default)]
struct Receiver {
    in_flight: u32,
    /// Its latest answer took long.
    is_slow: bool,
    /// Until when nothing is sent to it, since it did not answer.
    away_until: Option<BootTime>,
    /// How long that was.
    pause: Span,
}

/// Least and most time for which a receiver that did not answer is left alone.
const AWAY_MIN: Span = Span::from_secs(10);
const AWAY_MAX: Span = Span::from_secs(60);
/// From when on an answer is slow.
const SLOW: Span = Span::from_secs(1);
/// Most messages that are under way to a slow receiver.
const SLOW_IN_FLIGHT: u32 = 8;

impl Receiver {
    /// Whether a message may be sent to it now; says why not.
    fn begin(&mut self, timeout: Span, now: BootTime) -> Result<(), &'static str> {
        match self.away_until {
            Some(until) if now < until => {
                return Err("not tried: the receiver did not answer a moment ago");
            }
            // The first one after the pause finds out for all.
            Some(_) => self.away_until = Some(now.after(timeout)),
            None => {}
        }
        if self.is_slow && self.in_flight >= SLOW_IN_FLIGHT {
            return Err("not tried: the receiver is slow, and others are under way to it");
        }
        self.in_flight = self.in_flight.saturating_add(1);
        Ok(())
    }

    fn end(&mut self, began: BootTime, now: BootTime, has_answered: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.is_slow = now.since(began) >= SLOW;
        if has_answered {
            (self.away_until, self.pause) = (None, Span::ZERO);
        } else {
            self.pause = Span(self.pause.0.saturating_mul(2)).clamp(AWAY_MIN, AWAY_MAX);
            self.away_until = Some(now.after(self.pause));
        }
    }
}

/// A message for one receiver.
pub(crate) struct Message<'a> {
    /// The same for each try.
    pub(crate) id: String,
    /// Its receiver.
    pub(crate) webhook: &'a Webhook,
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
    pub(crate) fn new(handlers: Arc<Handlers>) -> Result<Self, String> {
        let (client, timeout) = (client(&handlers)?, handlers.timeout);
        Ok(Self { client, handlers, timeout, receivers: Arc::default() })
    }

    /// Sends as these settings say from now on. What is known of receivers stays.
    pub(crate) fn renew(&mut self, handlers: Arc<Handlers>) -> Result<(), String> {
        if !Arc::ptr_eq(&self.handlers, &handlers) {
            self.client = client(&handlers)?;
            (self.timeout, self.handlers) = (handlers.timeout, handlers);
        }
        Ok(())
    }

    /// Sends the same, and gives a receiver no longer than this.
    pub(crate) fn within(&self, longest: Span) -> Self {
        Self { timeout: self.timeout.min(longest), ..self.clone() }
    }

    /// How long a receiver has for its answer.
    pub(crate) const fn timeout(&self) -> Span {
        self.timeout
    }

    fn receivers(&self) -> MutexGuard<'_, HashMap<String, Receiver>> {
        self.receivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message; returns the status of the answer.
    pub(crate) async fn send(&self, message: Message<'_>) -> Result<StatusCode, NotDelivered> {
        let webhook = message.webhook;
        let receiver = webhook.name();
        let url = &webhook.url;
        let parsed = Url::parse(url).map_err(|error| NotDelivered::for_good(error.to_string()))?;
        self.check(&parsed)?;
        let began = boot_time();
        let may = self.receivers().entry(receiver.clone()).or_default().begin(self.timeout, began);
        may.map_err(NotDelivered::now)?;
        let (answer, has_answered) = match self.post(parsed, &message).await {
            Ok(answer) => (Ok(answer), true),
            Err(reason) => (Err(NotDelivered::now(reason)), false),
        };
        if let Some(receiver) = self.receivers().get_mut(&receiver) {
            receiver.end(began, boot_time(), has_answered);
        }
        judge(answer?).await
    }

    async fn post(&self, parsed: Url, message: &Message<'_>) -> Result<Response, String> {
        let Message { id, webhook, body, now } = message;
        let sent = now.0.div_euclid(1000);
        let mut request = self
            .client
            .post(parsed)
            .timeout(millis(self.timeout))
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", sent.to_string())
            .body((*body).to_owned());
        if let Some(secret) = &webhook.secret {
            request = request.header("webhook-signature", secret.sign(id, sent, body));
        }
        request.send().await.map_err(|error| innermost(&error))
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

/// Nothing is sent through it for longer than a request allows.
fn client(handlers: &Handlers) -> Result<Client, String> {
    Client::builder()
        .tls_backend_preconfigured(tls().map_err(|error| error.to_string())?)
        .redirect(Policy::none())
        .no_proxy()
        .dns_resolver(Arc::new(GuardedNames(handlers.allowed.clone())))
        .connect_timeout(millis(handlers.timeout).min(Duration::from_secs(5)))
        .user_agent(concat!("outlast/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.to_string())
}

async fn judge(answer: Response) -> Result<StatusCode, NotDelivered> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_does_not_answer_is_left_alone_longer_and_longer() {
        let (at, timeout) = (|secs| BootTime(0).after(Span::from_secs(secs)), Span::from_secs(5));
        let mut receiver = Receiver::default();
        receiver.begin(timeout, at(0)).unwrap();
        receiver.end(at(0), at(5), false);
        assert!(receiver.begin(timeout, at(14)).is_err());
        // One finds out, and others do not wait for it.
        receiver.begin(timeout, at(15)).unwrap();
        assert!(receiver.begin(timeout, at(16)).is_err());
        receiver.end(at(15), at(20), false);
        assert!(receiver.begin(timeout, at(39)).is_err());
        receiver.begin(timeout, at(40)).unwrap();
        receiver.end(at(40), at(40), true);
        assert_eq!((receiver.in_flight, receiver.away_until), (0, None));
    }

    #[test]
    fn a_slow_receiver_gets_a_part_of_what_is_under_way() {
        let (now, timeout) = (BootTime(0), Span::from_secs(5));
        let mut receiver = Receiver::default();
        (0..16).for_each(|_| receiver.begin(timeout, now).unwrap());
        receiver.end(now, now.after(SLOW), true);
        assert!(receiver.begin(timeout, now).is_err());
        (0..8).for_each(|_| receiver.end(now, now.after(SLOW), true));
        receiver.begin(timeout, now).unwrap();
    }
}
