//! Having a warm process fork the job.
//!
//! ```text
//! shim (process 1 of the namespace) ──link, descriptors, namespaces──▶ warm process
//!      ──what to run, by the link──▶ job: born in the namespace, and given to process 1 by the kernel
//!      ◀──ready, its number── job
//!      ──go──▶ job: only now it runs the script
//! ```
//!
//! A job that comes too late finds its link closed, and ends.
//!
//! The warm process never reads what is sent by the link: it has a copy of it only until it has forked.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};

use super::job;
use super::link::{self, Ready};
use crate::process::descriptors;
use crate::process::protocol::{Blame, NotServed, ShimSpec};

/// Most groups of an attempt whose entrances are sent.
const GROUPS_MAX: usize = 8;

/// Has the job forked, which then waits for `go`.
pub(super) fn fork(
    spec: &ShimSpec,
    entrances: &[OwnedFd],
    warm: OwnedFd,
) -> Result<Ready, NotServed> {
    if entrances.len() > GROUPS_MAX {
        let why = "it has too many groups".to_owned();
        return Err(NotServed { why, blame: Blame::Attempt });
    }
    let text = link::describe(spec)?;
    // Opened now: nothing may fail once the job runs.
    let null = job::open_null().map_err(link::cannot)?;
    let (link, theirs) = link::pair().map_err(link::cannot)?;
    link::say(&link, &text)?;
    ask(&warm, &theirs, entrances).map_err(link::cannot)?;
    drop((warm, theirs));
    let job = link::await_ready(&link)?;
    Ok(Ready { job, link, null })
}

/// Sends the warm process all that a job is born with.
fn ask(warm: &OwnedFd, theirs: &OwnedFd, entrances: &[OwnedFd]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let namespace = |path: &str| open(path, flags, Mode::empty());
    let namespaces = [
        namespace("/proc/self/ns/user")?,
        namespace("/proc/self/ns/pid")?,
        namespace("/proc/self/ns/mnt")?,
    ];
    let stdio = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let sent: Vec<BorrowedFd<'_>> = [theirs.as_fd()]
        .into_iter()
        .chain(stdio)
        .chain(namespaces.iter().map(AsFd::as_fd))
        .chain(entrances.iter().map(AsFd::as_fd))
        .collect();
    descriptors::send(warm, &[IoSlice::new(b"fork")], &sent)
}
