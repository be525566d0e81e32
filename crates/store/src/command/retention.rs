//! Deleting what need not be kept, and which server does it.

use outlast_core::id::Epoch;
use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::time::{Span, Timestamp};
use uuid::Uuid;

use super::Command;
use crate::reply::Reply;
use crate::request::{Request, requests};

/// A look for what need not be kept any longer. Dead letters are kept until someone
/// deals with them.
#[derive(Clone, Debug)]
pub struct Prune {
    /// The lease it is done under; refused when another server has taken over.
    pub leadership: LeadershipFence,
    /// Jobs that ended before this go, with their attempts and output; events of the UTC
    /// days before it too, in the end (see [`crate::Store::maintain`]).
    pub finished_before: Timestamp,
    /// Lapsed and stopped workers whose row changed last before this go; leaders of tasks whose
    /// leases were over before it too, but for this one's.
    pub workers_before: Timestamp,
    /// How many rows of each sort at most.
    pub limit: u32,
    /// Whether the jobs are looked at from the oldest on. Otherwise the look goes on where the
    /// last one ended, behind those that were not to go, such as dead letters.
    pub from_start: bool,
}

impl Prune {
    /// Returns which leases of leadership go: those that were over before this.
    #[must_use]
    pub fn leaders_before(&self, now: Timestamp) -> Timestamp {
        self.workers_before.min(now)
    }
}

/// The task of deleting what need not be kept.
pub const RETENTION: &str = "retention";

/// A server wants to lead a task, or resigns; see [`outlast_core::leadership`].
#[derive(Clone, Debug)]
pub struct LeadershipRequest {
    /// The task.
    pub name: String,
    /// The server process that asks.
    pub holder: Uuid,
    /// How long from now it leads; `None` resigns.
    pub hold: Option<Span>,
}

/// The lease of leadership that work is done under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadershipFence {
    /// The task.
    pub name: String,
    /// The server process that holds it.
    pub holder: Uuid,
    /// The epoch of its lease.
    pub epoch: Epoch,
}

/// What pruning deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Jobs.
    pub jobs: u32,
    /// Workers.
    pub workers: u32,
    /// Classes that had no jobs left.
    pub classes: u32,
    /// Whether a limit was reached, so that another prune should follow.
    pub more: bool,
}

/// Drops every job, queue and worker. Conformance runs only.
#[derive(Clone, Copy, Debug)]
pub struct Reset;

requests! {
    LeadershipRequest as Leadership -> Leadership(Result<Leadership, LeadershipRefusal>);
    Prune as Prune -> Pruned(Result<Pruned, LeadershipRefusal>);
}

impl From<Reset> for Command {
    fn from(Reset: Reset) -> Self {
        Self::Reset
    }
}

impl Request for Reset {
    type Reply = ();

    fn reply(reply: Reply) -> Result<(), Box<Reply>> {
        match reply {
            Reply::Done => Ok(()),
            other => Err(Box::new(other)),
        }
    }

    fn from_command(command: Command) -> Option<Self> {
        matches!(command, Command::Reset).then_some(Self)
    }
}
