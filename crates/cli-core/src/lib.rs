//! What the commands and the benchmarks share.
//!
//! - [`exit`]: exit codes, and the message that goes with a failure
//! - [`output`]: tables, times and escaping; what is printed to stderr
//! - [`client`]: requests to a server, its refusals as failures
//! - [`process`]: servers and workers as child processes of this program
//! - [`clock`]: the only reader of the time
//!
//! Nothing here reads flags, files or the environment: callers pass configuration in.

pub mod client;
pub mod clock;
pub mod exit;
mod mask;
pub mod output;
pub mod process;

pub use mask::without_passwords;
