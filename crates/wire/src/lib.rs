//! What travels as JSON, and what it means to the core.
//!
//! Reading turns bytes into checked values of the core's types, or into a [`Fault`] that
//! names the field. Writing turns the core's values into text, with what a producer sent
//! passed on as it was received. Nothing here does IO, reads a clock or names a store.
//!
//! Map:
//! - [`json`]: depth, syntax errors with line and column, the writer
//! - [`duration`], [`time`]: durations and instants as users and the standard write them
//! - [`fault`]: what is wrong with a request
//! - [`id`]: parts of ids
//! - [`keys`]: the keys of a job
//! - [`placement`]: which workers a job wants
//! - [`ojs`]: the Open Job Spec: envelopes, retry policies, errors, workers, queues
//! - [`execution`]: the executions API
//! - [`resources`], [`size`]: what an attempt may use, sizes as users write them
//! - [`unique`]: what makes a job the only one of its sort
//! - [`limit`]: limits, and rates such as `100/1m`
//! - [`nearest`]: the known name that a wrong one is most like
//! - [`operation`]: changes of all jobs that match
//! - [`queue`]: settings of queues
//! - [`schedule`]: when jobs are stored by the clock
//! - [`workflow`]: jobs that follow jobs
#![warn(missing_docs)]

pub mod dead_letter;
pub mod duration;
pub mod execution;
pub mod fault;
pub mod id;
pub mod json;
pub mod keys;
pub mod limit;
pub mod nearest;
pub mod ojs;
pub mod operation;
pub mod placement;
pub mod queue;
pub mod resources;
pub mod schedule;
pub mod size;
pub mod time;
pub mod unique;
pub mod worker_order;
pub mod workflow;

pub use fault::{Fault, FaultKind};
