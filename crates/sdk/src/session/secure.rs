//! Connections to `https://` servers.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::{Service, http::Uri};

use crate::tls::{Tls, TlsError};

/// Makes connections with TLS. Certificates are read again for each of them: they may be
/// renewed while a worker runs.
#[derive(Clone, Debug)]
pub(crate) struct Secure {
    tls: Tls,
    /// What worked last: a file that is being replaced stops nothing.
    latest: Arc<Mutex<Arc<ClientConfig>>>,
}

impl Secure {
    pub(crate) fn new(tls: &Tls) -> Result<Self, TlsError> {
        let config = Arc::new(config(tls)?);
        Ok(Self { tls: tls.clone(), latest: Arc::new(Mutex::new(config)) })
    }

    fn config(&self) -> Arc<ClientConfig> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match config(&self.tls) {
            Ok(config) => *latest = Arc::new(config),
            Err(error) => {
                tracing::warn!(%error, "cannot read TLS files, keeping the ones read before");
            }
        }
        Arc::clone(&latest)
    }
}

fn config(tls: &Tls) -> Result<ClientConfig, TlsError> {
    let mut config = tls.config()?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

impl Service<Uri> for Secure {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let secure = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default();
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(443))).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let config = secure.config();
            let shows_certificate = config.client_auth_cert_resolver.has_certs();
            let mut stream = TlsConnector::from(config).connect(name, stream).await?;
            if shows_certificate {
                hear_refusal(&mut stream).await?;
            }
            Ok(TokioIo::new(stream))
        })
    }
}

/// How long the server's first word after a handshake is waited for.
const FIRST_WORD_MAX: Duration = Duration::from_millis(500);

/// Waits for what the server says to the client's certificate. With TLS 1.3 that comes after the
/// handshake: tickets, or an alert that HTTP/2 would not hand on. What it reads is kept.
async fn hear_refusal(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    let (socket, tls) = stream.get_mut();
    if tls.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Ok(());
    }
    let first_word = async {
        loop {
            socket.readable().await?;
            match tls.read_tls(&mut Ready(socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    };
    match tokio::time::timeout(FIRST_WORD_MAX, first_word).await {
        Ok(read) => read?,
        // A server need not say anything.
        Err(_) => return Ok(()),
    };
    tls.process_new_packets().map_err(|refused| {
        io::Error::other(format!("the server refuses the client certificate: {refused}"))
    })?;
    Ok(())
}

/// Reads what a socket has received.
struct Ready<'a>(&'a TcpStream);

impl io::Read for Ready<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}
