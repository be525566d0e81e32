//! Real binary, real signals, real kills; and the Open Job Spec conformance runner.
//!
//! The harness drives the built `outlast` from outside, as a user and an unkind machine would:
//! command lines, HTTP, signals. It never links a product crate and never believes the system
//! under test alone: jobs write an external ledger, and [`judge`] compares ledger, API and
//! process table.
//!
//! ```text
//! Scene ──starts──▶ Server, Workers ──run──▶ jobs ──append──▶ Ledger
//!   └────────────── judge: API × Ledger × process table ───────┘
//! ```
//!
//! Everything a scene starts listens on 127.0.0.1 and is ended by pid when the scene is dropped.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "test support: a broken surrounding must stop the test, and say why"
)]

pub mod api;
pub mod authority;
pub mod binary;
pub mod browser;
pub mod clients;
pub mod conformance;
pub mod document;
pub mod judge;
pub mod ledger;
pub mod pack;
pub mod process;
pub mod process_table;
pub mod proxy;
pub mod scene;
pub mod server;
pub mod skip;
pub mod wait;
pub mod worker;

pub use api::{Api, Reply};
pub use authority::{Authority, Identity, Validity};
pub use browser::Browser;
pub use process::Process;
pub use proxy::{Proxy, Weather};
pub use scene::{Run, Scene};
pub use server::{Server, ServerOptions};
pub use worker::{Frozen, Worker, WorkerOptions};
