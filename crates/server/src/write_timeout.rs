//! Ends connections whose peer does not read.
//!
//! ```text
//! write blocked ─▶ for too long          ─▶ error: the connection ends
//!               └▶ while the server stops ─▶ error, much sooner
//! ```

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Longest that a write may be blocked.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same while the server stops: a shutdown does not wait for a peer that does not read.
const WRITE_TIMEOUT_AT_STOP: Duration = Duration::from_secs(1);

/// A stream whose writes time out.
pub(crate) struct WriteTimeout<T> {
    stream: T,
    /// Runs while a write is blocked.
    timeout: Option<Pin<Box<Sleep>>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    stopping: bool,
}

impl<T> WriteTimeout<T> {
    pub(crate) fn new(stream: T, stop: CancellationToken) -> Self {
        Self { stream, timeout: None, stop: Box::pin(stop.cancelled_owned()), stopping: false }
    }

    /// Turns a write that is blocked for too long into an error.
    fn check<R>(
        &mut self,
        written: Poll<io::Result<R>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.timeout = None;
            return written;
        }
        let timeout = self.timeout.get_or_insert_with(|| {
            let limit = if self.stopping { WRITE_TIMEOUT_AT_STOP } else { WRITE_TIMEOUT };
            Box::pin(tokio::time::sleep(limit))
        });
        if !self.stopping && self.stop.as_mut().poll(context).is_ready() {
            self.stopping = true;
            let soon = Instant::now() + WRITE_TIMEOUT_AT_STOP;
            if soon < timeout.deadline() {
                timeout.as_mut().reset(soon);
            }
        }
        ready!(timeout.as_mut().poll(context));
        let message = "the peer does not read";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// A pipe that holds one byte and is never read.
    fn blocked(stop: &CancellationToken) -> (WriteTimeout<DuplexStream>, DuplexStream) {
        let (near, far) = tokio::io::duplex(1);
        (WriteTimeout::new(near, stop.clone()), far)
    }

    async fn write(stream: &mut WriteTimeout<DuplexStream>) -> (io::Error, Duration) {
        let began = Instant::now();
        let error = stream.write_all(b"more than fits").await.unwrap_err();
        (error, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_never_read_ends_the_connection() {
        let (mut stream, _far) = blocked(&CancellationToken::new());
        let (error, waited) = write(&mut stream).await;
        assert_eq!((error.kind(), waited), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_does_not_wait_that_long() {
        let stop = CancellationToken::new();
        let (mut stream, _far) = blocked(&stop);
        let later = Duration::from_secs(5);
        tokio::spawn(async move {
            tokio::time::sleep(later).await;
            stop.cancel();
        });
        let (error, waited) = write(&mut stream).await;
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(waited, later + WRITE_TIMEOUT_AT_STOP);
    }
}
