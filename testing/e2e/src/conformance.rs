//! The public Open Job Spec conformance cases, played against a running server.
//!
//! A case is a list of plain HTTP steps with assertions on their replies. The runner is the
//! only worker there is, and it resets the server before every case, so the server must have
//! been started with `--conformance`. An assertion this runner does not understand fails its
//! case: a case must never pass because it was not read.
//!
//! ```text
//! read the case ──▶ reset ──▶ steps in order, parallel ones together ──▶ verdict
//! ```

mod assertions;
mod case;
mod context;
mod expected;
mod json_path;
mod matcher;
mod run;

pub use case::{Case, Level, read_level, suites_dir};
pub use run::{CaseReport, Runner, Tally, Verdict};
