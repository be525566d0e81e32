//! A worker's life, seen from both ends.
//!
//! - [`liveness`]: the server's view. `inactive for new work` and `dead` are different
//!   facts and are kept apart: a drain never looks like a death.
//! - [`lifecycle`]: the worker's own view. Signals and orders move it through the three
//!   shutdown phases, forward only once it drains.
//! - [`mass_loss`]: the server's view of many workers that go at the same time
//! - [`order`]: what operators order workers to do, and which orders hold for those to come

pub mod lifecycle;
pub mod liveness;
pub mod mass_loss;
pub mod order;
