//! Identities: what a job, a worker and a claim are called.

use std::fmt;

use uuid::Uuid;

/// The id of a job, never used again; a UUIDv7, so ids sort by creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub Uuid);

/// Names one process start of a worker; a restart under the same name has another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub Uuid);

/// Rises by one at every claim of a job and never resets; fences every later write.
///
/// It is not an attempt count: a replay or a free interruption leaves the attempt
/// count alone, and still raises the epoch at the next claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a job that was never claimed.
    pub const ZERO: Self = Self(0);

    /// Returns the epoch of the next claim.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl std::str::FromStr for JobId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

macro_rules! show_as_inner {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    )*};
}
show_as_inner!(JobId, WorkerId, Epoch);
