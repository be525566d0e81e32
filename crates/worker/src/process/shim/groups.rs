//! The groups of one attempt that limit what it uses.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::poll;

use crate::clock::boot_now;
use crate::process::cgroup::Group;
use crate::process::pace::Pace;
use crate::process::protocol::StartFailure;
use crate::process::resources::LimitPlan;

/// How long the kernel may take to empty a group whose processes are dead.
const EMPTY_MAX_MS: u64 = 500;

/// Groups that are there until they are removed. One that is busy is left to the keeper.
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
