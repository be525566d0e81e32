//! The worker daemon: guardian, engine, spawner, and one shim per attempt, all the same binary.
//!
//! Map:
//! - [`guardian`]: the small main process: owner of the signals, parent of the engine
//! - [`daemon`]: the engine: a session with the server, and attempts for what it delivers
//! - [`attempt`]: one attempt as the engine sees it: spawn, stop, output, ending
//! - [`spawner`]: the small process that forks shims
//! - [`shim`]: the process that holds one attempt's tree and ends it
//! - [`keeper`]: ends what is left in cgroups when engine and shims were killed together
//! - [`containment`]: what keeps a tree together; [`probe`]: which kind works on this host
//! - [`handover`]: keeping what a worker was given out of sight of its jobs
//! - [`signals`]: the inherited state of signals, put in order
//! - [`warm`]: interpreters that have imported what actions need before an attempt begins
//! - [`runtime`]: from an entry point to a program and its arguments
//! - [`installer`]: making the environments of packs, before attempts run
//! - [`secrets`], [`mask`]: what the worker lends to actions, and hiding it in what they print
//! - [`environment`], [`folder`]: what a job gets to see, and its private work folder
//!
//! Kept here: when an attempt's end is reported no process of its tree is alive, and when
//! a worker dies its trees end by themselves (I7).
#![warn(missing_docs)]

pub mod attempt;
pub mod clock;
pub mod daemon;
pub mod environment;
pub mod folder;
pub mod guardian;
pub mod installer;
pub mod mask;
pub mod probe;
mod process;
pub mod runtime;
pub mod secrets;
pub mod warm;

pub use process::{
    OwnProgram, at_exit, containment, handover, keeper, resources, shim, signals, spawner,
};
