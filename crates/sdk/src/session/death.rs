//! Reporting a worker's death on its behalf.

use std::time::Duration;

use outlast_core::evidence::EvidenceCode;
use outlast_core::id::WorkerId;
use outlast_proto::v1::DeathReport;
use tonic::Code;

use super::backoff::Backoff;
use super::{Address, BadAddress, Token, TokenSource, client};
use crate::servers::ServerNumber;
use crate::tls::Tls;
use crate::worker_state::identity_bytes;

/// How long one try may take.
const TRY_MAX: Duration = Duration::from_secs(2);

/// A worker that died, of which nothing runs any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerDeath {
    /// The worker.
    pub worker: WorkerId,
    /// What ended it.
    pub code: EvidenceCode,
    /// How that is known.
    pub why: String,
}

/// Why a death was not reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeathNotReported {
    /// The address or the token cannot be used.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// The server does not take this report, now or later.
    #[error("server refuses the report of a death: {0}")]
    Refused(String),
    /// No server answered in time.
    #[error("no server took the report of a death: {0}")]
    OutOfReach(String),
}

/// Tells a server that a worker is dead, so that its jobs run elsewhere at once. Tries again
/// until `limit` has passed, each server in turn if `server` names several, with commas between them. A
/// worker that has lapsed or stopped already is as good as reported.
///
/// Call it only when every process that the worker had started is known to be gone: its jobs
/// may be handed out again before this returns.
///
/// # Errors
/// Returns why the report was not delivered; the worker's lease then decides.
pub async fn report_death(
    server: &str,
    token: Option<String>,
    tls: &Tls,
    death: &WorkerDeath,
    limit: Duration,
) -> Result<(), DeathNotReported> {
    let address = Address::new(server, &TokenSource { text: token.map(Token), file: None }, tls)?;
    let report = DeathReport {
        worker_id: identity_bytes(death.worker),
        why: death.why.clone(),
        evidence_code: death.code.as_str().to_owned(),
    };
    let mut last = "no answer".to_owned();
    let tries = async {
        let mut backoff = Backoff::default();
        loop {
            let server = address.servers().used();
            match tokio::time::timeout(TRY_MAX, send(&address, server, &report)).await {
                Ok(Err(DeathNotReported::OutOfReach(reason))) => last = reason,
                Ok(reply) => return reply,
                Err(_) => last = format!("no answer within {TRY_MAX:?}"),
            }
            address.servers().move_on(server);
            tokio::time::sleep(backoff.next(rand::random())).await;
        }
    };
    match tokio::time::timeout(limit, tries).await {
        Ok(reply) => reply,
        Err(_) => Err(DeathNotReported::OutOfReach(last)),
    }
}

async fn send(
    address: &Address,
    server: ServerNumber,
    report: &DeathReport,
) -> Result<(), DeathNotReported> {
    let channel = address.connect(server, TRY_MAX).await.map_err(DeathNotReported::OutOfReach)?;
    match client(channel).report_death(address.request(report.clone())).await {
        Ok(reply) => {
            let reply = reply.into_inner();
            if !reply.accepted {
                tracing::info!(reason = reply.reason, "worker was already lapsed or stopped");
            }
            Ok(())
        }
        Err(status) => {
            let reason = status.message().to_owned();
            Err(match status.code() {
                Code::Unauthenticated
                | Code::PermissionDenied
                | Code::Unimplemented
                | Code::InvalidArgument => DeathNotReported::Refused(reason),
                _ => DeathNotReported::OutOfReach(address.why_unanswered(server, &status).await),
            })
        }
    }
}
