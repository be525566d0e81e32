//! Applying a batch: as one transaction, or in parts if one of its commands fails it.

use outlast_core::time::{BootTime, Timestamp};
use outlast_store::reply::Claims;
use outlast_store::{Command, StoreError};

use super::EventLoop;
use super::deferred::{Attempted, QueueId};
use crate::clock::boot_time;
use crate::engine::batch_writer::{Committed, Failed, is_command_fault};
use crate::engine::batcher::{Op, ReplyTo, due_of};
use crate::engine::error::Unavailable;

/// Most parts of a batch in one go that may find a row locked: each costs the whole server a
/// moment. Enough to single out one command of the largest batch.
const LOCKED_TRIES: usize = 24;

impl EventLoop {
    pub(super) async fn commit(&mut self, ops: Vec<Op>) {
        self.metrics.batch(ops.len());
        let Err((error, ops)) = self.try_commit(ops).await else { return };
        if !is_command_fault(&error) {
            return self.fail(&error, ops);
        }
        tracing::warn!(%error, commands = ops.len(), "batch failed as one; splitting it");
        let new = |op: &Op| matches!(op.command, Command::Enqueue(_) | Command::EnqueueAll(_));
        let (new, others): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(new);
        // No session can have locked the rows of new jobs, so they come first.
        let parts = [others, new].into_iter().filter(|part| !part.is_empty());
        let attempted = |op| Attempted { op, retried: None };
        let parts = parts.map(|part| part.into_iter().map(attempted).collect()).collect();
        self.commit_in_parts(parts, LOCKED_TRIES).await;
    }

    /// Commits parts of a batch, the last one first: halves, then halves of those, until each
    /// command that is locked, or cannot be applied at all, is alone. When `tries` have found a
    /// row locked, the rest waits for its turn again.
    pub(super) async fn commit_in_parts(&mut self, mut parts: Vec<Vec<Attempted>>, tries: usize) {
        let mut locked = 0;
        let mut untried = Vec::new();
        while let Some(part) = parts.pop() {
            if locked >= tries {
                untried.extend(part);
                continue;
            }
            let part = self.deferred.divert_part(part);
            let (ops, retried): (Vec<Op>, Vec<_>) =
                part.into_iter().map(|it| (it.op, it.retried)).unzip();
            if ops.is_empty() {
                continue;
            }
            let Err((error, ops)) = self.try_commit(ops).await else {
                self.release_queues(retried.into_iter().flatten());
                continue;
            };
            if !is_command_fault(&error) {
                // The other parts would fail the same way, each after a long wait.
                let rest = parts.drain(..).rev().flatten();
                let (rest, others): (Vec<Op>, Vec<_>) = rest.map(|it| (it.op, it.retried)).unzip();
                self.release_queues(retried.into_iter().chain(others).flatten());
                self.fail(&error, ops.into_iter().chain(rest).collect());
                break;
            }
            let together = ops.into_iter().zip(retried);
            let mut part: Vec<Attempted> =
                together.map(|(op, retried)| Attempted { op, retried }).collect();
            let is_locked = matches!(error, StoreError::Locked(_));
            locked += usize::from(is_locked);
            if part.len() > 1 {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
                continue;
            }
            let Some(alone) = part.pop() else { continue };
            if is_locked {
                tracing::debug!(%error, "row is locked by another database session");
                self.deferred.defer(alone);
            } else {
                self.release_queues(alone.retried);
                self.fail_one(&error, alone.op);
            }
        }
        self.try_later(untried);
    }

    /// Keeps commands that were not tried for the next turn.
    fn try_later(&mut self, untried: Vec<Attempted>) {
        let mut fresh = Vec::new();
        for Attempted { op, retried } in untried {
            match retried {
                Some(queue) => self.deferred.put_back(op, queue),
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
    async fn try_commit(&mut self, ops: Vec<Op>) -> Result<(), (StoreError, Vec<Op>)> {
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
        }
        self.writer.apply(commands).await
    }

    fn committed(
        &mut self,
        Committed { replies, commands, freed }: Committed,
        reply_tos: Vec<ReplyTo>,
        due: Option<Timestamp>,
    ) {
        if let Some(due) = due {
            self.shared.next_due.add(due);
        }
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
    }

    /// The store did not take the batch: every caller gets the error, and sessions are closed so
    /// that workers attach again and repeat what was not answered.
    fn fail(&mut self, error: &StoreError, ops: Vec<Op>) {
        tracing::error!(%error, "batch failed");
        // Jobs of a batch that took effect all the same are found there.
        self.planning.backlog.wanted = true;
        let unavailable = Unavailable::new(error.to_string());
        let mut sessions_unconfirmed = false;
        for Op { reply_to, .. } in ops {
            match reply_to {
                ReplyTo::Caller(caller)
                | ReplyTo::Queue { caller, .. }
                | ReplyTo::Lapse { caller, .. } => drop(caller.send(Err(unavailable.clone()))),
                ReplyTo::CallerKeeping(caller) => drop(caller.send(Err(unavailable.clone()))),
                // A claim may have taken effect: attaching again finds out.
                ReplyTo::Report { .. } | ReplyTo::Session(_) => sessions_unconfirmed = true,
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
                drop(caller.send(Err(Unavailable::new(error.to_string()))));
            }
            ReplyTo::CallerKeeping(caller) => {
                drop(caller.send(Err(Unavailable::new(error.to_string()))));
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
            ReplyTo::Report { .. } | ReplyTo::None => {}
        }
    }
}
