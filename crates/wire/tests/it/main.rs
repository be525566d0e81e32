//! What is read from and written to the wire.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

mod durations;
mod envelopes;
mod errors;
mod executions;
mod golden;
mod keys;
mod limits;
mod queues;
mod reports;
mod retries;
