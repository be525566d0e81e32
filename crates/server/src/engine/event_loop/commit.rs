//! Applying a batch: as one transaction, or in parts if one of its commands fails it.

use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::reply::Claims;
use outlast_store::{Command, StoreError};

use super::EventLoop;
use super::deferred::{Attempted, QueueId};
use crate::clock::boot_time;
use crate::engine::batch_writer::{Committed, Failed, is_command_fault};
use crate::engine::batcher::{Op, ReplyTo};
use crate::engine::command_facts::due_of;
use crate::engine::error::Unavailable;
use crate::engine::trouble_log::log_trouble;

/// Most parts of a batch in one go that may find a row locked, or take too long: each costs the
/// whole server a moment. Enough to single out one command of the largest batch.
const FAILED_TRIES: usize = 24;
/// A part that took too long is cut into this many: each may cost what the store gives it.
const PARTS_OF_SLOW: usize = 8;
/// How long what has no caller waits when the store is away.
const AFTER_FAILURE: Span = Span::from_secs(2);
/// When so many parts took too long and none went through, no command is to blame.
pub(crate) const SLOW_MAX: usize = 8;

impl EventLoop {
    pub(super) async fn commit(&mut self, mut ops: Vec<Op>) {
        self.metrics.batch(ops.len());
        if let Err((error, failed)) = self.try_commit(ops).await {
            if !is_command_fault(&error) {
                return self.fail(&error, failed);
            }
            ops = self.set_aside(&error, failed);
            if ops.len() > 1 {
                tracing::warn!(%error, commands = ops.len(), "batch failed as one; splitting it");
                self.commit_split(&error, ops).await;
            } else if let Some(op) = ops.pop() {
                self.failed_alone(&error, Attempted { op, retried: None });
            }
        }
    }

    /// Commits a batch in parts that one of its commands has failed.
    async fn commit_split(&mut self, error: &StoreError, ops: Vec<Op>) {
        let parts = if matches!(error, StoreError::Slow(_)) { PARTS_OF_SLOW } else { 1 };
        let new = |op: &Op| matches!(op.command, Command::Enqueue(_) | Command::EnqueueAll(_));
        let (new, others): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(new);
        let attempted = |op| Attempted { op, retried: None };
        let cut = |ops: Vec<Op>| split(ops.into_iter().map(attempted).collect(), parts);
        // No session can have locked the rows of new jobs, so they come first.
        match self.commit_in_parts(cut(new), FAILED_TRIES).await {
            Ok(()) => drop(self.commit_in_parts(cut(others), FAILED_TRIES).await),
            // The others would fail the same way, after a long wait.
            Err(error) => self.fail(&error, others),
        }
    }

    /// Commits parts of a batch, the last one first, and parts of those that fail, until each one that is locked, takes too long, or cannot be
    /// applied at all, is alone. When `tries` have failed, the rest waits for its turn again.
    ///
    /// # Errors
    /// When the store has gone away. The commands have got that for an answer.
    pub(super) async fn commit_in_parts(
        &mut self,
        mut parts: Vec<Vec<Attempted>>,
        tries: usize,
    ) -> Result<(), StoreError> {
        let (mut failed, mut slow, mut any_stored) = (0, 0, false);
        let mut untried = Vec::new();
        while let Some(part) = parts.pop() {
            if failed >= tries {
                untried.extend(part);
                continue;
            }
            let part = self.deferred.divert_part(part);
            let part = self.divert_slow_kinds(part);
            let (ops, retried): (Vec<Op>, Vec<_>) =
                part.into_iter().map(|it| (it.op, it.retried)).unzip();
            if ops.is_empty() {
                continue;
            }
            let Err((error, ops)) = self.try_commit(ops).await else {
                self.release_queues(retried.into_iter().flatten());
                any_stored = true;
                continue;
            };
            let is_slow = matches!(error, StoreError::Slow(_));
            slow += usize::from(is_slow && retried.iter().all(Option::is_none));
            let away = !is_command_fault(&error);
            if away || (slow >= SLOW_MAX && !any_stored) {
                // The other parts would fail the same way, each after a long wait.
                let rest = parts.drain(..).rev().flatten();
                let (rest, others): (Vec<Op>, Vec<_>) = rest.map(|it| (it.op, it.retried)).unzip();
                self.release_queues(retried.into_iter().chain(others).flatten());
                self.fail(&error, ops.into_iter().chain(rest).collect());
                self.try_later(untried);
                return if away { Err(error) } else { Ok(()) };
            }
            failed += usize::from(is_slow || matches!(error, StoreError::Locked(_)));
            let ops = self.set_aside(&error, ops);
            if ops.is_empty() {
                self.release_queues(retried.into_iter().flatten());
                continue;
            }
            let together = ops.into_iter().zip(retried);
            let part: Vec<Attempted> =
                together.map(|(op, retried)| Attempted { op, retried }).collect();
            if part.len() > 1 {
                parts.extend(split(part, if is_slow { PARTS_OF_SLOW } else { 2 }));
            } else {
                part.into_iter().for_each(|alone| self.failed_alone(&error, alone));
            }
        }
        self.try_later(untried);
        Ok(())
    }

    /// A command failed alone: it waits, or is refused.
    pub(super) fn failed_alone(&mut self, error: &StoreError, alone: Attempted) {
        let waits = match error {
            StoreError::Locked(_) => true,
            // A caller may ask again. A report would be lost.
            StoreError::Slow(_) => is_report(&alone.op),
            _ => false,
        };
        if waits {
            tracing::debug!(%error, "command waits for what holds it up");
            self.deferred.defer(alone);
        } else {
            if matches!(error, StoreError::Slow(_)) {
                self.slow_kinds.failed_alone(&alone.op, boot_time());
            }
            self.release_queues(alone.retried);
            self.fail_one(error, alone.op);
        }
    }

    /// Keeps commands that were not tried for the next turn.
    fn try_later(&mut self, untried: Vec<Attempted>) {
        let mut fresh = Vec::new();
        for Attempted { op, retried } in untried {
            match retried {
                Some((queue, since)) => self.deferred.put_back(op, queue, since),
                None => fresh.push(op),
            }
        }
        self.batcher.put_back(fresh);
    }

    /// Lets the commands go on that waited behind one that was deferred and no longer is.
    fn release_queues(&mut self, retried: impl IntoIterator<Item = (QueueId, BootTime)>) {
        for (queue, _) in retried {
            let ops = self.deferred.released(queue);
            self.batcher.put_back(ops);
        }
    }

    /// Applies a batch and passes its replies on, or hands it back.
    pub(super) async fn try_commit(&mut self, ops: Vec<Op>) -> Result<(), (StoreError, Vec<Op>)> {
        let due = ops.iter().filter_map(|op| due_of(&op.command)).min();
        let (commands, reply_tos): (Vec<Command>, Vec<ReplyTo>) =
            ops.into_iter().map(|op| (op.command, op.reply_to)).unzip();
        match self.apply(commands).await {
            Ok(committed) => {
                self.committed(committed, reply_tos, due);
                Ok(())
            }
            Err(Failed { error, commands }) => {
                let ops = commands.into_iter().zip(reply_tos);
                let ops = ops.map(|(command, reply_to)| Op { command, reply_to }).collect();
                Err((error, ops))
            }
        }
    }

    async fn apply(&mut self, mut commands: Vec<Command>) -> Result<Committed, Failed> {
        for command in &mut commands {
            if let Command::Sweep(sweep) = command {
                // Contact with the store may have broken while it waited here.
                let watched = self.shared.store_health.watched(boot_time());
                sweep.watched = sweep.watched.min(watched);
            }
            if let Command::Claim(claim) = command {
                self.shared.slow_claims.avoid(claim, self.claim_tries.of);
            }
        }
        self.writer.apply(commands).await
    }

    fn committed(
        &mut self,
        Committed { replies, commands, freed, orphans }: Committed,
        reply_tos: Vec<ReplyTo>,
        due: Option<Timestamp>,
    ) {
        if let Some(due) = due {
            self.shared.next_due.add(due);
        }
        self.shared.trouble_log.went_well("batch failed");
        self.shared.commit_happened();
        let answered = replies.into_iter().zip(commands).zip(reply_tos);
        for ((reply, command), reply_to) in answered {
            self.learn(&reply);
            self.route(reply, command, reply_to);
        }
        if freed {
            self.slots_freed();
            self.peers.freed();
        }
        if !orphans.is_empty() {
            tracing::info!(
                jobs = orphans.len(),
                "jobs were claimed for clients that got no answer"
            );
            self.release(orphans);
        }
    }

    /// The store did not take the batch: every caller gets the error, and sessions are closed so
    /// that workers attach again and repeat what was not answered.
    pub(super) fn fail(&mut self, error: &StoreError, ops: Vec<Op>) {
        log_trouble!(error, self.shared, error, "batch failed");
        // Jobs of a batch that took effect all the same are found there.
        self.planning.backlog.wanted = true;
        let unavailable = Unavailable::new(error.to_string());
        let mut sessions_unconfirmed = false;
        for op in ops {
            if matches!(op.reply_to, ReplyTo::None) && is_report(&op) {
                // Nothing else would say that the job was not started.
                self.deferred.defer_for(op, AFTER_FAILURE);
                continue;
            }
            match op.reply_to {
                ReplyTo::Caller(caller)
                | ReplyTo::Queue { caller, .. }
                | ReplyTo::Lapse { caller, .. } => drop(caller.send(Err(unavailable.clone()))),
                // A claim may have taken effect: attaching again finds out.
                ReplyTo::Report(_) | ReplyTo::Session(_) => sessions_unconfirmed = true,
                ReplyTo::Isolation(class) => self.not_led(class),
                ReplyTo::Unclaimable(class) => {
                    self.unclaimable.checked(class, self.shared.store_time());
                }
                ReplyTo::None => {}
            }
        }
        if sessions_unconfirmed {
            self.close_sessions(&error.to_string());
        }
    }

    /// A command that cannot be applied fails alone. The session that it came from stays.
    fn fail_one(&mut self, error: &StoreError, Op { command, reply_to }: Op) {
        let about = super::deferred::subject_of(&command);
        tracing::error!(%error, ?about, "command could not be applied");
        match reply_to {
            ReplyTo::Caller(caller)
            | ReplyTo::Queue { caller, .. }
            | ReplyTo::Lapse { caller, .. } => {
                drop(caller.send(Err(Unavailable::alone(error.to_string()))));
            }
            ReplyTo::Session(planned) => {
                self.planning.redispatch.claimed(&[], planned.tokens);
                planned.end(&mut self.sessions);
                // It is tried again when the backlog is next read.
                self.planning.classes.claimed(planned.asks(), &[], &Claims::default());
            }
            ReplyTo::Isolation(class) => self.not_led(class),
            ReplyTo::Unclaimable(class) => {
                self.unclaimable.checked(class, self.shared.store_time());
            }
            ReplyTo::Report(_) | ReplyTo::None => {}
        }
    }
}

/// Whether a command is a report that is not sent again as long as the session stands.
const fn is_report(op: &Op) -> bool {
    match op.reply_to {
        ReplyTo::Report(_) => true,
        ReplyTo::None => matches!(op.command, Command::Finish(_)),
        _ => false,
    }
}

/// Cuts commands into parts of about the same size, the first ones last.
fn split(mut all: Vec<Attempted>, parts: usize) -> Vec<Vec<Attempted>> {
    let size = all.len().div_ceil(parts).max(1);
    let mut cut = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(size.min(all.len()));
        cut.push(std::mem::replace(&mut all, rest));
    }
    cut.reverse();
    cut
}
