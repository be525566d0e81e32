//! Becoming the program that attempts are forked from.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::channel::Channel;
use super::mounts;
use crate::process::protocol::{StartFailure, WarmProgram};
use crate::process::sys;

/// Executes the program in this process, with its socket as standard input. Returns only when that
/// fails, with an exit code.
pub(super) fn become_program(
    channel: &Channel,
    program: &WarmProgram,
    control: Option<OwnedFd>,
) -> i32 {
    let Some(control) = control else {
        return channel.refuse(StartFailure::of_host("no socket came for the warm process"));
    };
    if let Err(failure) = mounts::arrange_for_warm(&program.hidden, &program.attempts) {
        return channel.refuse(failure);
    }
    let mut command = Command::new(&program.program);
    command.args(&program.args).env_clear().current_dir(&program.cwd).stdin(control);
    command.envs(program.env.iter().map(|(name, value)| (name, value)));
    sys::enter_as_warm(&mut command);
    let error = command.exec();
    channel.refuse(StartFailure::of_call(format_args!("program {}", program.program), &error))
}
