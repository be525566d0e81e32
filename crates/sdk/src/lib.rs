#![doc = include_str!("../README.md")]
//!
//! # Inside
//!
//! ```text
//!            ┌────────────── engine (your runtime) ─────────────┐
//! control ──▶│ stage · held attempts · slots · reports until    │◀══ session stream ══▶ server
//!            │ they are answered                                │                        ▲
//!            └──────┬────────────────────────▲──────────────────┘                        │
//!              Handler::run             Outcome                                          │
//!            heartbeat (thread and connection of its own) ────────────── beats ──────────┘
//! ```
//!
//! Map:
//! - [`Client`]: enqueue, look, wait, cancel, follow events
//! - [`Worker`]: one process start that serves jobs; [`WorkerBuilder::handle`] takes what you
//!   write, a function for each job type
//! - [`JobContext`]: a handler's view of its attempt: cancellation, checkpoints, progress, output
//! - [`HandlerError`]: why it failed, and whether another attempt can help
//! - [`Handler`], [`AttemptContext`]: the same without types, for what runs jobs of any type
//! - [`Outcome`]: how it ended
//! - [`Control`]: signals and orders from the process around it
//! - [`report_death`]: for a process that watches a worker and saw it die
//! - [`sql`]: a job in a transaction of your own, for any driver; `postgres` (a feature): the
//!   same done by `tokio-postgres`
//! - [`Tls`]: which authorities are trusted, and which client certificate is presented
//! - [`clock`]: the only clock reader
//!
//! Promises kept here: a report is kept until it is answered and sent again after a lost
//! connection; nothing is reported on a lease that may have passed; an attempt that must
//! not overlap is ended before its lease can; beats go on through a whole drain and stop
//! last. Whether a job is tried again is never decided here.
#![warn(missing_docs)]

mod attempt;
mod cause;
mod client;
pub mod clock;
mod delivery;
#[doc(hidden)]
pub mod dial;
mod handler;
mod handlers;
mod heartbeat;
mod outcome;
#[cfg(feature = "postgres")]
pub mod postgres;
#[doc(hidden)]
pub mod servers;
mod session;
mod signals;
pub mod sql;
mod tls;
mod watchdog;
mod worker;
mod worker_state;

pub use self::attempt::context::{AttemptContext, LogStream};
pub use self::client::{
    AttemptError, Client, ClientBuilder, ClientError, Event, EventData, EventFilter, Events, Job,
    NewJob, NewSchedule, NewStep, NewWorkflow, QueueFull, Refusal, Retry, Schedule, StartWorkflow,
    Unique, Unsuccessful, Workflow, WorkflowId, WorkflowStep, WorkflowUnsuccessful,
};
pub use self::delivery::{AttemptId, Delivery};
pub use self::handler::Handler;
pub use self::handlers::{BoxError, HandlerError, JobContext};
pub use self::outcome::{Ends, Failure, Outcome, OutcomeKind, StopReason};
pub use self::session::death::{DeathNotReported, WorkerDeath, report_death};
pub use self::session::{BadAddress, read_token};
pub use self::tls::{CertificateRefused, Tls, TlsError};
pub use self::watchdog::LEASE_OVER_EXIT_CODE;
pub use self::worker::control::{Control, ControlQueue, Status, control};
pub use self::worker::summary::{BuildError, RunError, Summary};
pub use self::worker::{Role, Worker, WorkerBuilder};
pub use bytes::Bytes;
pub use outlast_core::evidence::EvidenceCode;
pub use outlast_core::id::{Epoch, JobId, WorkerId};
pub use outlast_core::job::State as JobState;
pub use outlast_core::resources::{Resources, Usage};
pub use outlast_core::worker::lifecycle::{QuietBy, Stage, StageEvent};
pub use tokio_util::sync::CancellationToken;
