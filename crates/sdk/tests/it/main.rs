//! The worker against a scripted server: real sockets, real time, every message in view.
//! Below `live`, client and worker against the real server, as a process.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests: failing loudly is the point"
)]

mod client;
mod control;
mod deaths;
mod drain;
mod handlers;
mod heartbeats;
mod lapses;
mod live;
mod readme;
mod running;
mod scripted_http;
mod sessions;
mod support;
mod unstoppable;
mod workflows;
