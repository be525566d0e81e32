//! TLS to PostgreSQL, asked for and judged as libpq does it.
//!
//! | sslmode | encrypted | certificate |
//! |---|---|---|
//! | `disable` | no | – |
//! | `prefer` (default) | if the server can | any |
//! | `require` | yes | any; with `sslrootcert` as `verify-ca` |
//! | `verify-ca` | yes | signed by an authority of `sslrootcert` |
//! | `verify-full` | yes | that, and made out for the host that was asked for |

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What an address says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    mode: Mode,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    Disable,
    #[default]
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

impl Wanted {
    /// Takes what is about TLS out of an address; returns the rest, which the driver knows.
    pub(crate) fn take(url: &str) -> Result<(String, Self), String> {
        let mut wanted = Self::default();
        let rest = take_settings(url, |name, value| {
            let value = decoded(value);
            match name {
                "sslmode" => {
                    wanted.mode = Mode::of(&value).ok_or_else(|| {
                        format!(
                            "sslmode={value} is not known: it is disable, prefer, require, \
                             verify-ca or verify-full"
                        )
                    })?;
                }
                "sslrootcert" => wanted.root = Some(value),
                "sslcert" => wanted.certificate = Some(value),
                "sslkey" => wanted.key = Some(value),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok((rest, wanted))
    }

    /// The word for messages.
    pub(crate) const fn word(&self) -> &'static str {
        self.mode.word()
    }

    /// What the driver is to do.
    pub(crate) const fn mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// Makes what connections are encrypted with.
    pub(crate) fn connector(&self) -> Result<MakeRustlsConnect, String> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier { trust: self.trust(&provider)?, provider: Arc::clone(&provider) };
        let building = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (&self.certificate, &self.key) {
            (None, None) => building.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let chain = certificates("sslcert", certificate)?;
                let wrong = |error| format!("sslkey {key} cannot be read: {error}");
                let key = PrivateKeyDer::from_pem_file(key).map_err(wrong)?;
                building.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?
            }
            _ => return Err("sslcert and sslkey go together".into()),
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn trust(&self, provider: &Arc<CryptoProvider>) -> Result<Trust, String> {
        let by_name = self.mode == Mode::VerifyFull;
        let (roots, from) = match (self.mode, self.root.as_deref()) {
            (Mode::Disable | Mode::Prefer, _) | (Mode::Require, None) => return Ok(Trust::Anybody),
            (_, Some("system")) => (system()?, "system"),
            (_, Some(file)) => (certificates("sslrootcert", file)?, file),
            (Mode::VerifyCa | Mode::VerifyFull, None) => {
                return Err(format!(
                    "sslmode={} needs sslrootcert=FILE with the certificates of the authorities \
                     that are trusted, or sslrootcert=system",
                    self.word()
                ));
            }
        };
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
        if added == 0 {
            return Err(format!("sslrootcert {from} holds no certificate that can be used"));
        }
        let chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
                .build()
                .map_err(|error| error.to_string())?;
        Ok(Trust::Authorities { chain, roots, by_name })
    }
}

/// Takes settings out of an address, those that `take` says it takes; returns the rest.
pub(crate) fn take_settings(
    url: &str,
    mut take: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<String, String> {
    let Some((place, query)) = url.split_once('?') else { return Ok(url.to_owned()) };
    let mut rest = Vec::new();
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !take(name, value)? {
            rest.push(pair);
        }
    }
    if rest.is_empty() {
        return Ok(place.to_owned());
    }
    Ok(format!("{place}?{}", rest.join("&")))
}

/// Returns the authorities that the system trusts; `SSL_CERT_FILE` names others.
fn system() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let reasons = reasons.join("; ");
        return Err(format!(
            "sslrootcert=system: this system has no certificates of authorities ({reasons}); \
             install ca-certificates, or name a file of them"
        ));
    }
    Ok(found.certs)
}

fn certificates(what: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error| format!("{what} {file} cannot be read: {error}");
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(wrong)?.collect();
    let read = read.map_err(wrong)?;
    if read.is_empty() {
        return Err(format!("{what} {file} holds no certificate in PEM"));
    }
    Ok(read)
}

/// Returns a value of an address as it was meant.
fn decoded(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let code = (byte == b'%').then(|| value.get(at + 1..at + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                plain.push(code);
                at += 3;
            }
            None => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Whose certificate is good.
#[derive(Debug)]
enum Trust {
    Anybody,
    Authorities {
        chain: Arc<WebPkiServerVerifier>,
        roots: Vec<CertificateDer<'static>>,
        by_name: bool,
    },
}

/// Judges the server's certificate. That the server has its key is checked in every mode.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Authorities { chain, roots, by_name } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        // A certificate that is in the file itself is trusted as it is, as with libpq: most
        // that people make for themselves are their own authority.
        if roots.iter().any(|root| root.as_ref() == end_entity.as_ref()) {
            if *by_name {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        let judged =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match judged {
            // The name is looked at last: all else was good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !by_name => Ok(ServerCertVerified::assertion()),
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, Wanted};

    #[test]
    fn what_is_about_tls_is_taken_out_of_the_address() {
        let url = "postgres://me@host/db?sslmode=verify-ca&connect_timeout=3&sslrootcert=%2Fa%20b";
        let (rest, wanted) = Wanted::take(url).unwrap();
        assert_eq!(rest, "postgres://me@host/db?connect_timeout=3");
        assert_eq!((wanted.mode, wanted.root.as_deref()), (Mode::VerifyCa, Some("/a b")));
        assert_eq!(Wanted::take("postgres://h/d").unwrap().1.mode, Mode::Prefer);
    }

    #[test]
    fn unknown_mode_and_half_a_pair_say_what_would_be_right() {
        let words = Wanted::take("postgres://h/d?sslmode=allow").unwrap_err();
        assert!(words.contains("verify-full"), "{words}");
        for (query, expected) in [
            ("sslmode=verify-full", "needs sslrootcert"),
            ("sslmode=verify-ca&sslrootcert=/not/there", "/not/there cannot be read"),
            ("sslcert=/a", "go together"),
        ] {
            let (_, wanted) = Wanted::take(&format!("postgres://h/d?{query}")).unwrap();
            let words = wanted.connector().map(|_| ()).unwrap_err();
            assert!(words.contains(expected), "{words}");
        }
    }
}
