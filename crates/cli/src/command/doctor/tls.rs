//! Certificates: those that a server is configured with, and the one that a server shows.

use std::sync::Arc;
use std::time::Duration;

use outlast_cli_core::client::{ClientConfig, certificate_hint};
use outlast_cli_core::clock;
use outlast_server::tls::Tls;
use reqwest::Url;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::Subject;
use super::check::Check;
use crate::config::server::tls_files;

/// A certificate that expires sooner than this is renewed now.
const EXPIRY_WARN_DAYS: i64 = 14;
/// Longest a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
const DAY_SECONDS: i64 = 24 * 3600;

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
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|it| it.to_string())?;
    let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(tls));
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(shown.iter().map(|certificate| certificate.clone().into_owned()).collect())
}

/// The one of a chain that expires first decides.
fn expiry(name: &'static str, whose: &str, chain: &[CertificateDer<'_>]) -> Check {
    let ends = chain.iter().filter_map(|der| {
        let certificate = Certificate::from_der(der.as_ref()).ok()?;
        let end = certificate.tbs_certificate.validity.not_after.to_unix_duration();
        i64::try_from(end.as_secs()).ok()
    });
    let Some(end) = ends.min() else {
        return Check::fail(name, format!("{whose}: no certificate can be read"), "make another");
    };
    let days = (end - clock::now().as_second()).div_euclid(DAY_SECONDS);
    let date = jiff::Timestamp::from_second(end).map(|end| end.strftime("%Y-%m-%d").to_string());
    let date = date.unwrap_or_else(|_| "an unknown day".to_owned());
    let fact = format!("{whose}: {} in the chain, valid until {date}", chain.len());
    let fix = "renew it; a server reloads it on SIGHUP";
    let check = if days < 0 {
        Check::fail(name, fact, fix)
    } else if days < EXPIRY_WARN_DAYS {
        Check::warn(name, fact, fix)
    } else {
        Check::ok(name, fact)
    };
    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    let days = days as f64;
    check.with_number(days, "days")
}
