//! TLS of the listener: its certificate, the authorities of client certificates, and reloading
//! both.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5String, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode as _, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// First byte of a TLS handshake. No HTTP request begins with it.
pub(crate) const HANDSHAKE: u8 = 22;
/// `id-at-commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate with its intermediates.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Authorities of client certificates.
    pub client_ca: Option<PathBuf>,
}

/// Why TLS cannot be used as configured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("{key} {path}: {reason}", path = .path.display())]
    File {
        /// Key of the configuration that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificate cannot be used with the key.
    #[error("server.tls.cert and server.tls.key do not match: {0}")]
    Pair(rustls::Error),
    /// Any other error of the library.
    #[error("TLS cannot be set up: {0}")]
    Other(String),
}

/// TLS of the listener; may be replaced at any time.
#[derive(Debug)]
pub struct Tls {
    config: RwLock<Arc<ServerConfig>>,
}

/// The names in a client's certificate: its common name first, then its alternative names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateNames(pub Vec<String>);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns which file is wrong, and what about it.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { config: RwLock::new(Arc::new(config(files)?)) })
    }

    /// Uses what was loaded later, for new connections.
    pub fn replace(&self, later: Self) {
        let config = later.config.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Does the handshake; returns the names in the client's certificate if it sent one.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<CertificateNames>)> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let names = shown.map(|certificate| names(certificate.as_ref()));
        Ok((stream, names))
    }
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let other = |error: &dyn std::fmt::Display| TlsError::Other(error.to_string());
    let chain = certificates("server.tls.cert", &files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::File {
        key: "server.tls.key",
        path: files.key.clone(),
        reason: format!("has no readable private key in PEM: {error}"),
    })?;
    let building = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| other(&error))?;
    let building = match &files.client_ca {
        None => building.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            let known = certificates("server.tls.client_ca", path)?;
            roots.add_parsable_certificates(known);
            // Probes have none, and clients may send a token instead: each request decides what
            // is allowed without either.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| other(&error))?;
            building.with_client_cert_verifier(verifier)
        }
    };
    let mut config = building.with_single_cert(chain, key).map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if files.client_ca.is_some() {
        // A resumed session skips verification, though the certificate may have expired.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |reason: String| TlsError::File { key, path: path.to_owned(), reason };
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(format!("cannot be read: {error}")));
    match read? {
        read if read.is_empty() => Err(wrong("has no certificate in PEM".to_owned())),
        read => Ok(read),
    }
}

/// Returns the names in a certificate; one that cannot be read has none.
fn names(der: &[u8]) -> CertificateNames {
    let Ok(certificate) = Certificate::from_der(der) else {
        return CertificateNames(Vec::new());
    };
    let subject = certificate.tbs_certificate.subject.0.iter();
    let common = subject
        .flat_map(|part| part.0.iter())
        .filter(|attribute| attribute.oid == COMMON_NAME)
        .filter_map(|attribute| {
            let value = &attribute.value;
            match value.tag() {
                Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str().to_owned(),
                Tag::PrintableString => {
                    value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned()
                }
                Tag::Ia5String => value.decode_as::<Ia5String>().ok()?.as_str().to_owned(),
                _ => return None,
            }
            .into()
        });
    let alternative = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    let alternative = alternative.iter().flat_map(|(_, names)| names.0.iter());
    let alternative = alternative.filter_map(|name| match name {
        GeneralName::DnsName(name)
        | GeneralName::Rfc822Name(name)
        | GeneralName::UniformResourceIdentifier(name) => Some(name.as_str().to_owned()),
        _ => None,
    });
    CertificateNames(common.chain(alternative).collect())
}
