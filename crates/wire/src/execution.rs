//! The executions API: the same jobs, in the words of packaged actions.
//!
//! - [`request`]: what a caller sends
//! - [`status`]: the status of an execution, derived from its job

pub mod request;
pub mod status;
