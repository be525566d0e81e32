//! When certificates are valid, and what they are for.

use std::path::Path;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::ext::pkix::{BasicConstraints, SubjectAltName};

const DAY_SECONDS: i64 = 24 * 3600;

/// When all certificates of a chain are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    from: Timestamp,
    until: Timestamp,
}

impl Validity {
    /// `None` if none of the certificates can be read.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let all = chain.iter().filter_map(|der| {
            let certificate = Certificate::from_der(der.as_ref()).ok()?;
            let validity = certificate.tbs_certificate.validity;
            let at = |time: x509_cert::time::Time| {
                let seconds = i64::try_from(time.to_unix_duration().as_secs()).ok()?;
                Timestamp::from_second(seconds).ok()
            };
            Some(Self { from: at(validity.not_before)?, until: at(validity.not_after)? })
        });
        all.reduce(|one, other| Self {
            from: one.from.max(other.from),
            until: one.until.min(other.until),
        })
    }

    /// As [`Self::of`] for a file in PEM.
    pub(crate) fn of_file(file: &Path) -> Option<Self> {
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
        let chain: Vec<CertificateDer<'_>> = read.ok()?;
        Self::of(&chain)
    }

    /// Whole days from `now` until it expires.
    pub(crate) fn days_left(self, now: Timestamp) -> i64 {
        (self.until.as_second() - now.as_second()).div_euclid(DAY_SECONDS)
    }

    /// Why clients refuse the certificate at this time.
    pub(crate) fn problem(self, now: Timestamp) -> Option<String> {
        if now < self.from {
            Some(format!("is not valid before {}", self.from))
        } else if now > self.until {
            Some(format!("expired on {}", self.until))
        } else {
            None
        }
    }

    /// The day on which it expires.
    pub(crate) fn last_day(self) -> String {
        self.until.strftime("%Y-%m-%d").to_string()
    }
}

/// Whether a file in PEM begins with the certificate of an authority, which is no server's.
pub(crate) fn is_authority(file: &Path) -> bool {
    let first = CertificateDer::pem_file_iter(file).ok().and_then(|mut chain| chain.next());
    let Some(Ok(der)) = first else { return false };
    let read = Certificate::from_der(der.as_ref()).ok();
    let read = read.and_then(|it| it.tbs_certificate.get::<BasicConstraints>().ok().flatten());
    read.is_some_and(|(_, constraints)| constraints.ca)
}

/// For whom a certificate is: its subject and the other names in it, as they are written there.
pub(crate) fn names_of(der: &CertificateDer<'_>) -> Option<(String, Vec<u8>)> {
    let certificate = Certificate::from_der(der.as_ref()).ok()?.tbs_certificate;
    let extensions = certificate.extensions.unwrap_or_default();
    let other = extensions.into_iter().find(|extension| extension.extn_id == SubjectAltName::OID);
    let other = other.map(|extension| extension.extn_value.into_bytes()).unwrap_or_default();
    Some((certificate.subject.to_string(), other))
}
