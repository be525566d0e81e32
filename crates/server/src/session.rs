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
//! - [`reconcile`]: what the worker says it holds against what the store says
//! - [`convert`]: wire types to and from the store's

mod attach;
mod beat;
pub(crate) mod convert;
mod reconcile;
mod stream;

use std::pin::Pin;

use futures_util::Stream;
use outlast_proto::v1::session_server::{Session as SessionApi, SessionServer};
use outlast_proto::v1::{BeatReply, BeatRequest, ServerMessage, WorkerMessage};
use outlast_store::Store;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::engine::Engine;

/// Largest message of a session: a batch of reports with results.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Returns the gRPC service over an engine.
pub fn service<S: Store>(engine: Engine<S>) -> SessionServer<Sessions<S>> {
    SessionServer::new(Sessions { engine })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// The service's state.
#[derive(Debug)]
pub struct Sessions<S: Store> {
    engine: Engine<S>,
}

#[tonic::async_trait]
impl<S: Store> SessionApi for Sessions<S> {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<ServerMessage, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<WorkerMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (push, messages) = mpsc::unbounded_channel();
        tokio::spawn(stream::run(self.engine.clone(), request.into_inner(), push));
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(messages))))
    }

    async fn beat(&self, request: Request<BeatRequest>) -> Result<Response<BeatReply>, Status> {
        beat::answer(&self.engine, request.into_inner()).await.map(Response::new)
    }
}
