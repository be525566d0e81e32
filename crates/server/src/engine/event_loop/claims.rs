//! Which claims join a batch.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_store::Command;
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId, First};

use super::EventLoop;
use crate::clock::boot_time;
use crate::engine::batcher::{Op, ReplyTo};
use crate::engine::estimate::Estimate;

impl EventLoop {
    pub(super) fn plan_claims(&mut self) {
        for op in self.claims() {
            self.batcher.push(op);
        }
    }

    /// Adds claims of jobs that the batch itself makes claimable, where a worker is free. Job and
    /// claim are then one transaction, so an idle system waits for the disk once, not twice.
    pub(super) fn claim_enqueued(&mut self, ops: &mut Vec<Op>) {
        if self.sessions.is_empty() {
            return;
        }
        let enqueued = self.enqueued_by_class(ops);
        if enqueued.is_empty() {
            return;
        }
        let now = boot_time();
        let before: Vec<(ClassId, Estimate)> = enqueued
            .into_iter()
            .filter_map(|(class, count)| {
                let ready = self.planning.classes.get(class)?.ready;
                self.planning.classes.add_ready(class, count, now);
                Some((class, ready))
            })
            .collect();
        ops.extend(self.claims());
        // They count once they are stored.
        for (class, ready) in before {
            self.planning.classes.set_ready(class, ready);
        }
    }

    fn enqueued_by_class(&self, ops: &[Op]) -> HashMap<ClassId, u64> {
        let jobs = ops.iter().flat_map(|op| match &op.command {
            Command::Enqueue(job) => std::slice::from_ref(&**job),
            Command::EnqueueAll(jobs) => jobs.as_slice(),
            // If they exist already, the claim returns fewer jobs, which is harmless.
            Command::EnqueueOnce(once) => once.jobs.as_slice(),
            _ => &[],
        });
        let mut counts = HashMap::new();
        for job in jobs.filter(|job| job.first == First::Now) {
            if let Some(class) = self.planning.classes.id_of(&job.stored_in())
                && !self.is_of_paused_queue(class)
            {
                *counts.entry(class).or_default() += 1;
            }
        }
        counts
    }

    /// Returns claims for every session that has room, of classes with claimable jobs.
    fn claims(&mut self) -> Vec<Op> {
        if self.is_shutting_down() || self.planning.classes.are_outdated() {
            return Vec::new();
        }
        let mut claims = Vec::new();
        for mut planned in self.plan() {
            let Some(max) = NonZeroU32::new(planned.max) else { continue };
            let (worker, session) = (planned.worker, planned.session);
            planned.begin(&mut self.sessions);
            let avoids = std::mem::take(&mut planned.avoids);
            let command = Command::Claim(Claim {
                claimant: Claimant::Native { worker, session },
                from: ClaimFrom::Classes(Arc::clone(&planned.classes)),
                max,
                is_prefetch: planned.is_prefetch,
                avoids,
                asked: self.planning.classes.asked(),
            });
            claims.push(Op { command, reply_to: ReplyTo::Session(planned) });
        }
        claims
    }
}
