//! One connection, from its first byte to its end.
//!
//! ```text
//! accepted ─▶ opening: TLS, which HTTP? ─▶ HTTP/1 or HTTP/2 ─▶ closed by its peer
//!               │ no whole request in time     │ idle for too long, room is needed,
//!               └▶ closed                      └▶ or the server stops: ended in order
//! ```

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::clock::boot_time;
use crate::connections::{Busy, Entered, Peer};
use crate::engine::Engine;
use crate::http::gate::{self, Hosts};
use crate::tls::{self, CertificateNames, Tls};
use crate::transport::{Transport, Watched};
use crate::wire::{self, Wire};
use crate::write_timeout::{WRITE_TIMEOUT, WriteTimeout};

/// Longest a client may take from its connection to its first whole request, to send a
/// request's head, and to leave a kept-alive connection of HTTP/1 unused.
pub(crate) const FIRST_REQUEST_MAX: Duration = Duration::from_secs(10);
/// Longest a connection of HTTP/2 that is no worker's may be without a request.
const BETWEEN_REQUESTS_MAX: Duration = Duration::from_secs(60);
/// Longest that an idle connection may take to close.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Time between pings on an HTTP/2 connection, and how long an answer may take: a black
/// hole is noticed within their sum.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest that a client of HTTP/2 may take for a piece of a response, and how large a piece is.
/// Over HTTP/1, a blocked write shows that a client does not read.
const UNREAD_MAX: Duration = WRITE_TIMEOUT;
const PIECE_MAX: usize = 16 * 1024;
/// Longest time between two checks of a connection.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Most streams a client may open on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// First bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the connections of a server share.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) app: Router,
    pub(crate) engine: Engine,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) stop: CancellationToken,
}

type Io = Wire<WriteTimeout<Watched<Box<dyn FnOnce() + Send>>>>;

/// What was opened.
struct Opened {
    io: Io,
    version: Version,
    /// Names in the client's certificate.
    names: Option<CertificateNames>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Serves one connection until it ends or the server stops.
pub(crate) async fn serve(stream: TcpStream, entered: Entered, site: Site) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let peer = Arc::clone(entered.peer());
    let opening = tokio::time::timeout(FIRST_REQUEST_MAX, open(stream, &peer, &site));
    let opened = tokio::select! {
        opened = opening => opened,
        () = site.stop.cancelled() => return,
        () = peer.to_leave() => return,
    };
    let ended = match opened {
        Ok(Ok(Some(opened))) => serve_http(opened, &peer, &site).await,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => return tracing::debug!(%error, "connection ended before a request"),
        Err(_elapsed) => return tracing::debug!("no request came in time"),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended with an error");
    }
}

/// Does the TLS handshake if the server has TLS, and reads enough to know the version of HTTP.
/// `None` if the client got an error because it speaks HTTP to a TLS port.
async fn open(mut stream: TcpStream, peer: &Arc<Peer>, site: &Site) -> io::Result<Option<Opened>> {
    let (transport, names) = match &site.tls {
        None => (Transport::Plain(stream), None),
        Some(tls) => {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first != [tls::HANDSHAKE] {
                stream.write_all(&wire::tls_required()).await?;
                wire::end(&mut stream).await;
                return Ok(None);
            }
            let (stream, names) = tls.accept(stream).await?;
            (Transport::Tls(Box::new(stream)), names)
        }
    };
    let (engine, closed) = (site.engine.clone(), Arc::clone(peer));
    let on_close: Box<dyn FnOnce() + Send> = Box::new(move || note_close(&engine, &closed));
    let stream = Watched::new(transport, on_close);
    let mut stream = WriteTimeout::new(stream, site.stop.clone());
    let mut read = BytesMut::with_capacity(PREFACE.len());
    let version = loop {
        if stream.read_buf(&mut read).await? == 0 {
            break Version::One;
        }
        match PREFACE.get(..read.len()) {
            Some(part) if *part == read => {}
            Some(_) | None => break Version::One,
        }
        if read.len() == PREFACE.len() {
            break Version::Two;
        }
    };
    Ok(Some(Opened { io: Wire::new(stream, read.freeze()), version, names }))
}

/// The other side has closed the connection. If a worker's heartbeats came over it, that may be the
/// worker's end.
fn note_close(engine: &Engine, peer: &Peer) {
    peer.close();
    if let Some(worker) = peer.beats_for() {
        engine.shared().leases.beats_closed(worker, peer.number(), boot_time());
    }
}

async fn serve_http(opened: Opened, peer: &Arc<Peer>, site: &Site) -> hyper::Result<()> {
    let Opened { io, version, names } = opened;
    let (peer, site) = (Arc::clone(peer), site.clone());
    let service = Requests { peer, names: names.map(Arc::new), site, version };
    match version {
        Version::One => serve_one(io, service).await,
        Version::Two => serve_two(io, service).await,
    }
}

async fn serve_one(io: Io, service: Requests) -> hyper::Result<()> {
    let (peer, stop) = (Arc::clone(&service.peer), service.site.stop.clone());
    let mut builder = http1::Builder::new();
    // Responses to pipelined requests are not buffered: what follows may not be HTTP.
    builder.timer(TokioTimer::new()).header_read_timeout(FIRST_REQUEST_MAX).pipeline_flush(false);
    let mut serving = builder.serve_connection(TokioIo::new(io), service);
    let ended = drive(&mut serving, &peer, &stop).await;
    let Err(error) = &ended else { return ended };
    let parts = serving.into_parts();
    let mut io = parts.io.into_inner();
    if error.is_timeout() && !parts.read_buf.is_empty() {
        let slow =
            wire::response("408 Request Timeout", "the request's head was not received in time");
        // Nothing can be done about a client that does not read it.
        drop(io.write_all(&slow).await);
    }
    if error.is_timeout() || error.is_parse() {
        wire::end(&mut io).await;
    }
    ended
}

async fn serve_two(io: Io, service: Requests) -> hyper::Result<()> {
    let (peer, stop) = (Arc::clone(&service.peer), service.site.stop.clone());
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut serving = builder.serve_connection(TokioIo::new(io), service);
    drive(&mut serving, &peer, &stop).await
}

/// A connection of either version.
trait Serving: Future<Output = hyper::Result<()>> + Unpin {
    /// Begins a graceful shutdown: current requests finish, new ones are refused.
    fn finish(&mut self);
}

impl Serving for http1::Connection<TokioIo<Io>, Requests> {
    fn finish(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

impl Serving for http2::Connection<TokioIo<Io>, Requests, TokioExecutor> {
    fn finish(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

/// Serves a connection, and ends it when it is idle for too long or the server stops.
async fn drive(
    serving: &mut impl Serving,
    peer: &Peer,
    stop: &CancellationToken,
) -> hyper::Result<()> {
    let check = tokio::time::sleep(FIRST_REQUEST_MAX);
    tokio::pin!(check);
    let mut leaving = false;
    loop {
        tokio::select! {
            ended = &mut *serving => return ended,
            () = stop.cancelled(), if !leaving => {}
            () = peer.to_leave(), if !leaving => {}
            () = &mut check => {
                if peer.unread_for() >= UNREAD_MAX {
                    tracing::debug!("client does not read its responses");
                    return Ok(());
                }
                let patience = peer.patience(FIRST_REQUEST_MAX, BETWEEN_REQUESTS_MAX);
                if leaving && peer.has_no_request() {
                    return Ok(());
                }
                if leaving || !patience.is_zero() {
                    let next = if leaving { LEAVE_MAX } else { patience.min(CHECK_INTERVAL) };
                    check.set(tokio::time::sleep(next));
                    continue;
                }
            }
        }
        leaving = true;
        serving.finish();
        check.set(tokio::time::sleep(LEAVE_MAX));
    }
}

/// The requests of one connection.
#[derive(Clone, Debug)]
struct Requests {
    peer: Arc<Peer>,
    names: Option<Arc<CertificateNames>>,
    site: Site,
    version: Version,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response<Answered>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (busy, version) = (self.peer.ask(), self.version);
        let mut request = match self.site.engine.settings().base_path.strip(request) {
            Ok(request) => request,
            Err(outside) => {
                return Box::pin(async move {
                    Ok(outside.map(|body| Answered::new(body, busy, version)))
                });
            }
        };
        let refused = gate::refuse(&request, &self.site.hosts, &self.peer);
        if let Some(refused) = refused {
            return Box::pin(
                async move { Ok(refused.map(|body| Answered::new(body, busy, version))) },
            );
        }
        request.extensions_mut().insert(Arc::clone(&self.peer));
        if let Some(names) = &self.names {
            request.extensions_mut().insert(Arc::clone(names));
        }
        let mut app = self.site.app.clone();
        let answer = tower::Service::call(&mut app, request);
        let engine = self.site.engine.clone();
        Box::pin(async move {
            let mut response = answer.await?;
            engine.settings().base_path.put_before_location(&mut response);
            Ok(response.map(|body| Answered::new(body, busy, version)))
        })
    }
}

/// A response body; its connection is busy until it is sent. Over HTTP/2 it is sent in pieces: the
/// next one is asked for when the client has room for it.
struct Answered {
    body: axum::body::Body,
    /// What is left of a frame.
    rest: Bytes,
    busy: Busy,
    version: Version,
}

impl Answered {
    fn new(body: axum::body::Body, busy: Busy, version: Version) -> Self {
        if version == Version::Two {
            busy.offers_a_piece();
        }
        Self { body, rest: Bytes::new(), busy, version }
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<AnsweredFrame>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let length = self.rest.len().min(PIECE_MAX);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }
}

type AnsweredFrame = Result<Frame<Bytes>, axum::Error>;

impl Body for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<AnsweredFrame>> {
        if self.version == Version::One {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        let next = self.next(context);
        match &next {
            Poll::Ready(Some(_)) => self.busy.offers_a_piece(),
            Poll::Ready(None) | Poll::Pending => self.busy.has_no_piece(),
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}
