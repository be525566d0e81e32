//! Packs, actions and workflows: reading, checking and rendering them.
//!
//! A pack is a folder of actions and workflows, an action a script and a YAML file about it, a
//! workflow a YAML file; the format is described in `docs/use/packs.md`. The server uses this crate to accept or refuse
//! parameters, the worker to hand them to a script and to read its answer.
//!
//! ```text
//! PackSet::load ──▶ Action ──check──▶ complete parameters ──render──▶ stdin, file, environment
//!                     └──────mask──▶ what may be shown       result ◀── stdout
//! ```
//!
//! Nothing here starts a process, opens a connection, reads environment variables or a clock.
//! Parameters are data: no function here builds a command line.

mod action;
mod digest;
mod duration;
pub mod environment;
mod error;
mod keys;
pub mod limits;
mod materialise;
mod note;
mod output;
mod pack;
mod parameters;
pub mod plain_file;
mod render;
mod set;
mod source;
mod workflow;
mod yaml;

pub use action::{
    Action, EntryPoint, OnDrain, OnExhaustion, Overlap, OwnInterpreter, PackPolicy, Program,
    RetrySpec, Runner, SecretAs, SecretSpec, WarmSpec,
};
pub use error::PackError;
pub use note::Note;
pub use output::OutputFormat;
pub use pack::{Origin, Pack};
pub use parameters::Violation;
pub use render::{Delivery, Format, PARAMETER_FILE_VARIABLE, Rendered};
pub use set::PackSet;
pub use workflow::{Workflow, WorkflowParameters};
