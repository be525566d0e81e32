//! The one binary: parses flags, reads configuration, picks the store, prints.
//!
//! Rules live elsewhere: what a job may do in the core, what a request means in the server, how
//! a process tree is held in the worker. What is here turns words into calls and answers into
//! text and an exit code.

mod cli;
mod client;
mod clock;
mod command;
mod config;
mod exit;
mod log;
mod open_files;
mod output;
mod process;
#[cfg(test)]
mod reference;
mod secrecy;
mod service_manager;
mod signals;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The processes of a worker are this same program. They are told apart before anything else
    // is set up: a shim must stay small and single-threaded until it has forked.
    if let Some(code) = command::worker::inner_process() {
        return code;
    }
    cli::run()
}
