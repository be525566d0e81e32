//! The death of a worker, as its guardian reports it.

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_proto::v1::{DeathReply, DeathReport};
use outlast_store::command::WorkerMove;
use tonic::Status;

use crate::engine::Engine;
use crate::engine::input::Input;
use crate::session::beat::unavailable;
use crate::session::convert::{self, bounded};

/// Releases what the worker held: its guardian has seen all its processes end.
pub(super) async fn answer(engine: &Engine, report: DeathReport) -> Result<DeathReply, Status> {
    let worker = convert::worker_id(&report.worker_id)
        .ok_or_else(|| Status::invalid_argument("worker id must have 16 bytes"))?;
    let code = EvidenceCode::parse(&report.evidence_code).unwrap_or(EvidenceCode::EngineKilled);
    let step = WorkerMove {
        worker,
        event: WorkerEvent::Died,
        ordered: None,
        // Whatever session it had: the process is gone, and its identity with it.
        session: None,
        by: format!("guardian of worker {worker}"),
        evidence: Evidence::of(code, bounded(report.why)),
    };
    match engine.submit(step).await.map_err(unavailable)? {
        Ok(_) => {
            tracing::warn!(%worker, "guardian reported the death of a worker's engine: its jobs run elsewhere");
            // Behind a partition its stream may look alive for a while.
            drop(engine.send(Input::WorkerLapsed { worker }).await);
            Ok(DeathReply { accepted: true, reason: String::new() })
        }
        Err(refusal) => {
            tracing::info!(%worker, %refusal, "ignored a report of a worker's death: it had already left");
            Ok(DeathReply { accepted: false, reason: refusal.to_string() })
        }
    }
}
