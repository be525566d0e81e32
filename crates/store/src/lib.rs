//! The Store trait, its executable model, and the contract every store must keep.
//!
//! A store applies a batch of [`Command`]s as one transaction and answers each with its
//! own [`Reply`]. It contains no policy: it loads a job, asks `outlast_core` what may
//! happen, and applies the answer by compare-and-set on (state, epoch).
//!
//! Map:
//! - [`store`]: the trait; [`error`]: why it failed
//! - [`command`], [`reply`]: what a batch can do, and what it returns
//! - [`request`]: a command that knows its reply
//! - [`job`]: a job to be stored, and what routes it
//! - [`idempotency`]: enqueueing once for a key
//! - [`apply`]: what a command does, between loading and writing; [`backend`]: loading and writing
//!   around it, for every database
//! - [`arrival`]: jobs that programs stored by SQL
//! - [`record`]: what is stored, as read back
//! - [`query`]: what can be read outside a batch
//! - [`event`]: the event log's entries; [`cursor`]: where a reader is in it
//! - [`extend`]: which attempts a plain client's heartbeat extends
//! - [`limit`]: limits, and what they hold back
//! - [`queue`]: settings of queues
//! - [`list`]: how a page of a list is found
//! - [`migration`]: which migrations a store has
//! - [`prune`]: how far the deletion of old history has come
//! - [`retire`]: which classes a store forgets
//! - [`tally`]: live counts by class and state
//! - [`partitions`]: looking after what history is kept in
//! - [`rules`], [`codec`]: what every store does and keeps the same way
//! - [`unique`]: jobs of which there is one at a time
//! - [`transfer`]: moving all that a store holds into another one
//! - [`model`]: the whole contract over maps, per job, with the core's `decide`
//! - `conformance`: the suite that the model and every store pass (feature `conformance`)
#![warn(missing_docs)]

pub mod apply;
pub mod arrival;
pub mod backend;
pub mod codec;
pub mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod cursor;
pub mod error;
pub mod event;
pub mod extend;
pub mod idempotency;
pub mod job;
pub mod limit;
pub mod list;
pub mod migration;
pub mod model;
pub mod partitions;
pub mod prune;
pub mod query;
pub mod queue;
pub mod record;
pub mod reply;
pub mod request;
pub mod retire;
pub mod rules;
pub mod signal;
pub mod store;
pub mod tally;
pub mod transfer;
pub mod unique;

pub use command::{Batch, BatchId, Command};
pub use error::StoreError;
pub use reply::{Applied, Reply};
pub use request::Request;
pub use store::{Clock, Store};
