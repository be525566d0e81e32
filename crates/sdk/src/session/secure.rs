//! Connections to `https://` servers.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::{Service, http::Uri};

use crate::dial;
use crate::tls::{CertificateRefused, Tls, TlsError};

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

    /// Whether the server refuses the client certificate, after a request to it has failed.
    pub(crate) async fn refusal(&self, url: &str) -> Option<CertificateRefused> {
        self.tls.refusal(url).await
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
            let stream = dial::connect(&host, uri.port_u16().unwrap_or(443)).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let stream = TlsConnector::from(secure.config()).connect(name, stream).await?;
            Ok(TokioIo::new(stream))
        })
    }
}
