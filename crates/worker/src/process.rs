//! Everything that touches processes: the shim and what it uses, and how the engine
//! launches one.
//!
//! The engine never forks by itself: it asks the spawner for a shim. Both have one thread, and the
//! shim does whatever must happen between fork and exec. Raw system calls stand in `sys`.

pub mod containment;
pub mod handover;
pub mod keeper;
pub mod resources;
pub mod shim;
pub mod signals;
pub mod spawner;

pub(crate) mod cgroup;
pub(crate) mod descendants;
pub(crate) mod descriptors;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod pace;
pub(crate) mod protocol;
pub(crate) mod shim_process;
pub(crate) mod sys;

use std::path::{Path, PathBuf};

/// The program that is executed again as shim or engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnProgram(PathBuf);

impl OwnProgram {
    /// Returns the running program, reached through the kernel rather than by its path, so
    /// that a binary replaced on disk during an upgrade keeps matching its own shims.
    #[must_use]
    pub fn running() -> Self {
        Self(PathBuf::from("/proc/self/exe"))
    }

    /// Returns the program at `path`, which must dispatch the hidden subcommands.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Calls `last` when this process exits, by whichever thread; not when a signal ends it.
pub fn at_exit(last: extern "C" fn()) {
    sys::at_exit(last);
}
