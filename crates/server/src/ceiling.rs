//! A server that does nothing but answer: the ceiling that requests a second are held against.
//!
//! The connection handling is the real server's; the engine, the store and the routes are not
//! there.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::connection::{self, Site};
use crate::connections::{ConnectionLimits, Gate};

/// As long as the answer to a small job's enqueue.
const ANSWER: &str = r#"{"job":{"id":"01999999-9999-7999-8999-999999999999","type":"bench.noop","queue":"bench","state":"available","args":[{"n":1}],"attempt":0,"priority":0,"created_at":"2025-01-01T00:00:00.000Z","enqueued_at":"2025-01-01T00:00:00.000Z"}}"#;

/// Reads every request and answers 201, until the future is dropped.
///
/// # Errors
/// When connections cannot be accepted.
pub async fn answer_all(listener: TcpListener) -> io::Result<()> {
    let app = Router::new().fallback(answer);
    let site = Site { app, hosts: Arc::default(), tls: None, stop: CancellationToken::new() };
    let gate = Gate::new(ConnectionLimits::of_files(u64::MAX));
    loop {
        let (stream, from) = listener.accept().await?;
        if let Some(entered) = gate.enter(from.ip()) {
            tokio::spawn(connection::serve(stream, entered, site.clone()));
        }
    }
}

async fn answer(body: Bytes) -> (StatusCode, [(http::HeaderName, &'static str); 1], &'static str) {
    drop(body);
    (StatusCode::CREATED, [(CONTENT_TYPE, "application/openjobspec+json")], ANSWER)
}
