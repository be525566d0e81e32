//! What keeps an attempt's processes together, and which kind really works on this host.
//!
//! Nothing here trusts a version number or a file's existence: a kind works when a job was
//! run in it and its tree was seen to be empty.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::OwnProgram;
use super::shim::{NOOP, SUBCOMMAND};
use crate::attempt::{Attempt, AttemptSpec, EndKind};

/// How long one trial may take on a host that is busy starting everything at once.
const TRIAL_MAX: Duration = Duration::from_secs(5);

/// What holds an attempt's process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Containment {
    /// A PID namespace: nothing escapes, and its end is proof that the tree is empty.
    Pidns,
    /// A cgroup v2 of its own: nothing escapes that cannot write to the hierarchy.
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

    /// Says whether the tree's end can be proved even when its shim was killed, which
    /// actions that forbid overlap need.
    #[must_use]
    pub fn proves_death(self) -> bool {
        outlast_core::containment::proves_death(self.name())
    }

    /// Tries `choice` on this host and returns the best kind that works.
    ///
    /// # Errors
    /// When the forced kind does not work, or none does.
    pub async fn probe(choice: Choice, program: &OwnProgram) -> Result<Probe, NoContainment> {
        let candidates = match choice {
            Choice::Auto => Self::ALL.to_vec(),
            Choice::Forced(kind) => vec![kind],
        };
        let mut refused = Vec::new();
        for kind in candidates {
            match trial(kind, program).await {
                Ok(()) => return Ok(Probe { chosen: kind, refused }),
                Err(reason) => refused.push(Refused { kind, reason }),
            }
        }
        Err(NoContainment { refused })
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

/// What a probe found.
#[derive(Debug)]
pub struct Probe {
    /// The best kind that works.
    pub chosen: Containment,
    /// Better kinds that do not work here, and why.
    pub refused: Vec<Refused>,
}

/// One kind that does not work here.
#[derive(Debug)]
pub struct Refused {
    /// The kind that was tried.
    pub kind: Containment,
    /// Why it does not work.
    pub reason: String,
}

/// No containment that was asked for works on this host.
#[derive(Debug, thiserror::Error)]
#[error("no containment works here: {}", .refused.iter().map(|r| format!("{}: {}", r.kind, r.reason)).collect::<Vec<_>>().join("; "))]
pub struct NoContainment {
    /// Every kind that was tried.
    pub refused: Vec<Refused>,
}

/// Runs the program itself, doing nothing, as a job in `kind`.
async fn trial(kind: Containment, program: &OwnProgram) -> Result<(), String> {
    let path = program.path().to_str().ok_or("the program's own path is not UTF-8")?;
    let spec = AttemptSpec {
        args: vec![SUBCOMMAND.to_owned(), NOOP.to_owned()],
        timeout: Some(TRIAL_MAX),
        containment: kind,
        shim: program.clone(),
        ..AttemptSpec::new("probe", path)
    };
    let ending = Attempt::spawn(spec).finished().await;
    match ending.kind {
        EndKind::Exited { code: 0 } if ending.tree_empty => Ok(()),
        EndKind::SpawnFailed { reason } => Err(reason),
        other => Err(format!("a trial did not end well: {other}")),
    }
}
