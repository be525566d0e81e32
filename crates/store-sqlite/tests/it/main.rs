//! What only a real database can show; the contract itself is in `outlast_store`.

mod clock;
mod contract;
mod opening;
mod plans;
mod schema;
mod seeds;
