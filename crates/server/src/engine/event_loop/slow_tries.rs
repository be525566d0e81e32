//! Trying commands of slow kinds beside the batches of all others.

use outlast_store::{Command, StoreError};

use super::EventLoop;
use super::deferred::{Attempted, refuse};
use crate::clock::boot_time;
use crate::engine::batch_writer::is_command_fault;
use crate::engine::batcher::Op;
use crate::engine::slow_kinds::{Submitted, TRIES_MAX};

impl Submitted for Op {
    fn command(&self) -> &Command {
        &self.command
    }

    fn has_caller(&self) -> bool {
        self.reply_to.is_caller()
    }

    fn refuse(self, why: &str) {
        refuse(self.reply_to, why);
    }
}

impl EventLoop {
    /// Keeps the commands of slow kinds of a part for a try; returns the rest.
    pub(super) fn divert_slow_kinds(&mut self, part: Vec<Attempted>) -> Vec<Attempted> {
        if self.slow_kinds.is_empty() {
            return part;
        }
        let now = boot_time();
        let divert = |it: Attempted| match it.retried {
            Some(_) => Some(it),
            None => {
                let rest = self.slow_kinds.divert_one(it.op, now);
                rest.map(|op| Attempted { op, retried: None })
            }
        };
        part.into_iter().filter_map(divert).collect()
    }

    /// Tries commands of slow kinds, if it is time.
    pub(super) async fn try_slow_kinds(&mut self) {
        self.slow_kinds.tidy(boot_time());
        for _ in 0..TRIES_MAX {
            let began = boot_time();
            let Some(mut trial) = self.slow_kinds.take(began) else { return };
            let Err((error, ops)) = self.try_commit(std::mem::take(&mut trial.ops)).await else {
                self.slow_kinds.went_through(&trial);
                continue;
            };
            if !is_command_fault(&error) {
                return self.fail(&error, ops);
            }
            let now = boot_time();
            if matches!(error, StoreError::Slow(_)) {
                self.slow_kinds.pause(now.since(began), now);
            }
            match <[Op; 1]>::try_from(ops) {
                Ok([op]) => self.failed_alone(&error, Attempted { op, retried: None }),
                Err(ops) => {
                    trial.ops = ops;
                    self.slow_kinds.put_back(trial);
                }
            }
        }
    }
}
