//! Changes by time alone.

use outlast_core::time::{Span, Timestamp};

use super::report::Moved;
use crate::job::ClassId;
use crate::request::requests;

/// A look at what is due.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// How many jobs to touch at most, of each sort.
    pub limit: u32,
    /// Whether this server has watched plain attempts for their visibility, so that their
    /// silence may count (I8): only attempts whose visibility is at most this long.
    pub watched: Span,
}

/// A look for stranded jobs of one class.
#[derive(Clone, Debug)]
pub struct Strand {
    /// The class.
    pub class: ClassId,
    /// Since when no live worker is eligible.
    pub since: Timestamp,
    /// Which workers were considered and why each was not eligible.
    pub reason: String,
    /// How many jobs to touch at most.
    pub limit: u32,
}

/// What time alone did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Swept {
    /// Jobs that moved.
    pub moved: Vec<Moved>,
    /// Whether a limit was reached, so that another sweep should follow at once.
    pub more: bool,
}

/// What stranding did.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Stranded {
    /// Jobs that failed.
    pub moved: Vec<Moved>,
    /// When the class's next job is stranded too long, if one has a limit.
    pub next: Option<Timestamp>,
}

requests! {
    Sweep as Sweep -> Swept(Swept);
    Strand as Strand -> Stranded(Stranded);
}
