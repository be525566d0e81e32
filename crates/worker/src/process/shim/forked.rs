//! Having a warm process fork the job.
//!
//! ```text
//! shim (process 1 of the namespace) ──link, descriptors, namespaces──▶ warm process
//!      ──what to run, by the link──▶ job: born in the namespace, and given to process 1 by the kernel
//!      ◀──ready, its number── job
//!      ──go──▶ job: only now it runs the script
//! ```
//!
//! Until `go` is sent nothing of the action has run, so that whatever goes wrong before can be
//! answered by executing the program. A job that comes too late finds its link closed, and ends.
//!
//! The warm process never reads what is sent by the link: it has a copy of it only until it has forked.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::{Pid, Signal};

use super::channel::Channel;
use super::job;
use crate::clock::boot_now;
use crate::process::protocol::{Blame, NotForked, Report, ShimSpec};
use crate::process::{descriptors, handover, sys};

/// How long a warm process may take to fork a job, and the job to get ready.
const ANSWER_MAX_MS: u64 = 3000;

/// Longest text of script, folder and variables that is sent: a message must fit into its socket.
const TEXT_BYTES_MAX: usize = 128 * 1024;

/// Most groups of an attempt whose entrances are sent.
const GROUPS_MAX: usize = 8;

/// Longest answer of a job.
const ANSWER_BYTES_MAX: usize = 1024;

/// Has the job forked and lets go of its descriptors. Nothing if it was not, and has not run: reports
/// why.
pub(super) fn start(
    channel: &Channel,
    spec: &ShimSpec,
    entrances: &[OwnedFd],
    warm: OwnedFd,
) -> Option<Pid> {
    let failed = match fork(spec, entrances, warm) {
        Ok(Forked { job, link, null }) => {
            channel.report(&Report::Starting);
            match send(&link, b"go", SendFlags::NOSIGNAL) {
                Ok(_) => {
                    handover::close_to_others();
                    job::point_stdio_at(&null);
                    return Some(job);
                }
                Err(error) => not_forked(format!("the job was gone: {error}")),
            }
        }
        Err(failed) => failed,
    };
    // What may come late, or hangs half made.
    sys::kill_namespace(Signal::KILL);
    channel.report(&Report::NotForked(failed));
    None
}

/// A job that waits for `go`.
struct Forked {
    job: Pid,
    link: OwnedFd,
    null: std::fs::File,
}

fn fork(spec: &ShimSpec, entrances: &[OwnedFd], warm: OwnedFd) -> Result<Forked, NotForked> {
    let text = text_of(spec).filter(|_| entrances.len() <= GROUPS_MAX);
    let text = text.ok_or_else(|| NotForked {
        why: "its variables are too long, or its groups too many".to_owned(),
        blame: Blame::Attempt,
    })?;
    // Opened now: nothing may fail once the job runs.
    let null = job::open_null().map_err(cannot)?;
    let flags = SocketFlags::CLOEXEC;
    let (link, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(cannot)?;
    send(&link, &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map_err(cannot)?;
    ask(&warm, &theirs, entrances).map_err(cannot)?;
    drop((warm, theirs));
    let answer = await_answer(&link)?;
    let text = String::from_utf8_lossy(&answer);
    let number = text.strip_prefix("ready ").and_then(|number| number.parse().ok());
    match number.filter(|number| *number > 1).and_then(Pid::from_raw) {
        Some(job) => Ok(Forked { job, link, null }),
        None => Err(not_forked(text.strip_prefix("failed ").unwrap_or(&text))),
    }
}

/// Folder, script and variables with zeros in between. None if they cannot be sent that way.
fn text_of(spec: &ShimSpec) -> Option<Vec<u8>> {
    let script = spec.args.last()?;
    let variables = spec.env.iter().map(|(name, value)| format!("{name}={value}"));
    let parts: Vec<String> =
        [spec.cwd.to_str()?.to_owned(), script.clone()].into_iter().chain(variables).collect();
    let text = parts.join("\0").into_bytes();
    let is_plain = parts.iter().all(|part| !part.contains('\0'));
    (is_plain && text.len() <= TEXT_BYTES_MAX).then_some(text)
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

/// Waits for what the job says of itself.
fn await_answer(link: &OwnedFd) -> Result<Vec<u8>, NotForked> {
    let began = boot_now();
    loop {
        let waited = boot_now().since(began).as_millis();
        let Some(left) = ANSWER_MAX_MS.checked_sub(waited).filter(|left| *left > 0) else {
            let why = format!("it has not answered within {ANSWER_MAX_MS} ms");
            return Err(NotForked { why, blame: Blame::Hangs });
        };
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        let pause = Timespec { tv_sec: left / 1000, tv_nsec: left % 1000 * 1_000_000 };
        match poll(&mut [PollFd::new(link, PollFlags::IN)], Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(cannot(error)),
        }
        let mut answer = [0_u8; ANSWER_BYTES_MAX];
        return match recv(link, &mut answer, RecvFlags::empty()) {
            Ok((0, _)) => Err(not_forked("it has closed the link of the job")),
            Ok((length, _)) => Ok(answer.get(..length).unwrap_or_default().to_vec()),
            Err(Errno::INTR) => continue,
            Err(error) => Err(cannot(error)),
        };
    }
}

fn not_forked(why: impl Into<String>) -> NotForked {
    NotForked { why: why.into(), blame: Blame::Process }
}

fn cannot(error: impl Into<io::Error>) -> NotForked {
    not_forked(format!("it cannot be asked: {}", error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::protocol::ContainedIn;

    fn spec(script: Option<&str>, value: &str) -> ShimSpec {
        ShimSpec {
            program: "python3".to_owned(),
            args: script.into_iter().map(str::to_owned).collect(),
            env: vec![("A".to_owned(), "1".to_owned()), ("B".to_owned(), value.to_owned())],
            cwd: "/pack".into(),
            contained_in: ContainedIn::Pidns,
            hidden: Vec::new(),
            private_folder: None,
            deadline_boot_ms: None,
            limits: Default::default(),
        }
    }

    #[test]
    fn a_job_is_described_by_its_folder_its_script_and_its_variables() {
        let text = text_of(&spec(Some("/pack/it.py"), "x=y\n")).unwrap();
        assert_eq!(text, b"/pack\0/pack/it.py\0A=1\0B=x=y\n");
    }

    #[test]
    fn what_cannot_be_described_is_executed() {
        assert_eq!(text_of(&spec(None, "")), None);
        assert_eq!(text_of(&spec(Some("/it.py"), "a\0b")), None);
        assert_eq!(text_of(&spec(Some("/it.py"), &"x".repeat(TEXT_BYTES_MAX))), None);
        assert!(text_of(&spec(Some("/it.py"), &"x".repeat(TEXT_BYTES_MAX / 2))).is_some());
    }
}
