//! One warm process, from its launch to its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::Pid;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::WarmKey;
use super::start::{END_MAX, IMPORTS_MAX, Launch, Trouble, broken, last_line};
use crate::OwnProgram;
use crate::process::launch::{Launched, Reports, launch};
use crate::process::protocol::{Report, ShimTask, WarmProgram};
use crate::process::shim_process::ShimProcess;
use crate::process::sys;

/// Its program, which it reads from its socket.
const PROGRAM: &str = include_str!("parent.py");

/// Executes what comes first by standard input.
const BEGINNING: &str =
    "import os; exec(compile(os.read(0, 1 << 18), '<outlast>', 'exec'), {'__name__': 'outlast'})";

/// How long the argument is that makes room in the list of processes for what attempts show.
const ROOM: usize = 1024;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4096;

/// A process that forks attempts. It is killed when this is dropped.
pub(super) struct Parent {
    process: Option<ShimProcess>,
    pid: Pid,
    control: Option<Arc<OwnedFd>>,
    /// Readable when it has ended.
    end: AsyncFd<OwnedFd>,
}

impl Parent {
    /// Launches one and waits until it has imported all.
    pub(super) async fn start(program: &OwnProgram, what: Launch) -> Result<Self, Trouble> {
        let (control, theirs) = sockets().map_err(broken)?;
        let label = what.label();
        for message in [PROGRAM, &config(&what.key)] {
            send(&control, message.as_bytes(), SendFlags::NOSIGNAL).map_err(broken)?;
        }
        let launched = launch(program, &label, Some(theirs.as_fd())).await.map_err(broken)?;
        drop(theirs);
        let Launched { process, reports, mut orders, stdin, stdout, stderr, .. } = launched;
        let pid = process.pid();
        let end = match sys::watch_end(pid) {
            Ok(end) => end,
            Err(error) => {
                process.kill();
                process.reap(END_MAX).await;
                return Err(broken(error));
            }
        };
        let task = serde_json::to_vec(&ShimTask::Warm(program_of(what))).unwrap_or_default();
        // Killed when this function is left early, too.
        let mut parent =
            Self { process: Some(process), pid, control: Some(Arc::new(control)), end };
        let _shim_that_is_gone = orders.write_all(&[task, b"\n".to_vec()].concat()).await;
        drop((orders, stdin));
        let printed = [stdout, stderr];
        let imported = timeout(IMPORTS_MAX, parent.until_imported(reports, &printed)).await;
        if let Err(trouble) = imported.unwrap_or_else(|_late| Err(Trouble::late())) {
            parent.kill();
            parent.reap().await;
            return Err(trouble);
        }
        Ok(parent)
    }

    async fn until_imported(
        &self,
        mut reports: Reports,
        printed: &[pipe::Receiver; 2],
    ) -> Result<(), Trouble> {
        // The end of this stream says that the program is executed.
        while let Some(line) = reports.next_line().await.map_err(broken)? {
            if let Ok(Report::SpawnFailed(failure)) = serde_json::from_str(&line) {
                return Err(Trouble::Broken(failure.reason));
            }
        }
        let answer = self.answer().await.map_err(broken)?;
        let printed = printed.iter().find_map(last_line);
        match answer.as_str() {
            "ready" => match printed {
                None => Ok(()),
                Some(line) => Err(Trouble::prints(&line)),
            },
            "" => Err(Trouble::ended(printed)),
            other => Err(Trouble::Unfit(other.trim_start_matches("unfit ").to_owned())),
        }
    }

    /// Waits for what it says; nothing if it has ended.
    async fn answer(&self) -> io::Result<String> {
        let Some(control) = &self.control else { return Ok(String::new()) };
        let control = sys::readable(control.try_clone()?)?;
        let mut bytes = [0_u8; ANSWER_BYTES_MAX];
        let received = control.async_io(Interest::READABLE, |control| {
            Ok(recv(control, &mut bytes, RecvFlags::DONTWAIT)?)
        });
        let (length, _) = match received.await {
            // Where it has not read all that was sent.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => (0, 0),
            received => received?,
        };
        Ok(String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned())
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// By what it is asked. It ends when all copies are closed.
    pub(super) fn control(&self) -> Option<Arc<OwnedFd>> {
        self.control.clone()
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) {
        let _ = self.end.readable().await;
    }

    /// Ends it, after what it was asked already, and reaps it.
    pub(super) async fn end(mut self) {
        self.control = None;
        let _ = timeout(END_MAX, self.end.readable()).await;
        // One that hangs does not end by itself.
        self.kill();
        self.reap().await;
    }

    fn kill(&self) {
        if let Some(process) = &self.process {
            process.kill_group();
        }
    }

    async fn reap(&mut self) {
        if let Some(process) = self.process.take() {
            process.reap(END_MAX).await;
        }
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        process.kill_group();
        // Without a runtime the engine ends, and its guardian reaps what it leaves.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(process.reap(END_MAX));
        }
    }
}

fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn program_of(what: Launch) -> WarmProgram {
    let beginning = ["-c".to_owned(), BEGINNING.to_owned(), "-".repeat(ROOM)];
    let cwd = what.key.cwd.clone();
    what.program(beginning, cwd)
}

/// What the program reads second: its name, the options of attempts, where to import from, and what.
fn config(key: &WarmKey) -> String {
    let folder = key.folder.to_string_lossy();
    let options = key.options.join("\n");
    let first = [key.pack.as_str(), &options, &folder];
    first.into_iter().chain(key.preload.iter().map(String::as_str)).collect::<Vec<_>>().join("\0")
}
