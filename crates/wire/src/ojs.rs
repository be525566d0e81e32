//! The Open Job Spec over HTTP, levels 0 and 1.
//!
//! - [`enqueue`]: what a producer sends
//! - [`retry`]: retry policies
//! - [`job`]: a job as it is shown
//! - [`worker`]: fetch, ack, nack, heartbeat
//! - [`workflow`]: a workflow as it is shown
//! - [`error`]: the error catalogue
//! - [`manifest`]: what this server can do
//! - [`quirks`]: where texts, suites and clients disagree, one function each

pub mod enqueue;
pub mod error;
pub mod job;
pub mod manifest;
pub mod names;
pub mod quirks;
pub mod retry;
pub mod worker;
pub mod workflow;
