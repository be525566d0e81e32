//! The HTTP APIs over the model store: status codes, bodies, and what they change.

mod api;
mod beats;
mod executions;
mod hardening;
mod jobs;
mod reports;
mod workers;
