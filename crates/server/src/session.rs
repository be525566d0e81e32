//! The native worker session: a gRPC stream for work, and beats beside it.
//!
//! ```text
//! Hello ─▶ register ─▶ attach (higher session number) ─▶ compare what is held ─▶ Welcome
//!       ─▶ capacity, reports, logs … ⇄ deliveries, answers, orders
//!       ─▶ Goodbye: released at once | dropped: suspect, and its lease is shortened
//! ```
//!
//! - [`attach`]: from Hello to Welcome
//! - [`stream`]: the messages after that, until the stream ends
//! - [`beat`] answers heartbeats
//! - [`death`] takes a guardian's report that its engine died
//! - [`reconcile`]: what the worker says it holds against what the store says
//! - [`convert`]: wire types to and from the store's

mod attach;
mod beat;
pub(crate) mod convert;
mod death;
mod reconcile;
mod stream;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use outlast_core::limits::SESSION_MESSAGE_BYTES_MAX;
use outlast_proto::v1::session_server::{Session as SessionApi, SessionServer};
use outlast_proto::v1::{
    BeatReply, BeatRequest, DeathReply, DeathReport, ServerMessage, WorkerMessage,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::access::{Credentials, Denied, Need};
use crate::connections::Peer;
use crate::engine::Engine;
use crate::tls::CertificateNames;

/// What the paths of its calls begin with.
pub(crate) const PATH: &str = "/outlast.session.v1.Session/";

/// Returns the gRPC service over an engine.
pub fn service(engine: Engine) -> SessionServer<Sessions> {
    SessionServer::new(Sessions { engine })
        .max_decoding_message_size(SESSION_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(SESSION_MESSAGE_BYTES_MAX)
}

/// The service's state.
#[derive(Debug)]
pub struct Sessions {
    engine: Engine,
}

impl Sessions {
    /// Only who may work gets a session, or keeps one alive.
    fn allow<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let certificate = request.extensions().get::<Arc<CertificateNames>>();
        let authorization = request.metadata().get("authorization");
        let shown = Credentials {
            authorization: authorization.and_then(|value| value.to_str().ok()),
            certificate: certificate.map(AsRef::as_ref),
        };
        let access = &self.engine.settings().access;
        match access.check(shown, Need::Work, format_args!("a worker's session")) {
            Ok(_) => {
                if let Some(peer) = request.extensions().get::<Arc<Peer>>() {
                    peer.works();
                }
                Ok(())
            }
            Err(Denied::Unauthenticated(message)) => Err(Status::unauthenticated(message)),
            Err(Denied::Forbidden(message)) => Err(Status::permission_denied(message)),
        }
    }
}

#[tonic::async_trait]
impl SessionApi for Sessions {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<ServerMessage, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        self.allow(&request)?;
        let (push, messages) = mpsc::unbounded_channel();
        tokio::spawn(stream::run(self.engine.clone(), request.into_inner(), push));
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(messages))))
    }

    async fn beat(&self, request: Request<BeatRequest>) -> Result<Response<BeatReply>, Status> {
        self.allow(&request)?;
        beat::answer(&self.engine, request.into_inner()).await.map(Response::new)
    }

    async fn report_death(
        &self,
        request: Request<DeathReport>,
    ) -> Result<Response<DeathReply>, Status> {
        self.allow(&request)?;
        death::answer(&self.engine, request.into_inner()).await.map(Response::new)
    }
}
