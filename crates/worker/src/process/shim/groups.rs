//! The groups of one attempt that limit what it uses.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::poll;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use serde::{Deserialize, Serialize};

use crate::clock::boot_now;
use crate::process::cgroup::Group;
use crate::process::descriptors;
use crate::process::pace::Pace;
use crate::process::protocol::StartFailure;
use crate::process::resources::LimitPlan;
use crate::process::sys::ArgumentArea;

/// How long the kernel may take to empty a group whose processes are dead.
const EMPTY_MAX_MS: u64 = 500;

/// Longest request of an inner half.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Groups that are there until they are removed. One that is busy is left to the keeper.
#[derive(Default)]
pub(super) struct LimitGroups(Vec<Group>);

impl LimitGroups {
    /// Makes the groups, all of them or none.
    pub(super) fn create(plan: &LimitPlan) -> Result<Self, StartFailure> {
        let mut made = Self(Vec::new());
        for group in &plan.groups {
            match group.create() {
                Ok(group) => made.0.push(group),
                Err(error) => {
                    made.remove();
                    return Err(StartFailure::cannot("limit what the job uses by cgroups", error));
                }
            }
        }
        Ok(made)
    }

    pub(super) fn as_slice(&self) -> &[Group] {
        &self.0
    }

    /// Removes them once nothing is in them, which is soon: the tree is dead.
    pub(super) fn remove(&self) {
        let began = boot_now();
        let mut pace = Pace::new();
        for group in &self.0 {
            while !group.is_empty() && boot_now().since(began).as_millis() < EMPTY_MAX_MS {
                let _ = poll(&mut [], Some(&pace.next()));
            }
            group.remove();
        }
    }
}

/// Which half of the shim has come to its end, and with which exit code.
pub(super) enum Half {
    Outer(i32),
    Inner(i32),
}

/// Opens the files by which a process joins groups.
pub(super) fn entrances(groups: &[Group]) -> Result<Vec<OwnedFd>, StartFailure> {
    let opened: io::Result<Vec<OwnedFd>> = groups.iter().map(Group::entrance).collect();
    opened.map_err(|error| StartFailure::cannot("enter a cgroup", error))
}

/// Shows what a shim is for in the list of processes.
pub(super) fn show_label(label: &str) {
    if let Some(area) = ArgumentArea::find() {
        area.show(b"outlast\0shim\0", &[label.as_bytes(), b"\0"].concat());
    }
}

/// What the outer half is to do for an attempt that comes later than the shim.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) label: String,
    pub(super) limits: LimitPlan,
}

/// The outer half's end of a socket by which the inner half asks it for groups: to the inner one
/// they are read-only.
pub(super) struct Desk {
    socket: Option<OwnedFd>,
    made: LimitGroups,
}

/// The inner half's end.
pub(super) struct Asker(OwnedFd);

/// Makes both ends.
pub(super) fn desk() -> io::Result<(Desk, Asker)> {
    let flags = SocketFlags::CLOEXEC;
    let (socket, inners) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Desk { socket: Some(socket), made: LimitGroups::default() }, Asker(inners)))
}

impl Desk {
    /// Readable when the inner half asks, or is gone.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Does what is asked.
    pub(super) fn serve(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut bytes = vec![0_u8; REQUEST_BYTES_MAX];
        let length = match recv(socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((length, _)) if length > 0 => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return,
            Ok(_) | Err(_) => {
                self.socket = None;
                return;
            }
        };
        let request = serde_json::from_slice::<Option<Request>>(bytes.get(..length).unwrap_or(&[]));
        let made = match request {
            Ok(Some(Request { label, limits })) => {
                show_label(&label);
                LimitGroups::create(&limits).and_then(|made| {
                    self.made = made;
                    entrances(self.made.as_slice())
                })
            }
            // It only wants to know whether this half is there.
            Ok(None) => Ok(Vec::new()),
            Err(error) => Err(StartFailure::cannot("read what to limit", error)),
        };
        let (entrances, failure) = match made {
            Ok(entrances) => (entrances, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let sent: Vec<BorrowedFd<'_>> = entrances.iter().map(AsFd::as_fd).collect();
        let answer = serde_json::to_vec(&failure).unwrap_or_default();
        // One that is gone is noticed when reading.
        let _ = descriptors::send(socket, &[IoSlice::new(&answer)], &sent);
    }

    /// Closes it in the half that does not serve it.
    pub(super) fn close(&mut self) {
        self.socket = None;
    }

    /// Removes what was made.
    pub(super) fn remove(&self) {
        self.made.remove();
    }
}

impl Asker {
    /// Has groups made, and returns the files by which a process joins them. Without a request it only
    /// returns when the other half is there.
    pub(super) fn ask(&self, request: Option<&Request>) -> Result<Vec<OwnedFd>, StartFailure> {
        let cannot = |error| StartFailure::cannot("ask the outer half of the shim", error);
        let text = serde_json::to_vec(&request).map_err(|error| cannot(error.into()))?;
        send(&self.0, &text, SendFlags::NOSIGNAL).map_err(|error| cannot(error.into()))?;
        let mut answer = [0_u8; 4096];
        let (length, entrances) = descriptors::receive(&self.0, &mut answer).map_err(cannot)?;
        let failure: Option<StartFailure> =
            serde_json::from_slice(answer.get(..length).unwrap_or_default())
                .map_err(|error| cannot(error.into()))?;
        failure.map_or(Ok(entrances), Err)
    }
}
