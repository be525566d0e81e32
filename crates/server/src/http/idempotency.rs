//! `Idempotency-Key`: a repeated request gets the first response again and does nothing else.
//!
//! ```text
//! key + token ─▶ fingerprint ─▶ stored with the jobs, in their transaction
//! same key, same request ─▶ the first response, `Idempotency-Replayed: true`
//! same key, other request ─▶ 409
//! ```

use outlast_core::limits::{IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENCY_KEY_KEPT};
use outlast_store::command::NewJob;
use outlast_store::idempotency::{EnqueueOnce, Fingerprint};
use outlast_wire::Fault;
use sha2::{Digest as _, Sha256};

use super::error::ApiError;
use super::request::ApiRequest;

/// The request header.
pub(super) const HEADER: &str = "idempotency-key";
/// The response header of a repeated response.
pub(super) const REPLAYED: &str = "idempotency-replayed";

/// A key with its owner.
#[derive(Debug)]
pub(super) struct IdempotencyKey {
    text: String,
    fingerprint: Fingerprint,
}

/// The endpoint that a key was used at. Aliases of a path are the same endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Endpoint {
    Execution,
    Job,
    Batch,
}

impl IdempotencyKey {
    /// Reads the key of a request, if it has one.
    pub(super) fn of(req: &ApiRequest) -> Result<Option<Self>, ApiError> {
        let mut values = req.headers().get_all(HEADER).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let fault = |problem: String| ApiError::from(Fault::field("Idempotency-Key", problem));
        if values.next().is_some() {
            return Err(fault("must be given once".to_owned()));
        }
        let text = value.to_str().map(str::trim).unwrap_or_default();
        if text.is_empty() || text.len() > IDEMPOTENCY_KEY_BYTES_MAX {
            let problem = format!("must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable characters");
            return Err(fault(problem));
        }
        let owner = req.token().map_or(b"anonymous".as_slice(), |token| token.hash.bytes());
        let fingerprint = hash(&[owner, text.as_bytes()]);
        Ok(Some(Self { text: text.to_owned(), fingerprint }))
    }

    /// Returns the key with its owner, as a digest.
    pub(super) const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns what the store keeps for this key.
    pub(super) fn once(&self, request: Fingerprint, jobs: Vec<NewJob>) -> EnqueueOnce {
        EnqueueOnce { key: self.fingerprint, request, keep: IDEMPOTENCY_KEY_KEPT, jobs }
    }

    /// The key was used for another request.
    pub(super) fn reused(&self) -> ApiError {
        ApiError::KeyReused(format!(
            "Idempotency-Key {:?} was used for another request less than 24 hours ago",
            self.text
        ))
    }
}

/// Identifies a request.
pub(super) fn request(endpoint: Endpoint, tenant: Option<&str>, body: &[u8]) -> Fingerprint {
    let name = match endpoint {
        Endpoint::Execution => b"execution",
        Endpoint::Job => b"ojs   job",
        Endpoint::Batch => b"ojs batch",
    };
    hash(&[name, tenant.unwrap_or_default().as_bytes(), body])
}

/// Identifies a request that begins a `kind`, such as `workflow`, as text.
pub(super) fn begins(kind: &str, tenant: Option<&str>, body: &[u8]) -> String {
    let digest = hash(&[kind.as_bytes(), tenant.unwrap_or_default().as_bytes(), body]);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes parts with their lengths, so that different lists of parts differ.
fn hash(parts: &[&[u8]]) -> Fingerprint {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}
