//! How much memory a process has.

use std::fs;

use rustix::process::Pid;

use super::sys;

/// The bytes that are its own: no files, and no memory files. None for a process that is gone; zero for
/// one that has ended and was not waited for.
pub(crate) fn own_bytes(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(resident.saturating_sub(shared).saturating_mul(sys::page_bytes()))
}
