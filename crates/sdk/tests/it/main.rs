//! The worker against a scripted server: real sockets, real time, every message in view.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: failing loudly is the point"
)]

mod astray;
mod control;
mod drain;
mod heartbeats;
mod lapses;
mod running;
mod sessions;
mod support;
