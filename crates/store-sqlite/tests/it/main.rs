//! What only a real database can show; the contract itself is in `outlast_store`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod clock;
mod contract;
mod crash;
mod damage;
mod hand;
mod large;
mod opening;
mod plans;
mod prune;
mod schema;
mod seeds;
mod transfer;
