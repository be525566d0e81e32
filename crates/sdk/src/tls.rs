//! Which certificate authorities are trusted, and which client certificate is presented.
//!
//! The system's authorities are trusted, those of `SSL_CERT_FILE` or `SSL_CERT_DIR` in place
//! of them where one is set, and those of a file in place of all others where one is named.

mod refusal;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

pub use self::refusal::CertificateRefused;

/// How connections to `https://` servers are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Tls {
    ca_file: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
}

/// TLS cannot be used as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub(crate) String);

impl Tls {
    /// Trusts the system's authorities, and presents no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts only the authorities in this PEM file.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// Presents this client certificate, with its chain, to servers that ask for one. Both files
    /// are PEM; a worker reads them again at each connection.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client = Some((certificate.into(), key.into()));
        self
    }

    /// Reads the files and returns the TLS configuration.
    ///
    /// # Errors
    /// When a file cannot be read, or the system has no authorities.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let other = |error: rustls::Error| TlsError(error.to_string());
        let building = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(other)?
            .with_root_certificates(self.roots()?);
        let Some((certificate, key)) = &self.client else {
            return Ok(building.with_no_client_auth());
        };
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| TlsError(format!("client key {}: {error}", key.display())))?;
        building.with_client_auth_cert(chain, key).map_err(|error| {
            TlsError(format!("client certificate {}: {error}", certificate.display()))
        })
    }

    /// As [`Self::config`] for an `https://` address. For any other no file is read, and
    /// nothing is trusted.
    ///
    /// # Errors
    /// As [`Self::config`].
    pub fn config_for(&self, url: &str) -> Result<ClientConfig, TlsError> {
        if url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
            return self.config();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let building = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?;
        Ok(building.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, TlsError> {
        static SYSTEM: OnceLock<Result<Arc<RootCertStore>, TlsError>> = OnceLock::new();
        match &self.ca_file {
            None => SYSTEM.get_or_init(system).clone(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                let (added, _) = roots.add_parsable_certificates(certificates(file)?);
                if added == 0 {
                    let file = file.display();
                    return Err(TlsError(format!("{file} holds no certificate that can be used")));
                }
                Ok(Arc::new(roots))
            }
        }
    }
}

fn system() -> Result<Arc<RootCertStore>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let reasons = reasons.join("; ");
        return Err(TlsError(format!(
            "this system has no certificates of authorities ({reasons}): install \
             ca-certificates, or name a file of them"
        )));
    }
    Ok(Arc::new(roots))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |reason: String| TlsError(format!("{}: {reason}", file.display()));
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(format!("cannot be read as certificates in PEM: {error}")));
    match read? {
        read if read.is_empty() => Err(wrong("holds no certificate in PEM".to_owned())),
        read => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::Tls;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "no certificate").unwrap();
        for (file, expected) in [("/not/there".into(), "/not/there"), (empty, "no certificate")] {
            let error = Tls::new().ca_file(&file).config().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
