//! What keeps an attempt's processes together.

use std::fmt;
use std::str::FromStr;

use rustix::thread::CapabilitySet;

/// What holds an attempt's process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Containment {
    /// A PID namespace: nothing escapes, and its end is proof that the tree is empty.
    Pidns,
    /// A cgroup v2 of its own: nothing escapes that does not write to the hierarchy. No proof
    /// when all of the worker is killed together.
    Cgroup,
    /// A subreaper: holds as long as the job does not kill its shim. No proof beyond that.
    Subreaper,
}

impl Containment {
    /// Every kind, best first.
    pub const ALL: [Self; 3] = [Self::Pidns, Self::Cgroup, Self::Subreaper];

    /// Returns the name used in settings and when a worker registers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pidns => "pidns",
            Self::Cgroup => "cgroup",
            Self::Subreaper => "subreaper",
        }
    }

    /// Says whether the tree's end can be proved even when every process of the worker was
    /// killed at once, which jobs that forbid overlap need.
    #[must_use]
    pub fn proves_death(self) -> bool {
        outlast_core::containment::proves_death(self.name())
    }

    /// Whether a PID namespace of this process needs a user namespace, which maps one user.
    #[must_use]
    pub fn knows_one_user() -> bool {
        let sets = rustix::thread::capabilities(None);
        !sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
    }
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which containment an operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The best that works.
    #[default]
    Auto,
    /// This one or none.
    Forced(Containment),
}

impl FromStr for Choice {
    type Err = UnknownContainment;

    fn from_str(text: &str) -> Result<Self, UnknownContainment> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        Containment::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .map(Self::Forced)
            .ok_or_else(|| UnknownContainment(text.to_owned()))
    }
}

/// A name that is no containment.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown containment {0:?}: expected auto, pidns, cgroup or subreaper")]
pub struct UnknownContainment(pub String);
