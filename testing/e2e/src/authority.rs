//! Certificates for tests: an authority, and what it signs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// When a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Now and for years.
    Now,
    /// Until years ago.
    Expired,
    /// In years to come.
    Later,
}

/// A certificate and its key, as files in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// An authority of its own, with its certificate as a file.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    /// Makes an authority whose certificate is `folder/name.crt`.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    #[must_use]
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        let file = folder.join(format!("{name}.crt"));
        std::fs::write(&file, made.pem()).expect("a file");
        Self { issuer: Issuer::new(params, key), file }
    }

    /// Returns its own certificate and key, as a server that presents them would have them.
    ///
    /// # Panics
    ///
    /// When the key cannot be written.
    #[must_use]
    pub fn itself(&self) -> Identity {
        let identity = Identity { key: self.file.with_extension("key"), cert: self.file.clone() };
        std::fs::write(&identity.key, self.issuer.key().serialize_pem()).expect("a file");
        identity
    }

    /// Returns the file with its certificate.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Signs a certificate with this common name for these names or addresses, as
    /// `folder/common.crt` and `.key`.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    #[must_use]
    pub fn sign(&self, common: &str, names: &[&str], validity: Validity) -> Identity {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, common);
        match validity {
            Validity::Now => {}
            Validity::Expired => {
                params.not_before = rcgen::date_time_ymd(2020, 1, 1);
                params.not_after = rcgen::date_time_ymd(2021, 1, 1);
            }
            Validity::Later => params.not_before = rcgen::date_time_ymd(2100, 1, 1),
        }
        let key = KeyPair::generate().expect("a key");
        let made = params.signed_by(&key, &self.issuer).expect("a certificate");
        let cert = self.file.with_file_name(format!("{common}.crt"));
        let identity = Identity { key: cert.with_extension("key"), cert };
        std::fs::write(&identity.cert, made.pem()).expect("a file");
        std::fs::write(&identity.key, key.serialize_pem()).expect("a file");
        identity
    }

    /// Makes what a client connects with that trusts this authority, and shows this.
    ///
    /// # Panics
    ///
    /// When the files cannot be read.
    #[must_use]
    pub fn client(&self, shown: Option<&Identity>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.file).expect("PEM")).expect("an authority");
        let building = builder().with_root_certificates(roots);
        match shown {
            None => building.with_no_client_auth(),
            Some(shown) => {
                let chain = vec![CertificateDer::from_pem_file(&shown.cert).expect("PEM")];
                let key = PrivateKeyDer::from_pem_file(&shown.key).expect("PEM");
                building.with_client_auth_cert(chain, key).expect("a pair")
            }
        }
    }
}

/// What a client connects with that trusts no authority.
#[must_use]
pub fn trusting_nobody() -> ClientConfig {
    builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

fn builder() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
}
