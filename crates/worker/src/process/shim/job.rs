//! Starting the job's program from the shim.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::process::{Pid, getpid};

use crate::process::handover;
use crate::process::protocol::{ContainedIn, ShimSpec, StartFailure, StartFault};
use crate::process::sys::JobEntry;

/// Executes the job's program on the standard descriptors and then lets go of them.
///
/// Whatever can fail is done before: an error means that nothing was executed.
pub(super) fn start(spec: &ShimSpec, groups: Vec<OwnedFd>) -> Result<Pid, StartFailure> {
    let null = open_null().map_err(|error| StartFailure::cannot("open /dev/null", error))?;
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().current_dir(&spec.cwd);
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    let keeps_mounts = matches!(spec.contained_in, ContainedIn::Pidns);
    JobEntry { parent: getpid(), groups, keeps_mounts, link: None }.arrange(&mut command);
    let child = command.spawn().map_err(|error| explain(spec, &error))?;
    // From here on the job is there, and has no business in the process that holds it.
    handover::close_to_others();
    // The job's pipes must not stay open through us: their end says that the job closed them.
    point_stdio_at(&null);
    Ok(Pid::from_child(&child))
}

/// Points the standard descriptors at /dev/null.
pub(super) fn let_go_of_stdio() -> io::Result<()> {
    point_stdio_at(&open_null()?);
    Ok(())
}

pub(super) fn open_null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// Needs no new descriptor, so that it does not fail for want of one.
pub(super) fn point_stdio_at(null: &File) {
    let _ = rustix::stdio::dup2_stdin(null);
    let _ = rustix::stdio::dup2_stdout(null);
    let _ = rustix::stdio::dup2_stderr(null);
}

fn explain(spec: &ShimSpec, error: &io::Error) -> StartFailure {
    let is_too_long = error.raw_os_error() == Some(libc::E2BIG);
    let fault = if is_too_long { StartFault::Job } else { StartFault::of(error) };
    StartFailure { reason: words(spec, error), fault }
}

fn words(spec: &ShimSpec, error: &io::Error) -> String {
    // Exec and chdir report through the same number; look which of them it was.
    match std::fs::metadata(&spec.cwd) {
        Ok(folder) if !folder.is_dir() => {
            return format!("working folder {} is not a folder", spec.cwd.display());
        }
        Err(missing) => return format!("working folder {}: {missing}", spec.cwd.display()),
        Ok(_) => {}
    }
    match error.raw_os_error() {
        Some(libc::ENOENT) => format!("program {} not found", spec.program),
        Some(libc::EACCES) => format!("program {} is not executable", spec.program),
        Some(libc::E2BIG) => {
            format!("arguments and environment of {} are too long for the system", spec.program)
        }
        _ => format!("program {}: {error}", spec.program),
    }
}
