//! What the loop learns from arrivals that became jobs.

use outlast_store::arrival::EnqueuedArrived;

use crate::engine::turn::Turn;

impl Turn {
    pub(super) fn note_arrived(&mut self, done: &EnqueuedArrived) {
        for job in &done.jobs {
            tracing::debug!(job = %job.id, state = %job.state, "arrival enqueued");
            self.note_enqueued(job);
        }
        for job in &done.known {
            tracing::warn!(%job, "dropped a job that a program stored by SQL: its id is taken");
        }
    }
}
