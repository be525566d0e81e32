//! Whether a server refuses the certificate of this client.
//!
//! With TLS 1.3 a server says so only after the handshake, and HTTP clients lose its alert or
//! hide it. So after a failure, and only then, one more connection waits for the alert.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt as _;
use tokio_rustls::TlsConnector;

use super::Tls;
use crate::dial;

/// How long the connection and its handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(1);

/// How long the alert is waited for. A server that accepts the certificate sends none.
const ALERT_MAX: Duration = Duration::from_millis(500);

/// A server refused the client certificate, or the lack of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRefused {
    /// The certificate that was sent, if one was.
    file: Option<PathBuf>,
    alert: AlertDescription,
}

impl Tls {
    /// Finds out whether the server at `url` refuses the client certificate. Call this after a
    /// request to it has failed without an answer: it takes a connection of its own.
    pub async fn refusal(&self, url: &str) -> Option<CertificateRefused> {
        let url = Url::parse(url).ok().filter(|url| url.scheme() == "https")?;
        let alert = self.alert_of(&url).await?;
        let file = self.client.as_ref().map(|(certificate, _)| certificate.clone());
        concerns_certificates(alert).then_some(CertificateRefused { file, alert })
    }

    async fn alert_of(&self, url: &Url) -> Option<AlertDescription> {
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = url.port_or_known_default()?;
        let connector = TlsConnector::from(Arc::new(self.config().ok()?));
        let name = ServerName::try_from(host.clone()).ok()?;
        let handshake = async {
            let stream = dial::connect(&host, port).await?;
            connector.connect(name, stream).await
        };
        let mut stream = match tokio::time::timeout(HANDSHAKE_MAX, handshake).await.ok()? {
            Ok(stream) => stream,
            Err(error) => return alert_in(&error),
        };
        let mut byte = [0];
        match tokio::time::timeout(ALERT_MAX, stream.read(&mut byte)).await.ok()? {
            Ok(_) => None,
            Err(error) => alert_in(&error),
        }
    }
}

fn alert_in(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

fn concerns_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
            | AlertDescription::CertificateRequired
    )
}

impl CertificateRefused {
    /// What would be right.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match (&self.file, self.alert) {
            (None, _) => "present one, with its key, that an authority of the server has signed",
            (Some(_), AlertDescription::UnknownCA) => {
                "present one that an authority in the server's `server.tls.client_ca` has signed"
            }
            (Some(_), AlertDescription::CertificateExpired) => {
                "renew it, and compare the clocks of both hosts"
            }
            (Some(_), AlertDescription::CertificateRevoked) => "present one that is not revoked",
            (Some(_), _) => {
                "present one for client authentication that an authority in the server's \
                 `server.tls.client_ca` has signed"
            }
        }
    }

    /// What was refused, and what would be right.
    pub(crate) fn with_remedy(&self) -> String {
        format!("{self}; {}", self.remedy())
    }

    fn why(&self) -> &'static str {
        match self.alert {
            AlertDescription::UnknownCA => "it does not trust the authority that signed it",
            AlertDescription::CertificateExpired => "it has expired or is not valid yet",
            AlertDescription::CertificateRevoked => "it is revoked",
            AlertDescription::UnsupportedCertificate => "it is not for client authentication",
            _ => "it cannot accept it",
        }
    }
}

impl fmt::Display for CertificateRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alert = self.alert;
        match &self.file {
            None => {
                write!(f, "the server requires a client certificate (TLS alert {alert:?})")
            }
            Some(file) => write!(
                f,
                "the server refused the client certificate {}: {} (TLS alert {alert:?})",
                file.display(),
                self.why()
            ),
        }
    }
}
