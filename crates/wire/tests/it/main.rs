//! What is read from and written to the wire.

mod durations;
mod envelopes;
mod errors;
mod executions;
mod golden;
mod reports;
mod retries;
