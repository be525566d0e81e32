//! Starting the job's program from the shim.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::process::{Pid, getpid};

use crate::process::handover;
use crate::process::protocol::{HeldIn, ShimSpec};
use crate::process::sys::JobEntry;

/// Executes the job's program on the standard descriptors and then lets go of them.
/// The error is the sentence the operator reads.
pub(super) fn start(spec: &ShimSpec, group: Option<OwnedFd>) -> Result<Pid, String> {
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().current_dir(&spec.cwd);
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    let keeps_mounts = matches!(spec.held_in, HeldIn::Pidns);
    JobEntry { parent: getpid(), group, keeps_mounts }.arrange(&mut command);
    let child = command.spawn().map_err(|error| explain(spec, &error))?;
    // From here on the job is there, and has no business in the process that holds it.
    handover::close_to_others();
    // The job's pipes must not stay open through us: their end says that the job closed them.
    let_go_of_stdio().map_err(|error| format!("cannot let go of the job's pipes: {error}"))?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| "the job has no process id".to_owned())
}

/// Points the standard descriptors at /dev/null.
pub(super) fn let_go_of_stdio() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

fn explain(spec: &ShimSpec, error: &io::Error) -> String {
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
