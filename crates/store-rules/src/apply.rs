//! What a command does, decided once for every store: pure functions between what a backend
//! loaded and what it writes.
//!
//! ```text
//! backend loads ─▶ Loaded, KnownWorker ─▶ decide (here, by outlast_core) ─▶ Decided
//!                                                                             │
//! backend writes ◀─ Step: rows, and into Outbox: events, counts, reply ◀──────┘
//! ```
//!
//! Nothing here waits, reads a clock, or knows a database. A backend keeps what it must do
//! itself: finding and locking rows, choosing which to claim or sweep, and writing. The model
//! store does not use this layer; it is the oracle that the backends are compared with.
//!
//! - [`batch`]: a batch in progress; [`loaded`]: jobs and workers as a backend reads them
//! - [`step`]: a decision becomes rows, counts, events and the reply
//! - [`limit`]: the limits in force; [`claim`]: which claimable jobs they let start, and taking them
//! - [`depth`]: which requests a bounded queue has room for
//! - [`enqueue`], [`unique`], [`report`], [`order`], [`queue`], [`schedule`], [`sweep`], [`worker`],
//!   [`workflow`], [`operation`], [`failover`]: the commands

pub mod batch;
pub mod claim;
pub mod depth;
pub mod enqueue;
pub mod failover;
pub mod limit;
pub mod loaded;
pub mod operation;
pub mod order;
pub mod queue;
pub mod report;
pub mod schedule;
pub mod step;
pub mod sweep;
pub mod unique;
pub mod worker;
pub mod workflow;

use std::borrow::Cow;

use outlast_core::job::{EventKind, Transition};
use outlast_core::limit::GateId;
use outlast_store::command::EndDetail;
use outlast_store::event::Event;
use outlast_store::tally::Changes;
use outlast_store::workflow::ItemEnd;

use crate::apply::claim::fair::Ended;
use crate::apply::claim::gate_changes::GateChanges;

/// What a batch says and counts beside the rows that it writes.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Entries of the event log, in order.
    pub events: Vec<Event>,
    /// By how much the live counts change.
    pub tally: Changes,
    /// By how much what limits count changes.
    pub gates: GateChanges,
    /// The attempts that ended, for the accounts of shares.
    pub ended: Vec<Ended>,
    /// What happened to items of workflows.
    pub item_ends: Vec<ItemEnd>,
}

/// What happens to a job, and what is recorded about it.
#[derive(Clone, Debug)]
pub struct Decided<'a> {
    /// The move.
    pub transition: Transition,
    /// What happened.
    pub kind: EventKind,
    /// Who did it.
    pub by: Cow<'a, str>,
    /// What the attempt left, and on what evidence it ended.
    pub detail: Cow<'a, EndDetail>,
    /// Why the job ended without an attempt; else empty.
    pub ended_by: &'static str,
    /// The gates that count the attempt, if this gives the job out.
    pub gates: Vec<GateId>,
}
