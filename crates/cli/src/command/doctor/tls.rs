//! Certificates: those that a server is configured with, and the one that a server shows.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_cli_core::client::{ClientConfig, certificate_hint};
use outlast_cli_core::clock;
use outlast_sdk::dial;
use outlast_server::tls::Tls;
use reqwest::Url;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Subject;
use super::check::Check;
use crate::certificate::{Validity, is_authority, names_of};
use crate::config::server::tls_files;

/// A certificate that expires sooner than this is renewed now.
const EXPIRY_WARN_DAYS: i64 = 14;
/// Longest a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Most bytes that are read of an answer.
const ANSWER_MAX: u64 = 64 * 1024;

/// Looks at the files that a server here is configured with.
pub(super) fn files(subject: &Subject<'_>, checks: &mut Vec<Check>) {
    const NAME: &str = "server certificate";
    let files = match tls_files(&subject.settings) {
        Ok(Some(files)) => files,
        Ok(None) => return,
        Err(error) => {
            return checks.push(Check::fail(NAME, error.to_string(), "set both, or neither"));
        }
    };
    let fix = "name PEM files that the server can read: a certificate and its key";
    if let Err(error) = Tls::load(&files) {
        return checks.push(Check::fail(NAME, error.to_string(), fix));
    }
    let read = CertificateDer::pem_file_iter(&files.cert).and_then(Iterator::collect);
    let shown = files.cert.display().to_string();
    if is_authority(&files.cert) {
        let fact = format!("{shown} is the certificate of an authority, which clients refuse");
        let fix = "sign another one for the server with it, and name that one";
        return checks.push(Check::fail(NAME, fact, fix));
    }
    match read {
        Ok(chain) => {
            let chain: Vec<CertificateDer<'_>> = chain;
            checks.push(expiry(NAME, &shown, &chain));
        }
        Err(error) => checks.push(Check::fail(NAME, format!("{shown}: {error}"), fix)),
    }
}

/// Shakes hands with a server at `https://`, and judges its certificate as a client does.
pub(super) async fn server(config: &ClientConfig, checks: &mut Vec<Check>) {
    const NAME: &str = "certificate";
    let Ok(url) = Url::parse(&config.server) else { return };
    if url.scheme() != "https" {
        return;
    }
    let shaken = tokio::time::timeout(HANDSHAKE_MAX, chain(config, &url)).await;
    checks.push(match shaken.unwrap_or_else(|_| Err("no handshake within 5 s".to_owned())) {
        Ok(chain) => expiry(NAME, &config.server, &chain),
        Err(reason) => {
            let fix = certificate_hint(&reason).unwrap_or("look at the server's log");
            Check::fail(NAME, format!("{}: {reason}", config.server), fix)
        }
    });
}

async fn chain(config: &ClientConfig, url: &Url) -> Result<Vec<CertificateDer<'static>>, String> {
    let tls = config.tls.config().map_err(|error| error.to_string())?;
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    let stream = dial::connect(&host, port).await.map_err(|it| it.to_string())?;
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(tls));
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(shown.iter().map(|certificate| certificate.clone().into_owned()).collect())
}

/// What listens on an address of this host, by the certificate that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// That of the file.
    Configured,
    /// Another one, with its validity, of a server that may be the one of this configuration: for
    /// the same names, or of an Outlast server.
    Another { same_names: bool, validity: Option<Validity> },
    /// That of some other program.
    Foreign,
    /// It did not end the handshake in time.
    Silent,
    /// It does not speak TLS.
    Nothing,
}

/// Compares the certificate of what listens on `address` with the file `cert`. Nothing is trusted,
/// and no secret sent: a server there need not be reachable under a name that the certificate has.
pub(super) async fn shown(address: SocketAddr, cert: &Path) -> Shown {
    let met = meet(address).await;
    let Some(shown) = met.certificate else {
        return if met.in_time { Shown::Nothing } else { Shown::Silent };
    };
    let ours = CertificateDer::pem_file_iter(cert).ok().and_then(|mut it| it.next());
    let ours = ours.and_then(Result::ok);
    if ours.as_ref() == Some(&shown) {
        return Shown::Configured;
    }
    let names = names_of(&shown);
    let same_names = names.is_some() && ours.and_then(|ours| names_of(&ours)) == names;
    if same_names || met.is_outlast {
        Shown::Another { same_names, validity: Validity::of(&[shown]) }
    } else {
        Shown::Foreign
    }
}

/// What was learned from a connection over TLS.
struct Met {
    /// The certificate that was shown.
    certificate: Option<CertificateDer<'static>>,
    /// Whether it answers as an Outlast server does.
    is_outlast: bool,
    /// Whether it ended in time.
    in_time: bool,
}

/// Asks what listens on `address` over TLS whether it lives, as anybody may.
async fn meet(address: SocketAddr) -> Met {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let witness = Arc::new(Witness { provider: Arc::clone(&provider), shown: Mutex::default() });
    let Ok(builder) =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
    else {
        return Met { certificate: None, is_outlast: false, in_time: true };
    };
    let verifier: Arc<dyn ServerCertVerifier> = Arc::<Witness>::clone(&witness);
    let tls = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let asking = async {
        let stream = TcpStream::connect(address).await.ok()?;
        let connector = TlsConnector::from(Arc::new(tls));
        let mut stream = connector.connect(address.ip().into(), stream).await.ok()?;
        let request =
            format!("GET /health/live HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).contains("\"uptime_seconds\""))
    };
    // A server may refuse a client without a certificate, after it has shown its own.
    let asked = tokio::time::timeout(HANDSHAKE_MAX, asking).await;
    let certificate = witness.shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    let in_time = asked.is_ok();
    Met { certificate, is_outlast: asked.ok().flatten().unwrap_or_default(), in_time }
}

/// Notes the certificate that a server shows.
#[derive(Debug)]
struct Witness {
    provider: Arc<CryptoProvider>,
    shown: Mutex<Option<CertificateDer<'static>>>,
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *shown = Some(end_entity.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The one of a chain that expires first decides.
fn expiry(name: &'static str, whose: &str, chain: &[CertificateDer<'_>]) -> Check {
    let Some(validity) = Validity::of(chain) else {
        return Check::fail(name, format!("{whose}: no certificate can be read"), "make another");
    };
    let now = clock::now();
    let days = validity.days_left(now);
    let fix = "renew it; a server reloads it on SIGHUP";
    let check = match validity.problem(now) {
        Some(problem) => Check::fail(name, format!("{whose}: {problem}"), fix),
        None => {
            let (count, last) = (chain.len(), validity.last_day());
            let fact = format!("{whose}: {count} in the chain, valid until {last}");
            if days < EXPIRY_WARN_DAYS {
                Check::warn(name, fact, fix)
            } else {
                Check::ok(name, fact)
            }
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    let days = days as f64;
    check.with_number(days, "days")
}
