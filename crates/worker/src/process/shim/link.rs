//! The link: the socket by which a shim says to an interpreter that is there already what to run.
//!
//! ```text
//! shim ──folder, script, variables──▶ interpreter ──ready, its number──▶ shim ──go──▶ interpreter
//! ```
//!
//! Until `go` is sent nothing of the action has run, so that whatever goes wrong before can be
//! answered by executing the program.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::{Pid, Signal, WaitOptions, wait};

use super::channel::Channel;
use super::job;
use crate::clock::boot_now;
use crate::process::pace::Pace;
use crate::process::protocol::{Blame, NotServed, Report, ShimSpec};
use crate::process::{handover, sys};

/// How long an interpreter may take to get ready.
const ANSWER_MAX_MS: u64 = 3000;

/// Longest text of script, folder and variables that is sent: a message must fit into its socket.
const TEXT_BYTES_MAX: usize = 128 * 1024;

/// Longest answer.
const ANSWER_BYTES_MAX: usize = 1024;

/// How long what was killed may take to be gone.
const GONE_MAX_MS: u64 = 1000;

/// An interpreter that waits for `go`.
pub(super) struct Ready {
    pub(super) job: Pid,
    pub(super) link: OwnedFd,
    pub(super) null: File,
}

/// Lets the job run and lets go of its descriptors. Nothing if it is not there, and has not run: reports
/// why, and the namespace is empty.
pub(super) fn begin(channel: &Channel, ready: Result<Ready, NotServed>) -> Option<Pid> {
    let begun = ready.and_then(|Ready { job, link, null }| {
        channel.report(&Report::Starting);
        let sent = send(&link, b"go", SendFlags::NOSIGNAL);
        sent.map_err(|error| not_served(format!("the interpreter was gone: {error}")))?;
        handover::close_to_others();
        job::point_stdio_at(&null);
        Ok(job)
    });
    match begun {
        Ok(job) => Some(job),
        Err(failed) => {
            // What may come late, or hangs half made.
            sys::kill_namespace(Signal::KILL);
            reap_all();
            handover::open_to_itself();
            channel.report(&Report::NotServed(failed));
            None
        }
    }
}

/// Waits for all children, which were killed.
fn reap_all() {
    let began = boot_now();
    let mut pace = Pace::new();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) if boot_now().since(began).as_millis() < GONE_MAX_MS => {
                let _ = poll(&mut [], Some(&pace.next()));
            }
            Ok(None) | Err(_) => return,
        }
    }
}

/// The shim's end, and that of the interpreter.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// What the interpreter is to run. An error says that it cannot be sent.
pub(super) fn describe(spec: &ShimSpec) -> Result<Vec<u8>, NotServed> {
    text_of(spec).ok_or_else(|| NotServed {
        why: "its variables are too long to be sent".to_owned(),
        blame: Blame::Attempt,
    })
}

/// Sends it a message.
pub(super) fn say(link: &OwnedFd, text: &[u8]) -> Result<(), NotServed> {
    send(link, text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop).map_err(cannot)
}

/// Waits until it is ready. Returns its number.
pub(super) fn await_ready(link: &OwnedFd) -> Result<Pid, NotServed> {
    let answer = await_answer(link)?;
    let text = String::from_utf8_lossy(&answer);
    let number = text.strip_prefix("ready ").and_then(|number| number.parse().ok());
    let ready = number.filter(|number| *number > 1).and_then(Pid::from_raw);
    ready.ok_or_else(|| not_served(text.strip_prefix("failed ").unwrap_or(&text)))
}

/// Takes what it says, if it has said something: nothing at the end.
pub(super) fn receive(link: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut answer = [0_u8; ANSWER_BYTES_MAX];
    let (length, _) = recv(link, &mut answer, RecvFlags::DONTWAIT)?;
    Ok(answer.get(..length).unwrap_or_default().to_vec())
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

/// Waits for what it says of itself.
fn await_answer(link: &OwnedFd) -> Result<Vec<u8>, NotServed> {
    let began = boot_now();
    loop {
        let waited = boot_now().since(began).as_millis();
        let Some(left) = ANSWER_MAX_MS.checked_sub(waited).filter(|left| *left > 0) else {
            let why = format!("it has not answered within {ANSWER_MAX_MS} ms");
            return Err(NotServed { why, blame: Blame::Hangs });
        };
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        let pause = Timespec { tv_sec: left / 1000, tv_nsec: left % 1000 * 1_000_000 };
        match poll(&mut [PollFd::new(link, PollFlags::IN)], Some(&pause)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(cannot(error)),
        }
        return match receive(link) {
            Ok(answer) if answer.is_empty() => Err(not_served("it has closed its link")),
            Ok(answer) => Ok(answer),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(cannot(error)),
        };
    }
}

fn not_served(why: impl Into<String>) -> NotServed {
    NotServed { why: why.into(), blame: Blame::Process }
}

pub(super) fn cannot(error: impl Into<io::Error>) -> NotServed {
    not_served(format!("it cannot be asked: {}", error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::protocol::ContainedIn;

    fn spec(script: Option<&str>, value: &str) -> ShimSpec {
        ShimSpec {
            label: "7".to_owned(),
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
