//! The benchmarks behind `outlast bench`: a server measured next to what the machine itself manages.
//!
//! ```text
//! Suite ─▶ baselines, memory, enqueue, bulk, drain, latency, limits, workflows, restart
//!       ─▶ Report
//! ```
//!
//! - [`suite`]: which measurements run, where and in which order
//! - [`baselines`]: disk, SQLite, PostgreSQL and HTTP without Outlast
//! - [`target`]: the server that is measured; [`fixture`]: a server with workers that are killed
//! - [`enqueue`], [`drain`], [`latency`], [`limits`], [`memory`], [`restart`],
//!   [`workflows`]: one measurement each
//! - [`server`] and [`scratch`]: servers and databases of our own
//! - [`connection`] and [`produce`]: a cheap HTTP client; [`workers`]: workers of the SDK
//! - [`figures`] and [`report`]: medians and spread, as JSON and as tables
//!
//! Every measurement warms up, runs in rounds and leaves nothing behind. Absolute numbers say more
//! about the machine than about the program: read them against the baselines.

mod baselines;
mod connection;
mod drain;
mod enqueue;
mod figures;
mod fill;
mod fixture;
mod jobs;
mod latency;
mod limits;
mod measurement;
mod memory;
mod plan;
mod produce;
mod report;
mod restart;
mod scratch;
mod server;
mod suite;
mod target;
mod workers;
mod workflows;

pub use fill::Fill;
pub use measurement::Measurement;
pub use plan::Plan;
pub use report::{Report, table};
pub use suite::Suite;
