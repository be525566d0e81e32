//! Keeping what a process was given out of sight of the jobs beside it.
//!
//! ```text
//! started ──its variables into a memfd──▶ executes itself, only harmless variables in sight
//!         ──▶ reads the memfd; a child that needs the variables inherits the memfd
//! ```
//!
//! Processes of one user may read each other's `/proc/PID/environ`, `mem` and `fd`, and jobs
//! are such processes. What the kernel shows as the environment is what stood there at exec, so
//! only another exec clears it. The rest is closed by [`close_to_others`].

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::sys;

/// Names the descriptor with the variables to a process that was started again.
const VARIABLE: &str = "_OUTLAST_ENVIRONMENT_FD";

/// What `/proc/self/fd` calls the descriptor.
const LINK: &str = "/memfd:outlast-environment (deleted)";

/// Shuts other processes of the same user out of this one: no tracing, no reading of its
/// memory, environment and descriptors, no core dumps. The kernel forgets it at exec.
pub fn close_to_others() {
    // Neither can fail for a process that asks for itself.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // A process that executed /proc/self/exe is called "exe" otherwise.
    let _ = rustix::thread::set_name(c"outlast");
}

/// Lets a shim set itself up: it may have become closed by executing a program that its user
/// cannot read.
pub(crate) fn open_to_itself() {
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
}

/// Executes this program again with `args`. Of `variables` those that `stays` names remain in
/// sight; all of them wait in a descriptor for [`received`]. Returns only when it fails.
#[must_use]
pub fn start_again(
    args: &[OsString],
    variables: &[(String, String)],
    stays: fn(&str) -> bool,
) -> io::Error {
    match prepare(args, variables, stays) {
        Ok((mut command, descriptor)) => {
            let failed = command.exec();
            drop(descriptor);
            failed
        }
        Err(error) => error,
    }
}

fn prepare(
    args: &[OsString],
    variables: &[(String, String)],
    stays: fn(&str) -> bool,
) -> io::Result<(Command, File)> {
    // Not closed at exec, on purpose.
    let mut descriptor = File::from(memfd_create(c"outlast-environment", MemfdFlags::empty())?);
    descriptor.write_all(&encoded(variables))?;
    let (name, args) = args.split_first().ok_or_else(|| io::Error::other("no arguments"))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args(args).env_clear();
    command.envs(variables.iter().filter(|(name, _)| stays(name)).cloned());
    command.env(VARIABLE, descriptor.as_raw_fd().to_string());
    Ok((command, descriptor))
}

/// Returns the variables that were handed over to this process, if any were. Children inherit
/// the descriptor until [`keep_from_children`].
#[must_use]
pub fn received() -> Option<Vec<(String, String)>> {
    let file = File::from(descriptor()?);
    let mut bytes = Vec::new();
    // The position is shared with every process that has the descriptor: none moves it.
    let read = file.metadata().and_then(|about| {
        bytes.resize(usize::try_from(about.len()).unwrap_or(0), 0);
        file.read_exact_at(&mut bytes, 0)
    });
    // Still open, for children.
    let _open = file.into_raw_fd();
    read.ok().map(|()| decoded(&bytes))
}

/// Closes the descriptor: children of this process are strangers.
pub fn keep_from_children() {
    drop(descriptor());
}

/// The descriptor, if the variable names one that [`start_again`] made.
fn descriptor() -> Option<OwnedFd> {
    #[expect(clippy::disallowed_methods, reason = "a word to ourselves, not a setting")]
    let number: i32 = std::env::var(VARIABLE).ok()?.parse().ok()?;
    let link = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    (link.as_os_str() == LINK).then(|| sys::adopt(number))
}

fn encoded(variables: &[(String, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in variables {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}

fn decoded(bytes: &[u8]) -> Vec<(String, String)> {
    let lines = bytes.split(|byte| *byte == 0);
    let pairs = lines.filter_map(|line| std::str::from_utf8(line).ok()?.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::{decoded, encoded};

    #[test]
    fn variables_come_out_as_they_went_in() {
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let variables = vec![of("A", ""), of("B", "x=y\nz"), of("C", "ä")];
        assert_eq!(decoded(&encoded(&variables)), variables);
        assert_eq!(decoded(&[]), []);
    }
}
