//! The binary as its users meet it: exit codes, stdout, stderr.
#![expect(clippy::disallowed_methods, reason = "these tests start the binary")]
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod commands;
mod configuration;
mod dead_letters;
mod dev;
mod doctor;
mod events;
mod finding;
mod help;
mod lists;
mod log;
mod operations;
mod reference;
mod running;
mod stub;
mod terminal;
mod token;
mod workers;
mod workflows;

use std::process::{Command, Stdio};

/// What the binary said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the binary in an environment that says nothing of Outlast.
pub(crate) fn outlast(args: &[&str]) -> Said {
    outlast_with(args, &[])
}

pub(crate) fn outlast_with(args: &[&str], variables: &[(&str, &str)]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_outlast"))
        .args(args)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
