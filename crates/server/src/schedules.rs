//! Schedules: what is read of them, what they store, and who may change them.
//!
//! ```text
//! API, configuration ─▶ Definition ┐
//!                                  ├─ outlast_schedule decides ─▶ WriteSchedule, as it was read
//! store ─▶ record ─▶ Progress ─────┘                               └▶ jobs, events, next progress
//! ```
//!
//! Every change is a compare-and-set on the schedule's revision. The server that loses reads again.
//!
//! - [`definition`]: what a schedule is; [`job`]: the job of a fire
//! - [`service`]: set, pause, resume, trigger, remove; [`fire`]: what a look at one does
//! - [`configured`]: the schedules that the configuration lists

pub(crate) mod configured;
pub(crate) mod definition;
pub(crate) mod fire;
mod job;
pub(crate) mod service;
#[cfg(test)]
mod tests;

pub use configured::ConfigureSchedulesError;
pub use definition::check;
pub(crate) use job::{fire_of, job_of_now};
