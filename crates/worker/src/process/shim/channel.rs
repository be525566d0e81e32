//! The shim's end of the socket that joins it to its engine.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::process::descriptors;
use crate::process::protocol::{LINE_BYTES_MAX, Order, Report, ShimTask, StartFailure};

/// What reading from the engine brought.
pub(super) enum Received {
    Orders(Vec<Order>),
    /// The stream ended: the engine closed it or died.
    EngineGone,
}

pub(in crate::process) struct Channel {
    socket: OwnedFd,
    pending: Vec<u8>,
    warm: Option<OwnedFd>,
}

impl Channel {
    /// Speaks over this socket. The other one is that of a warm process.
    pub(in crate::process) fn new(socket: OwnedFd, warm: Option<OwnedFd>) -> Self {
        Self { socket, pending: Vec::new(), warm }
    }

    /// Takes the socket from standard input and puts the job's input there instead, which
    /// comes with the first byte. So does the socket of a warm process.
    pub(super) fn from_stdin() -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let (_, came) = descriptors::receive(&socket, &mut [0_u8; 1])?;
        let mut came = came.into_iter();
        let job_stdin =
            came.next().ok_or_else(|| io::Error::other("no input came from the engine"))?;
        rustix::stdio::dup2_stdin(&job_stdin)?;
        Ok(Self::new(socket, came.next()))
    }

    /// Takes the socket of a warm process, if one came.
    pub(super) fn take_warm(&mut self) -> Option<OwnedFd> {
        self.warm.take()
    }

    /// Waits for the task; `None` if the engine went before sending it whole.
    pub(super) fn read_task(&mut self) -> io::Result<Option<ShimTask>> {
        loop {
            if let Some(line) = self.take_line() {
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::from);
            }
            if !self.fill(RecvFlags::empty())? {
                return Ok(None);
            }
        }
    }

    /// Whether a whole line has come already.
    pub(super) fn has_line(&self) -> bool {
        self.pending.contains(&b'\n')
    }

    /// Takes what has come, without waiting.
    pub(super) fn read_orders(&mut self) -> Received {
        let open = match self.fill(RecvFlags::DONTWAIT) {
            Ok(open) => open,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if open { Received::Orders(self.queued_orders()) } else { Received::EngineGone }
    }

    /// Returns the orders that came behind the task in one read.
    pub(super) fn queued_orders(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        while let Some(line) = self.take_line() {
            // An order of a newer engine that this shim does not know cannot come: both are
            // the same binary. Skipping it is still better than ending the job.
            orders.extend(serde_json::from_slice::<Order>(&line));
        }
        orders
    }

    /// Reports to the engine. One that is gone is noticed when reading, not here.
    pub(in crate::process) fn report(&self, report: &Report) {
        let Ok(mut line) = serde_json::to_vec(report) else { return };
        line.push(b'\n');
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Reports that nothing was executed, and that nothing is left. Returns the shim's exit code.
    pub(super) fn refuse(&self, failure: StartFailure) -> i32 {
        self.report(&Report::SpawnFailed(failure));
        self.report(&Report::Empty);
        1
    }

    /// Reads once; false at the end of the stream.
    fn fill(&mut self, flags: RecvFlags) -> io::Result<bool> {
        let mut buffer = [0_u8; 16 * 1024];
        let (read, _) = match recv(&self.socket, &mut buffer, flags) {
            Ok(read) => read,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        self.pending.extend_from_slice(buffer.get(..read).unwrap_or_default());
        if self.pending.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line from the engine is too long"));
        }
        Ok(read > 0)
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.pending.drain(..=end).collect();
        line.pop();
        Some(line)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
