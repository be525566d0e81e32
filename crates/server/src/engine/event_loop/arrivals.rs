//! What the loop learns from jobs that programs stored by SQL.

use outlast_store::arrival::EnqueuedArrived;

use super::EventLoop;

impl EventLoop {
    pub(super) fn arrivals_enqueued(&mut self, done: &EnqueuedArrived) {
        for job in &done.jobs {
            tracing::debug!(job = %job.id, state = %job.state, "arrival enqueued");
            self.job_enqueued(job);
        }
        for job in &done.known {
            tracing::warn!(%job, "dropped a job that a program stored by SQL: its id is taken");
        }
    }
}
