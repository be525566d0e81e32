//! The Store trait: what a store can be asked, and what it answers.
//!
//! A store applies a batch of [`Command`]s as one transaction and answers each with its
//! own [`Reply`]. It contains no policy: it loads a job, asks `outlast_core` what may
//! happen, and applies the answer by compare-and-set on (state, epoch).
//!
//! Every database does that by the same code, in `outlast-store-rules`. What a command means is
//! written plainly in `outlast-store-testkit`, with the cases that every store must pass.
//!
//! Map:
//! - [`store`]: the trait; [`error`]: why it failed
//! - [`command`], [`reply`]: what a batch can do, and what it returns; [`request`]: a command that
//!   knows its reply
//! - [`job`]: a job to be stored, and what routes it
//! - [`idempotency`]: enqueueing once for a key; [`unique`]: jobs of which there is one at a time
//! - [`arrival`]: jobs that programs stored by SQL
//! - [`extend`]: which attempts a plain client's heartbeat extends
//! - [`limit`], [`queue`]: limits and settings of queues; [`schedule`]: schedules;
//!   [`workflow`]: workflows; [`operation`]: changes of all jobs that match
//! - [`browser_session`]: sessions of browsers
//! - [`record`]: what is stored, as read back; [`query`]: what can be read outside a batch
//! - [`event`]: the event log's entries
//! - [`tally`]: live counts by class and state
//! - [`partitions`]: looking after what history is kept in
//! - [`signal`]: what servers tell each other
#![warn(missing_docs)]

pub mod arrival;
pub mod browser_session;
pub mod command;
pub mod error;
pub mod event;
pub mod extend;
pub mod idempotency;
pub mod job;
pub mod limit;
pub mod operation;
pub mod partitions;
pub mod query;
pub mod queue;
pub mod record;
pub mod reply;
pub mod request;
pub mod schedule;
pub mod signal;
pub mod store;
pub mod tally;
pub mod unique;
pub mod workflow;

pub use command::{Batch, BatchId, Command};
pub use error::StoreError;
pub use reply::{Applied, Reply};
pub use request::Request;
pub use store::{Clock, Store};
