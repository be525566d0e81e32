//! The connection to the server: how it is made, and one attached stream on it.
//!
//! ```text
//! connect ─▶ Hello ─▶ Welcome | Refused        all of it within one deadline
//!                        └─▶ messages … ─▶ lost: again, after a pause with jitter
//! ```
//!
//! Nothing here knows what an attempt is. A connection that goes silent is noticed by
//! HTTP/2 keepalive within a heartbeat interval.

pub(crate) mod backoff;
pub(crate) mod connection;
pub(crate) mod death;
mod secure;
mod servers;
mod token;

use std::error::Error as _;
use std::time::Duration;

use outlast_core::limits::SESSION_MESSAGE_BYTES_MAX;
use outlast_core::time::BootTime;
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::session_client::SessionClient;
use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{Hello, RefusalCode, ServerMessage, Welcome, WorkerMessage};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use self::servers::Server;
pub use self::token::read_token;
pub(crate) use self::token::{ShownToken, Token, TokenSource};

use crate::cause::root_cause;
use crate::clock::boot_now;
use crate::servers::{ServerNumber, Servers};
use crate::tls::Tls;

/// Messages that may wait for the transport. Few: what waits longer grows into one larger
/// message instead.
const OUTGOING_QUEUE: usize = 4;

/// The least time that an attachment gets: it is a store write behind a connect.
const ATTACH_MIN: Duration = Duration::from_secs(3);

/// Bytes that the server may have under way on one stream.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// Where the servers are, and what to show them.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    servers: Servers<Server>,
    token: ShownToken,
}

/// One attached stream.
#[derive(Debug)]
pub(crate) struct Session {
    /// Higher at every attachment; pushes with a lower one are not for us.
    pub(crate) number: u64,
    pub(crate) outgoing: mpsc::Sender<WorkerMessage>,
    pub(crate) incoming: Streaming<ServerMessage>,
}

/// A stream that was welcomed.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) session: Session,
    pub(crate) welcome: Welcome,
    /// Taken before anything was sent: the lease runs from here.
    pub(crate) sent: BootTime,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    #[error("server unreachable: {0}")]
    OutOfReach(String),
    #[error("refused: {reason}")]
    Refused { code: RefusalCode, reason: String },
    #[error("not allowed: {0}")]
    NotAllowed(String),
}

impl AttachError {
    /// Whether another server may well do better.
    const fn is_of_the_server(&self) -> bool {
        matches!(self, Self::OutOfReach(_) | Self::Refused { code: RefusalCode::Unavailable, .. })
    }
}

/// The address or the token cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {what}: {reason}")]
pub struct BadAddress {
    /// What was given.
    pub what: String,
    /// Why it cannot be used.
    pub reason: String,
}

/// Returns an address without the name and password that it may hold: it is shown and logged.
pub(crate) fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let Some((_, host)) = authority.rsplit_once('@') else { return url.to_owned() };
    let slash = if rest.contains('/') { "/" } else { "" };
    let colon = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{colon}{host}{slash}{path}")
}

impl Address {
    /// Reads the address of a server, or of several with commas between them.
    pub(crate) fn new(urls: &str, token: &TokenSource, tls: &Tls) -> Result<Self, BadAddress> {
        let servers = Servers::read(urls, tls)?;
        let token = ShownToken::new(token)?;
        Ok(Self { servers, token })
    }

    /// The servers, one of which is used.
    pub(crate) const fn servers(&self) -> &Servers<Server> {
        &self.servers
    }

    /// The token that is shown.
    pub(crate) fn token(&self) -> ShownToken {
        self.token.clone()
    }

    /// Connects to a server, with `interval` bounding how long silence goes unnoticed.
    pub(crate) async fn connect(
        &self,
        server: ServerNumber,
        interval: Duration,
    ) -> Result<Channel, String> {
        let connected = self.connect_to(server, interval).await;
        connected.map_err(|reason| self.servers.about(server, reason))
    }

    async fn connect_to(
        &self,
        server: ServerNumber,
        interval: Duration,
    ) -> Result<Channel, String> {
        let bound = request_deadline(interval);
        let server = self.servers.server(server);
        let endpoint = server.endpoint.clone().connect_timeout(bound);
        let endpoint = endpoint.http2_keep_alive_interval(interval / 2);
        let endpoint = endpoint.keep_alive_timeout(bound.max(KEEPALIVE_MIN));
        let secure = server.secure.clone();
        // In a task of its own: to resolve a name takes a thread, and where the host has none to
        // spare that is a panic, which must not end the caller.
        let mut connecting = JoinSet::new();
        connecting.spawn(async move {
            match secure {
                None => endpoint.connect().await,
                Some(secure) => endpoint.connect_with_connector(secure).await,
            }
        });
        match tokio::time::timeout(bound.max(CONNECT_MIN), connecting.join_next()).await {
            Ok(Some(Ok(Ok(channel)))) => Ok(channel),
            Ok(Some(Ok(Err(error)))) => Err(root_cause(&error)),
            Ok(Some(Err(_)) | None) => Err("no thread to resolve the server's name".to_owned()),
            Err(_) => Err("connecting took too long".to_owned()),
        }
    }

    /// Reads the token again, if it comes from a file.
    pub(crate) async fn read_token_again(&self) {
        self.token.read_again().await;
    }

    pub(crate) fn request<T>(&self, body: T) -> Request<T> {
        let mut request = Request::new(body);
        if let Some(token) = self.token.get() {
            request.metadata_mut().insert("authorization", token);
        }
        request
    }

    /// Connects to this server and attaches, within one deadline. If it is unavailable, the next one
    /// is used from now on.
    pub(crate) async fn attach(
        self,
        server: ServerNumber,
        hello: Hello,
        interval: Duration,
    ) -> Result<Attached, AttachError> {
        self.read_token_again().await;
        let bound = request_deadline(interval).max(ATTACH_MIN);
        let attached = tokio::time::timeout(bound, self.try_attach(server, hello, interval)).await;
        let attached = attached.unwrap_or_else(|_elapsed| {
            let reason = self.servers.about(server, format!("no welcome within {bound:?}"));
            Err(AttachError::OutOfReach(reason))
        });
        if attached.as_ref().is_err_and(AttachError::is_of_the_server) {
            self.servers.move_on(server);
        }
        attached
    }

    async fn try_attach(
        &self,
        server: ServerNumber,
        hello: Hello,
        interval: Duration,
    ) -> Result<Attached, AttachError> {
        let sent = boot_now();
        let channel = self.connect(server, interval).await.map_err(AttachError::OutOfReach)?;
        let mut client = client(channel);
        let (outgoing, queue) = mpsc::channel(OUTGOING_QUEUE);
        let first = WorkerMessage { body: Some(Said::Hello(hello)) };
        outgoing
            .send(first)
            .await
            .map_err(|_closed| AttachError::OutOfReach("stream closed at once".to_owned()))?;
        let opened = client.attach(self.request(ReceiverStream::new(queue))).await;
        let mut incoming = match opened {
            Ok(stream) => stream.into_inner(),
            Err(status) => return Err(self.failed(server, &status).await),
        };
        let welcome = match incoming.message().await {
            Ok(message) => message,
            Err(status) => return Err(self.failed(server, &status).await),
        };
        match welcome {
            Some(ServerMessage { session: number, body: Some(Body::Welcome(welcome)) }) => {
                let session = Session { number, outgoing, incoming };
                Ok(Attached { session, welcome, sent })
            }
            Some(ServerMessage { body: Some(Body::Refused(refused)), .. }) => {
                Err(AttachError::Refused { code: refused.code(), reason: refused.reason })
            }
            Some(_) | None => {
                Err(AttachError::OutOfReach("stream ended before a welcome".to_owned()))
            }
        }
    }

    async fn failed(&self, server: ServerNumber, status: &Status) -> AttachError {
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                AttachError::NotAllowed(status.message().to_owned())
            }
            _ => AttachError::OutOfReach(self.why_unanswered(server, status).await),
        }
    }

    /// Why a request on a connection that was made has got no answer.
    pub(crate) async fn why_unanswered(&self, number: ServerNumber, status: &Status) -> String {
        let server = self.servers.server(number);
        let refused = match &server.secure {
            // Its source is what happened to the connection; a server's answer has none.
            Some(secure) if status.source().is_some() => {
                secure.refusal(&server.endpoint.uri().to_string()).await
            }
            Some(_) | None => None,
        };
        let why = match refused {
            Some(refused) => refused.with_remedy(),
            None => status.message().to_owned(),
        };
        self.servers.about(number, why)
    }
}

/// Even a short interval leaves a busy host this long to answer a ping.
const KEEPALIVE_MIN: Duration = Duration::from_millis(500);

/// Even a short interval leaves a connect this long.
const CONNECT_MIN: Duration = Duration::from_millis(500);

/// How long one request may take: below the heartbeat interval.
pub(crate) fn request_deadline(interval: Duration) -> Duration {
    interval * 9 / 10
}

pub(crate) fn client(channel: Channel) -> SessionClient<Channel> {
    SessionClient::new(channel)
        .max_decoding_message_size(SESSION_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(SESSION_MESSAGE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::without_credentials;

    // The log of a worker that could not read a certificate showed them.
    #[test]
    fn an_address_is_shown_without_name_and_password() {
        for (url, shown) in [
            ("https://worker:hunter2@jobs/base", "https://jobs/base"),
            ("https://worker:hunter2@jobs", "https://jobs"),
            ("worker:h@nter2@jobs:80/", "jobs:80/"),
            ("http://jobs:8080/a@b", "http://jobs:8080/a@b"),
            ("jobs", "jobs"),
        ] {
            assert_eq!(without_credentials(url), shown, "{url}");
        }
    }
}
