//! The HTTP APIs over the model store: status codes, bodies, and what they change.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod access;
mod api;
mod audit;
mod beats;
mod dead_letters;
mod doctor;
mod events;
mod executions;
mod hardening;
mod http_reference;
mod idempotency;
mod jobs;
mod keys;
mod leadership;
mod limits;
mod long_polls;
mod openapi;
mod operations;
mod pages;
mod placement;
mod queues;
mod reports;
mod schedules;
mod sessions;
mod unique;
mod waits;
mod workers;
