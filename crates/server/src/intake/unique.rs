//! What makes a job the only one of its sort.

use outlast_core::unique::Unique;
use outlast_store::command::NewJob;
use outlast_wire::Fault;
use outlast_wire::unique::{Subject, UniquePolicy};
use sha2::{Digest as _, Sha256};

/// Returns what a policy means for a job.
pub(super) fn of(policy: &UniquePolicy, job: &NewJob) -> Result<Unique, Fault> {
    let text = policy.text_of(&Subject {
        job_type: &job.class.job_type,
        queue: &job.class.queue,
        args: &job.payload.args,
        meta: &job.payload.meta,
        tenant: job.class.tenant.as_deref(),
    })?;
    Ok(Unique {
        fingerprint: Sha256::digest(text.as_bytes()).into(),
        states: policy.states,
        period: policy.period,
        on_conflict: policy.on_conflict,
    })
}
