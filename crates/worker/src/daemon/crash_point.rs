//! Named places at which a test has the engine killed (F4), in debug builds only.
//!
//! `OUTLAST_CRASH_POINT=NAME:FILE` kills the engine with SIGKILL when it comes to that place. The
//! file says that this has not happened yet: the engine removes it first, so the next engine passes.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Signal, getpid, kill_process};

/// The variable that names the place.
const VARIABLE: &str = "OUTLAST_CRASH_POINT";

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A job was claimed for this worker, and nothing of it was started.
    Claimed,
    /// All processes of an attempt have ended, and its end is not reported yet.
    Exited,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Exited => "exited",
        }
    }
}

/// The place at which this engine is to be killed, if there is one.
#[derive(Clone, Debug, Default)]
pub(super) struct CrashPoint {
    wanted: Option<(String, PathBuf)>,
}

impl CrashPoint {
    /// Reads it from the worker's own environment.
    pub(super) fn of(variables: &[(String, String)]) -> Self {
        let value = variables.iter().find(|(name, _)| name == VARIABLE).map(|(_, value)| value);
        let wanted = value.filter(|_| cfg!(debug_assertions)).and_then(|it| it.split_once(':'));
        Self { wanted: wanted.map(|(name, file)| (name.to_owned(), PathBuf::from(file))) }
    }

    /// Kills the engine if this is the place.
    pub(super) fn reach(&self, place: Place) {
        let Some((name, file)) = &self.wanted else { return };
        if name == place.name() && fs::remove_file(file).is_ok() {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }
}
