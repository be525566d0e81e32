//! Trying the jobs that are slow to claim, one by one and apart from all others.

use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::time::{BootTime, Span};
use outlast_store::command::{ClaimFrom, ClassId};
use outlast_store::{Command, StoreError};

use super::EventLoop;
use super::deferred::Attempted;
use crate::clock::boot_time;
use crate::engine::batch_writer::is_command_fault;
use crate::engine::batcher::{Op, ReplyTo};

/// Slow tries may take this part of the loop's time.
const SHARE: u64 = 5;

/// The tries of jobs that are slow to claim.
#[derive(Debug, Default)]
pub(super) struct ClaimTries {
    /// The job that is being tried.
    pub(super) of: Option<JobId>,
    /// When the next try is due.
    next: BootTime,
}

impl EventLoop {
    /// Makes the first claim that may take a job that is due for a try one for that job alone, and
    /// commits it by itself. Returns the other commands.
    pub(super) async fn try_slow_claims(&mut self, mut ops: Vec<Op>) -> Vec<Op> {
        let now = boot_time();
        if self.shared.slow_claims.is_empty() || now < self.claim_tries.next {
            return ops;
        }
        let found = ops.iter().enumerate().find_map(|(at, op)| Some((at, self.due_for(op, now)?)));
        let Some((at, (job, class))) = found else { return ops };
        let op = self.narrow(ops.remove(at), class);
        self.claim_tries.of = Some(job);
        let tried = self.try_commit(vec![op]).await;
        self.claim_tries.of = None;
        let ended = boot_time();
        match tried {
            Ok(()) => self.shared.slow_claims.tried(job, ended),
            Err((error, failed)) if !is_command_fault(&error) => self.fail(&error, failed),
            Err((error, failed)) => {
                let took = Span(ended.since(now).0.saturating_mul(SHARE - 1));
                self.claim_tries.next = ended.after(took);
                for op in self.set_aside(&error, failed) {
                    self.failed_alone(&error, Attempted { op, retried: None });
                }
            }
        }
        // Others of the class may be due.
        self.claim_again(&[class]);
        ops
    }

    fn due_for(&self, op: &Op, now: BootTime) -> Option<(JobId, ClassId)> {
        let Command::Claim(claim) = &op.command else { return None };
        let queue_of = |class| Some(&self.planning.classes.get(class)?.key.queue);
        let takes = |class| match &claim.from {
            ClaimFrom::Classes(classes) => classes.contains(&class),
            ClaimFrom::Queues { queues, .. } => {
                queue_of(class).is_some_and(|queue| queues.contains(queue))
            }
        };
        self.shared.slow_claims.due(takes, now)
    }

    /// Makes a claim one for a single job; that of a session, of this class.
    fn narrow(&mut self, Op { mut command, mut reply_to }: Op, class: ClassId) -> Op {
        if let Command::Claim(claim) = &mut command {
            claim.max = NonZeroU32::MIN;
            if let ReplyTo::Session(planned) = &mut reply_to {
                planned.end(&mut self.sessions);
                (planned.max, planned.classes) = (1, Arc::from([class]));
                planned.begin(&mut self.sessions);
                claim.from = ClaimFrom::Classes(Arc::clone(&planned.classes));
            }
        }
        Op { command, reply_to }
    }

    /// Sets the jobs aside that claims had chosen which took too long; the claims are made again
    /// without them. Returns commands that failed for something else.
    pub(super) fn set_aside(&mut self, error: &StoreError, ops: Vec<Op>) -> Vec<Op> {
        let StoreError::Slow(slow) = error else { return ops };
        let are_claims = ops.iter().all(|op| matches!(op.command, Command::Claim(_)));
        if !are_claims || !self.shared.slow_claims.set_aside(&slow.chosen, boot_time()) {
            return ops;
        }
        let mut again = Vec::new();
        for op in ops {
            match op.reply_to {
                // It is planned again at once.
                ReplyTo::Session(planned) => {
                    self.planning.redispatch.claimed(&[], planned.tokens);
                    planned.end(&mut self.sessions);
                }
                reply_to => again.push(Op { command: op.command, reply_to }),
            }
        }
        self.batcher.put_back(again);
        Vec::new()
    }
}
