//! The native worker session: a gRPC stream for work, and beats beside it.
//!
//! ```text
//! Hello ─▶ register ─▶ attach (higher session number) ─▶ compare what is held ─▶ Welcome
//!       ─▶ capacity, reports, logs … ⇄ deliveries, answers, orders
//!       ─▶ Goodbye: released at once | dropped: suspect, and its lease is shortened
//! ```
//!
//! - [`attach`]: from Hello to Welcome
//! - [`stream`]: the worker's messages after that, until the stream ends
//! - [`output`]: the engine's output for the worker, as messages
//! - [`printed`]: the worker's output until it is stored
//! - [`beat`] answers heartbeats
//! - [`death`] takes a guardian's report that its engine died
//! - [`reconcile`]: compares what the worker says it holds with what the store says
//! - [`convert`]: wire types to and from the store's

mod attach;
mod beat;
pub(crate) mod convert;
mod death;
mod output;
mod printed;
mod reconcile;
mod stream;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self as streams, Stream, StreamExt as _};
use outlast_core::limits::SESSION_MESSAGE_BYTES_MAX;
use outlast_proto::v1::session_server::{Session as SessionApi, SessionServer};
use outlast_proto::v1::{
    BeatReply, BeatRequest, DeathReply, DeathReport, ServerMessage, WorkerMessage,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::access::{Credentials, Denied, Scope};
use crate::connections::Peer;
use crate::engine::Engine;
use crate::tls::CertificateNames;

/// The prefix of its calls' paths.
pub(crate) const PATH: &str = "/outlast.session.v1.Session/";

/// Returns the gRPC service over an engine.
pub fn service(engine: Engine) -> SessionServer<SessionService> {
    SessionServer::new(SessionService { engine })
        .max_decoding_message_size(SESSION_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(SESSION_MESSAGE_BYTES_MAX)
}

/// The gRPC service.
#[derive(Debug)]
pub struct SessionService {
    engine: Engine,
}

impl SessionService {
    /// Checks that the caller may work.
    fn check_access<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let certificate = request.extensions().get::<Arc<CertificateNames>>();
        let authorization = request.metadata().get("authorization");
        let shown = Credentials {
            authorization: authorization.and_then(|value| value.to_str().ok()),
            session: None,
            certificate: certificate.map(AsRef::as_ref),
        };
        let access = &self.engine.settings().access;
        match access.check(shown, Scope::Work, format_args!("a worker's session")) {
            Ok(_) => {
                if let Some(peer) = request.extensions().get::<Arc<Peer>>() {
                    peer.works();
                }
                Ok(())
            }
            Err(Denied::Unauthenticated(message) | Denied::NoCredentials { message, .. }) => {
                Err(Status::unauthenticated(message))
            }
            Err(Denied::Forbidden(message)) => Err(Status::permission_denied(message)),
        }
    }
}

#[tonic::async_trait]
impl SessionApi for SessionService {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<ServerMessage, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        self.check_access(&request)?;
        // The opening ends when the session is attached or refused; the engine's output follows.
        let (opening, opened) = mpsc::unbounded_channel();
        let (outputs, produced) = mpsc::unbounded_channel();
        let sender = attach::Outgoing { opening, outputs };
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        tokio::spawn(stream::run(self.engine.clone(), request.into_inner(), sender, peer));
        let produced = UnboundedReceiverStream::new(produced)
            .flat_map(|output| streams::iter(output::messages(output)));
        let messages = UnboundedReceiverStream::new(opened).chain(produced);
        Ok(Response::new(Box::pin(messages.map(Ok))))
    }

    async fn beat(&self, request: Request<BeatRequest>) -> Result<Response<BeatReply>, Status> {
        self.check_access(&request)?;
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        let request = request.into_inner();
        if let (Some(worker), Some(peer)) = (convert::worker_id(&request.worker_id), peer) {
            peer.beat(worker);
            self.engine.shared().leases.watch().beats(worker, peer.number());
        }
        beat::answer(&self.engine, request).await.map(Response::new)
    }

    async fn report_death(
        &self,
        request: Request<DeathReport>,
    ) -> Result<Response<DeathReply>, Status> {
        self.check_access(&request)?;
        death::answer(&self.engine, request.into_inner()).await.map(Response::new)
    }
}
