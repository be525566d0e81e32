//! The server: HTTP, worker sessions, batching, dispatch, monitors. It works on any
//! store and names no backend.
//!
//! ```text
//! http ──submit──┐                        ┌──▶ replies to callers
//! session ─input─┼─▶ engine loop ─batch─▶ Store
//! monitors ──────┘      ▲   └ plan claims ┘──▶ deliveries to sessions
//! ```
//!
//! Map:
//! - [`engine`]: the handle that everything else talks to, and the one loop behind it
//! - [`http`]: OJS and executions APIs
//! - `intake`: turns requests into the jobs that are stored; `id`: ids that follow from what they name
//! - [`session`]: the gRPC worker session and its beats
//! - [`monitor`]: what happens by time alone: leases, timers, stranded jobs, retention
//! - [`schedules`]: what schedules are, and what they store
//! - `operations`: changes of all jobs that match; `job_filter`: which jobs have a status
//! - `workflows`: what workflows are, and how they move on
//! - [`probe`]: how fast and how full the disk below a store is
//! - [`serve`]: listener, limits on connections, and the order of a shutdown
//! - `connection`: one connection, from its first byte to its end
//! - [`connections`]: how many there may be, and whose
//! - `write_timeout`: connections whose other end does not read
//! - [`tls`]: certificates of the listener and of its clients
//! - `wire`: the bytes of a connection, and words for requests that cannot be read
//! - [`settings`]: what the operator may set
//! - `packs`: the packs in force, and replacing them
//! - [`base_path`]: the path below which a server is
//! - [`access`]: bearer tokens, roles, and what each allows
//! - [`hidden`]: values that pages do not show
//! - [`clock`]: the crate's only reader of clocks

pub mod access;
pub mod base_path;
pub mod clock;
mod connection;
pub mod connections;
pub mod engine;
pub mod handlers;
pub mod hidden;
pub mod http;
mod id;
mod intake;
mod job_filter;
pub mod metrics;
pub mod monitor;
mod operations;
mod packs;
pub mod probe;
pub mod schedules;
pub mod serve;
pub mod session;
pub mod settings;
mod snapshot;
pub mod tls;
mod transport;
mod wire;
mod workflows;
mod write_timeout;

pub use engine::{Engine, Unavailable};
pub use packs::Packs;
pub use serve::{Reserved, ServeError, Server};
pub use settings::{Settings, UiMode};
