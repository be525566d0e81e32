//! What only a real database can show; the contract itself is in `outlast_store`.
#![expect(clippy::unwrap_used, reason = "these are tests")]

mod clock;
mod contract;
mod opening;
mod plans;
mod schema;
mod seeds;
