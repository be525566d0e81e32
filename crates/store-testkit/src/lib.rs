//! For tests of stores and of what uses one: the contract, and a store that keeps it most plainly.
//!
//! - [`model`]: the whole contract over maps, per job, with the core's `decide`
//! - [`conformance`]: the suite that the model and every store pass
//! - [`job`]: a job to begin with
#![warn(missing_docs)]

pub mod conformance;
pub mod job;
pub mod model;
