//! The bytes of a connection: replays what was read before HTTP, and gives a body to errors that
//! have none.
//!
//! hyper answers a request that it cannot parse with a bare status and closes. That response has
//! a fixed form, which is found here at the end of what is written and replaced by the same
//! response with a body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use outlast_wire::ojs::error::{Code, ErrorBody};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use uuid::Uuid;

/// Longest head that hyper writes by itself.
const BARE_HEAD_MAX: usize = 200;
/// What every such head has after its status, and no other response of this server.
const BARE: &[u8] = b"\r\nconnection: close\r\ncontent-length: 0\r\n";

/// A stream below HTTP.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    io: T,
    /// Read already.
    before: Bytes,
    /// Written instead of a bare refusal.
    words: Bytes,
}

impl<T> Wire<T> {
    pub(crate) const fn new(io: T, before: Bytes) -> Self {
        Self { io, before, words: Bytes::new() }
    }
}

impl<T: AsyncWrite + Unpin> Wire<T> {
    fn poll_words(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.words.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(context, &self.words))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.words.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let length = self.before.len().min(buffer.remaining());
        buffer.put_slice(&self.before.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match bare_refusal(bytes) {
            None => Pin::new(&mut self.io).poll_write(context, bytes),
            Some((0, status)) => {
                self.words = refusal(status).into();
                Poll::Ready(Ok(bytes.len()))
            }
            // What stands before it goes first, as it is.
            Some((at, _)) => {
                Pin::new(&mut self.io).poll_write(context, bytes.get(..at).unwrap_or(bytes))
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices.last().map(|last| bare_refusal(last)) {
            Some(Some(_)) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                self.poll_write(context, first.map_or(&[][..], |first| first))
            }
            _ => Pin::new(&mut self.io).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_words(context))?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_words(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Finds a bare refusal at the end of `bytes`: where it begins, and its status.
fn bare_refusal(bytes: &[u8]) -> Option<(usize, u16)> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let from = bytes.len().saturating_sub(BARE_HEAD_MAX);
    let end = bytes.get(from..)?;
    let at = end.windows(10).rposition(|window| window == b"HTTP/1.1 4")?;
    let head = end.get(at..)?;
    let line_end = head.iter().position(|byte| *byte == b'\r')?;
    if !head.get(line_end..)?.starts_with(BARE) {
        return None;
    }
    let status = std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()?;
    Some((from + at, status))
}

/// Returns the response to a request that could not be parsed.
fn refusal(status: u16) -> Vec<u8> {
    match status {
        414 => response("414 URI Too Long", "the request's path is too long"),
        431 => response(
            "431 Request Header Fields Too Large",
            "the request's head is too long or has too many headers",
        ),
        _ => {
            response("400 Bad Request", "this is not HTTP; https:// needs a server with server.tls")
        }
    }
}

/// Returns the response to a request without TLS at a port that has TLS.
pub(crate) fn tls_required() -> Vec<u8> {
    let message = "this port requires TLS: use https:// instead of http://";
    let (details, hint) = (Some(r#"{"reason":"tls_required"}"#), "use an https:// address");
    write(
        "400 Bad Request",
        ErrorBody { code: Code::InvalidRequest, message, details, request_id: "", hint },
    )
}

/// Returns a response that is written past hyper; the connection ends with it.
pub(crate) fn response(status: &str, message: &str) -> Vec<u8> {
    let code = match status.get(..3) {
        Some("408") => Code::RequestTimeout,
        Some("503") => Code::Unavailable,
        _ => Code::InvalidRequest,
    };
    write(status, ErrorBody { code, message, details: None, request_id: "", hint: code.hint() })
}

fn write(status: &str, error: ErrorBody<'_>) -> Vec<u8> {
    let request_id = Uuid::now_v7().to_string();
    let code = error.code;
    let body = ErrorBody { request_id: &request_id, ..error }.document();
    let later = if code == Code::Unavailable { "retry-after: 1\r\n" } else { "" };
    let mut out = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-request-id: {request_id}\r\n\
         {later}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    out.extend(body);
    out
}

/// Ends a connection so that the peer can read what was written last: closing with unread bytes
/// would discard it.
pub(crate) async fn end<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T) {
    use tokio::io::AsyncReadExt as _;
    const LINGER_MAX: std::time::Duration = std::time::Duration::from_secs(1);
    const DISCARDED_MAX: usize = 1024 * 1024;
    let discarding = async {
        io.shutdown().await?;
        let mut buffer = [0; 4096];
        let mut discarded = 0;
        while discarded < DISCARDED_MAX {
            match io.read(&mut buffer).await? {
                0 => break,
                read => discarded += read,
            }
        }
        io::Result::Ok(())
    };
    // However it goes, the connection is over.
    drop(tokio::time::timeout(LINGER_MAX, discarding).await);
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    const BARE_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
         content-length: 0\r\ndate: Sat, 21 Nov 2026 23:27:53 GMT\r\n\r\n";

    #[tokio::test]
    async fn a_bare_refusal_gets_a_body_and_what_came_before_stays() {
        for before in ["", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"] {
            let (near, mut far) = tokio::io::duplex(4096);
            let mut wire = Wire::new(near, Bytes::new());
            wire.write_all(format!("{before}{BARE_ANSWER}").as_bytes()).await.unwrap();
            wire.shutdown().await.unwrap();
            let mut read = String::new();
            far.read_to_string(&mut read).await.unwrap();
            let rest = read.strip_prefix(before).unwrap();
            assert!(rest.starts_with("HTTP/1.1 400 Bad Request\r\ncontent-type"), "{rest}");
            assert!(rest.contains("\"code\":\"invalid_request\""), "{rest}");
            assert!(!rest.contains("content-length: 0"), "{rest}");
        }
    }

    #[test]
    fn an_answer_of_a_handler_is_left_alone() {
        let own = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n\
            connection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        assert_eq!(bare_refusal(own), None);
        assert_eq!(bare_refusal(b"\r\n\r\n"), None);
        assert_eq!(bare_refusal(BARE_ANSWER.as_bytes()), Some((0, 400)));
    }

    #[tokio::test]
    async fn what_was_read_before_is_read_first() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"and this").await.unwrap();
        drop(far);
        let mut read = String::new();
        let mut wire = Wire::new(near, Bytes::from_static(b"this "));
        wire.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "this and this");
    }
}
