//! What the server hands over: one attempt of one job.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::id::{Epoch, JobId};
use outlast_core::resources::Resources;
use outlast_proto::v1;
use uuid::Uuid;

/// Names one attempt: a job, and the claim of it that fences every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// The job.
    pub job: JobId,
    /// The epoch of the claim.
    pub epoch: Epoch,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.epoch)
    }
}

impl AttemptId {
    pub(crate) fn from_wire(key: &v1::AttemptKey) -> Option<Self> {
        let job = Uuid::from_slice(&key.job_id).ok()?;
        Some(Self { job: JobId(job), epoch: Epoch(key.epoch) })
    }

    pub(crate) fn to_wire(self) -> v1::AttemptKey {
        v1::AttemptKey {
            job_id: Bytes::copy_from_slice(self.job.0.as_bytes()),
            epoch: self.epoch.0,
        }
    }
}

/// One attempt, handed over to be run.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Which attempt this is.
    pub attempt: AttemptId,
    /// Names the handler or action.
    pub job_type: String,
    /// The queue it came from.
    pub queue: String,
    /// Charged attempts + 1.
    pub attempt_number: u32,
    /// The arguments, a JSON array; for an action its first element is the parameters.
    pub args_json: Bytes,
    /// Metadata as JSON.
    pub meta_json: Bytes,
    /// How long it may run, if the job says so.
    pub timeout: Option<Duration>,
    /// Two attempts of the job must never run at the same time.
    pub overlap_forbidden: bool,
    /// It must run with nothing beside it.
    pub isolated: bool,
    /// What an earlier attempt stored; empty if none did.
    pub checkpoint: Bytes,
    /// The same for every attempt of the job.
    pub idempotency_key: String,
    /// How many attempts the job may have; 1 means that it is never started twice.
    pub max_attempts: u32,
    /// What it may use. Only a worker that runs actions can hold a job to it.
    pub resources: Resources,
    /// The beginning of the digest of the pack that it must run with; empty for any. Only a worker
    /// that runs actions has packs.
    pub pack_digest: String,
}

impl Delivery {
    /// Returns what the wire carries, or `None` when it names no attempt.
    pub(crate) fn from_wire(wire: v1::Delivery) -> Option<Self> {
        Some(Self {
            attempt: AttemptId::from_wire(wire.attempt.as_ref()?)?,
            job_type: wire.job_type,
            queue: wire.queue,
            attempt_number: wire.attempt_number,
            args_json: wire.args_json,
            meta_json: wire.meta_json,
            timeout: wire.timeout_ms.map(Duration::from_millis),
            overlap_forbidden: wire.overlap_forbidden,
            isolated: wire.isolated,
            checkpoint: wire.checkpoint,
            idempotency_key: wire.idempotency_key,
            max_attempts: wire.max_attempts,
            pack_digest: wire.pack_digest,
            // The server has checked them.
            resources: wire.resources.map_or(Resources::NONE, |limits| {
                Resources::new(limits.memory_bytes, limits.cpu_millis, limits.processes)
                    .unwrap_or_default()
            }),
        })
    }
}
