//! The rules of Outlast, as plain functions of (state, event, now).
//!
//! Nothing here is async, does IO, reads a clock or draws a random number: time and
//! chance are arguments. The same code is unit-tested, simulated, and run in production.
//!
//! Map:
//! - [`job`]: what may happen to a job ([`job::decide`] is the one place that says so)
//! - [`author`]: who changed something, and from where
//! - [`bucket`]: what may be done at a rate
//! - [`budget`]: the three budgets an ended attempt may be charged to
//! - [`retry`]: when a failed job is tried again
//! - [`schedule`]: what schedules are called
//! - [`containment`]: what proves that a process tree is dead
//! - [`gate`]: what a limit lets start
//! - [`limit`]: which jobs an operator limits, and which gates they pass
//! - [`operation`]: changes of all jobs that match, and how they stand
//! - [`keys`]: what a job is counted by
//! - [`labels`]: what workers are chosen by
//! - [`queue`]: what is set for a queue
//! - [`selector`]: which workers a job accepts
//! - [`resources`]: what an attempt may use, and what it used
//! - [`evidence`]: how an end is known
//! - [`finding`]: what needs someone, by the names of alert rules
//! - [`lease`]: who may speak for an attempt, and when time alone may end that right
//! - [`leadership`]: what one server does for all of them
//! - [`unique`]: when a stored job stands in the way of a new one
//! - [`words`]: numbers as people read them
//! - [`worker`]: how a worker lives, drains and is given up
//! - [`workflow`]: names of workflows, and how their items end
//! - [`limits`]: every bound with its reason
//!
//! Invariants kept here: epochs strictly rise (I3), terminal states never change within
//! a life (I1), a cancelled or expired job never becomes claimable again (I6).
#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]
#![warn(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

pub mod author;
pub mod bucket;
pub mod budget;
pub mod containment;
pub mod evidence;
pub mod finding;
pub mod gate;
pub mod id;
pub mod job;
pub mod keys;
pub mod labels;
pub mod leadership;
pub mod lease;
pub mod limit;
pub mod limits;
pub mod operation;
pub mod queue;
pub mod resources;
pub mod retry;
pub mod schedule;
pub mod selector;
pub mod time;
pub mod unique;
pub mod words;
pub mod worker;
pub mod workflow;
