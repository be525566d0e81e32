//! Applying a batch: as one transaction, or in parts if one of its commands fails it.

use outlast_core::time::{BootTime, Timestamp};
use outlast_store::{Command, StoreError};

use super::EventLoop;
use crate::clock::boot_time;
use crate::engine::batch_writer::{Committed, Failed, is_command_fault};
use crate::engine::batcher::{Op, ReplyTo, due_of};
use crate::engine::error::Unavailable;

/// Most commands that are found to wait for a locked row in one go: each costs the whole server
/// a moment.
const LOCKED_MAX: usize = 8;

impl EventLoop {
    pub(super) async fn commit(&mut self, ops: Vec<Op>) {
        self.metrics.batch(ops.len());
        let Err((error, ops)) = self.try_commit(ops).await else { return };
        if !is_command_fault(&error) {
            return self.fail(&error, ops);
        }
        tracing::warn!(%error, commands = ops.len(), "batch failed as one; splitting it");
        let now = boot_time();
        self.commit_in_parts(ops.into_iter().map(|op| (op, now)).collect()).await;
    }

    /// Commits a batch that failed in parts: halves, then halves of those, until each command
    /// that is locked, or cannot be applied at all, is alone.
    pub(super) async fn commit_in_parts(&mut self, ops: Vec<(Op, BootTime)>) {
        let mut locked = 0;
        let mut parts = vec![ops];
        while let Some(part) = parts.pop() {
            let (part, since): (Vec<Op>, Vec<BootTime>) = part.into_iter().unzip();
            if locked >= LOCKED_MAX {
                self.deferred.extend(part.into_iter().zip(since));
                continue;
            }
            let Err((error, part)) = self.try_commit(part).await else { continue };
            if !is_command_fault(&error) {
                // The other parts would fail the same way, each after a long wait.
                let rest = parts.drain(..).rev().flatten().map(|(op, _)| op);
                let all = part.into_iter().chain(rest).collect();
                self.fail(&error, all);
                return;
            }
            let mut part: Vec<(Op, BootTime)> = part.into_iter().zip(since).collect();
            if part.len() > 1 {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            } else if let StoreError::Held(why) = error {
                tracing::debug!(why, "row is locked by another database session");
                locked += 1;
                self.deferred.extend(part);
            } else {
                part.into_iter().for_each(|(op, _)| self.fail_one(&error, op));
            }
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
                let unbroken = self.shared.store_health.unbroken_for(boot_time());
                sweep.watched = sweep.watched.min(unbroken);
            }
        }
        self.writer.apply(commands).await
    }

    fn committed(
        &mut self,
        Committed { replies, commands }: Committed,
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
    }

    /// The store did not take the batch: every caller gets the error, and sessions are closed so
    /// that workers attach again and repeat what was not answered.
    fn fail(&mut self, error: &StoreError, ops: Vec<Op>) {
        tracing::error!(%error, "batch failed");
        let unavailable = Unavailable::new(error.to_string());
        let mut sessions_unconfirmed = false;
        for Op { reply_to, .. } in ops {
            match reply_to {
                ReplyTo::Caller(caller)
                | ReplyTo::Queue { caller, .. }
                | ReplyTo::Lapse { caller, .. } => drop(caller.send(Err(unavailable.clone()))),
                ReplyTo::CallerKeeping(caller) => drop(caller.send(Err(unavailable.clone()))),
                // A claim may have taken effect: attaching again finds out.
                ReplyTo::Report { .. } | ReplyTo::Session { .. } => sessions_unconfirmed = true,
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
            ReplyTo::Session { worker, session, classes, max } => {
                if let Some(session) = self.sessions.current(worker, session) {
                    session.pending = session.pending.saturating_sub(max);
                }
                // It is tried again when the backlog is next read.
                self.classes.claimed(&classes, &[], max, &[]);
            }
            ReplyTo::Unclaimable(class) => {
                self.unclaimable.checked(class, self.shared.store_time());
            }
            ReplyTo::Report { .. } | ReplyTo::None => {}
        }
    }
}
