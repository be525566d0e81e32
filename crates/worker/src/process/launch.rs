//! Launching a shim from the engine.
//!
//! ```text
//! spawner forks one ──▶ it says that it is there ──▶ launched
//!   └─ no spawner, or no word from it: another try, then the program itself is executed
//! ```
//!
//! Everything the shim gets is either a standard descriptor or is sent over a socket, so
//! no descriptor ever lacks close-on-exec in the engine, where another thread may be
//! spawning at the same moment and would pass it on.

use std::io::{self, IoSlice, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::time::timeout;

use super::containment::Containment;
use super::protocol::{ContainedIn, Report};
use super::shim_process::ShimProcess;
use super::{OwnProgram, cgroup, descriptors, resources, shim, spawner};

/// How often a spawner is asked: the first one may have ended since it was used last.
const TRIES: u32 = 2;

/// How long a spawner may take. One that was stopped is killed then.
const SPAWNER_MAX: Duration = Duration::from_secs(3);

/// How long a child that came too late has to be gone.
const LATE_MAX: Duration = Duration::from_secs(1);

/// What the shim reports, a line each.
pub(crate) type Reports = Lines<BufReader<OwnedReadHalf>>;

/// A shim that was started, with our ends of everything. Nothing was said to it yet.
pub(crate) struct Launched {
    pub(crate) process: ShimProcess,
    pub(crate) reports: Reports,
    pub(crate) orders: OwnedWriteHalf,
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
    /// Announces the end of its namespace, if it has one already.
    pub(crate) namespace: Option<AsyncFd<OwnedFd>>,
}

/// Launches a shim, with a copy of the socket of a warm process if it has to do with one. An error
/// means that there is none, and that nothing was said to one.
pub(crate) async fn launch(
    program: &OwnProgram,
    label: &str,
    warm: Option<BorrowedFd<'_>>,
) -> io::Result<Launched> {
    for _ in 0..TRIES {
        match by_spawner(program, label, warm).await {
            Ok(launched) => return Ok(launched),
            Err(error) => tracing::debug!(%error, "no shim by the spawner"),
        }
    }
    by_execution(program, label, warm)
}

async fn by_spawner(
    program: &OwnProgram,
    label: &str,
    warm: Option<BorrowedFd<'_>>,
) -> io::Result<Launched> {
    let spawner = spawner::current(program)?;
    let (engines, shims) = ends()?;
    let always =
        [shims.socket.as_fd(), shims.stdin.as_fd(), shims.stdout.as_fd(), shims.stderr.as_fd()];
    let descriptors: Vec<BorrowedFd<'_>> = always.into_iter().chain(warm).collect();
    spawner.ask(label, &descriptors)?;
    // From here on the end of the stream says that no shim comes.
    drop(descriptors);
    drop(shims);
    let mut engines = engines.open()?;
    let came = timeout(SPAWNER_MAX, came(&mut engines.reports)).await;
    match came {
        Ok(Some(pid)) => {
            spawner.has_served();
            Ok(engines.of(pid))
        }
        Ok(None) => Err(io::Error::other("the spawner has ended, or could not fork")),
        Err(_) => {
            tracing::warn!("the spawner of shims does nothing: killing it");
            spawner.kill();
            // A shim that comes all the same learns that it is too late, and is reaped.
            tokio::spawn(dismiss(engines));
            Err(io::Error::other("the spawner did nothing"))
        }
    }
}

/// Waits for the shim's number; none if no shim comes.
async fn came(reports: &mut Reports) -> Option<Pid> {
    let line = reports.next_line().await.ok().flatten()?;
    match serde_json::from_str(&line).ok()? {
        Report::Launched { pid } => Pid::from_raw(pid),
        _ => None,
    }
}

/// Sends a shim away that comes too late.
async fn dismiss(engines: EnginesEnds) {
    let EnginesEnds { mut reports, orders, .. } = engines;
    // It reads the end of the stream, and has no job.
    drop(orders);
    if let Some(pid) = came(&mut reports).await {
        drop(reports);
        ShimProcess::of(pid).reap(LATE_MAX).await;
    }
}

/// Executes the program as a shim, which costs more.
fn by_execution(
    program: &OwnProgram,
    label: &str,
    warm: Option<BorrowedFd<'_>>,
) -> io::Result<Launched> {
    let (engines, shims) = ends()?;
    let sent: Vec<BorrowedFd<'_>> = [shims.stdin.as_fd()].into_iter().chain(warm).collect();
    // The shim reads this byte first.
    descriptors::send(&engines.socket, &[IoSlice::new(b"\n")], &sent)?;
    drop(sent);
    drop(shims.stdin);
    let mut command = Command::new(program.path());
    command
        .arg0("outlast")
        .args([shim::SUBCOMMAND, label])
        // The shim wants nothing of our environment, and must not carry our secrets about.
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(shims.socket)))
        .stdout(shims.stdout)
        .stderr(shims.stderr);
    let child = command.spawn()?;
    // The builder still holds the job's ends of the pipes.
    drop(command);
    Ok(engines.open()?.of(Pid::from_child(&child)))
}

/// The engine's ends of what joins it to a shim and a job.
struct Ends {
    socket: StdUnixStream,
    stdin: PipeWriter,
    stdout: PipeReader,
    stderr: PipeReader,
}

/// The other ends.
struct ShimsEnds {
    socket: StdUnixStream,
    stdin: PipeReader,
    stdout: PipeWriter,
    stderr: PipeWriter,
}

fn ends() -> io::Result<(Ends, ShimsEnds)> {
    let (socket, shims_socket) = StdUnixStream::pair()?;
    let (job_stdin, stdin) = io::pipe()?;
    let (stdout, job_stdout) = io::pipe()?;
    let (stderr, job_stderr) = io::pipe()?;
    let shims = ShimsEnds {
        socket: shims_socket,
        stdin: job_stdin,
        stdout: job_stdout,
        stderr: job_stderr,
    };
    Ok((Ends { socket, stdin, stdout, stderr }, shims))
}

/// The engine's ends on the runtime.
struct EnginesEnds {
    reports: Reports,
    orders: OwnedWriteHalf,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

impl Ends {
    fn open(self) -> io::Result<EnginesEnds> {
        self.socket.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(self.socket)?.into_split();
        Ok(EnginesEnds {
            reports: BufReader::new(reports).lines(),
            orders,
            stdin: pipe::Sender::from_owned_fd(self.stdin.into())?,
            stdout: receiver(self.stdout)?,
            stderr: receiver(self.stderr)?,
        })
    }
}

impl EnginesEnds {
    /// What belongs to the shim with this number.
    fn of(self, pid: Pid) -> Launched {
        let Self { reports, orders, stdin, stdout, stderr } = self;
        let process = ShimProcess::of(pid);
        Launched { process, reports, orders, stdin, stdout, stderr, namespace: None }
    }
}

fn receiver(pipe: PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(pipe.into())
}

/// Picks the place for one attempt inside `containment`.
pub(crate) fn assign(containment: Containment, program: &OwnProgram) -> io::Result<ContainedIn> {
    Ok(match containment {
        Containment::Pidns => ContainedIn::Pidns,
        Containment::Cgroup => {
            let folder = cgroup::own_folder()?.join(resources::next_name(program)?);
            ContainedIn::Cgroup { folder }
        }
        Containment::Subreaper => ContainedIn::Subreaper,
    })
}
