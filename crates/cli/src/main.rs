//! The binary: parses flags, reads the configuration, opens the store, prints.
//!
//! Rules are elsewhere: transitions of jobs in the core, the meaning of requests in the server,
//! process trees in the worker. This crate turns arguments into calls, and responses into text and
//! an exit code.

mod certificate;
mod cli;
mod command;
mod completion;
mod config;
mod inner_process;
mod last_job;
mod log;
mod open_files;
mod output;
#[cfg(test)]
mod reference;
mod secrecy;
mod service_manager;
mod signals;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything that takes time: a stop may come at any moment.
    outlast_worker::signals::start_clean();
    // The processes of a worker are this same program. They are recognised before anything else
    // is set up: a shim must stay small and single-threaded until it has forked.
    if let Some(code) = inner_process::run() {
        return code;
    }
    completion::answer();
    cli::run()
}
