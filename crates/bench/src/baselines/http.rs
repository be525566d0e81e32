//! Requests per second that HTTP alone allows: the same client against a server that reads every
//! request and answers at once.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use outlast_cli_core::client::ClientConfig;
use outlast_cli_core::exit::Failure;
use tokio::net::TcpListener;

use crate::connection::Address;
use crate::figures::rate;
use crate::jobs::{self, NOOP};
use crate::produce::{Extent, Producers};

/// As long as the response to a small job's enqueue.
const RESPONSE: &str = r#"{"job":{"id":"01999999-9999-7999-8999-999999999999","type":"bench.noop","queue":"bench","state":"available","args":[{"n":1}],"attempt":0,"priority":0,"created_at":"2025-01-01T00:00:00.000Z","enqueued_at":"2025-01-01T00:00:00.000Z"}}"#;

/// Measures it for `length`. The server has threads of its own, as a server's process would.
pub(super) async fn requests(length: Duration, producers: usize) -> Result<f64, Failure> {
    let cannot = |error: std::io::Error| Failure::failed(format!("cannot measure HTTP: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(cannot)?;
    let listening = runtime.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listener = listening.await.map_err(std::io::Error::other).and_then(|bound| bound);
    let rate = match listener {
        Ok(listener) => {
            let server = listener.local_addr().map_err(cannot)?;
            runtime.spawn(serve(listener));
            let config = ClientConfig::plain(format!("http://{server}"));
            send(&Address::of(&config)?, length, producers).await
        }
        Err(error) => Err(cannot(error)),
    };
    runtime.shutdown_background();
    rate
}

async fn send(address: &Address, length: Duration, producers: usize) -> Result<f64, Failure> {
    let request = jobs::request(address, "bench", NOOP);
    let mut producers = Producers::connect(address, producers).await?;
    producers.send(&request, Extent::Time(length / 10)).await?;
    let produced = producers.send(&request, Extent::Time(length)).await?;
    Ok(rate(produced.lengths.len(), produced.took))
}

/// Serves connections until the future is dropped.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _peer)) = listener.accept().await {
        // Without it the figure is a little lower, and still a figure.
        stream.set_nodelay(true).unwrap_or_default();
        let serving =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(respond));
        tokio::spawn(serving);
    }
}

async fn respond(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // The client is our own: a body that breaks off is seen there.
    drop(request.into_body().collect().await);
    let mut response = Response::new(Full::new(Bytes::from_static(RESPONSE.as_bytes())));
    *response.status_mut() = StatusCode::CREATED;
    let kind = HeaderValue::from_static("application/openjobspec+json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}
