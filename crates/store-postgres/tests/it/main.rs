//! Tests of the store on a real PostgreSQL.
#![expect(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod arrivals;
mod classes;
mod contract;
mod depth;
mod enqueues;
mod floors;
mod gates;
mod hand;
mod held;
mod history;
mod hosts;
mod interleavings;
mod lanes;
mod large;
mod limits;
mod lists;
mod load;
mod opening;
mod outages;
mod plain;
mod plans;
mod queues;
mod races;
mod schema;
mod seeds;
mod silence;
mod slots;
mod slow;
mod snapshots;
mod stress;
mod tls;
mod transfer;
mod unique;
mod unresolved;
