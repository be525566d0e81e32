//! How an end is known: a sentence for operators, and a code for programs where the end was not
//! the job's own.

use std::fmt;
use std::ops::Deref;

/// What a move is based on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The word, where there is one for it.
    pub code: Option<EvidenceCode>,
    /// The sentence; empty if there is nothing to say.
    pub text: String,
}

/// Why an attempt or a worker ended, where that was not the job's own doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvidenceCode {
    /// The worker shut down or drained.
    Drained,
    /// The worker's guardian was killed; its engine ended what ran, and said so.
    GuardianKilled,
    /// The worker's engine was killed or crashed, and its guardian proved that nothing of it runs;
    /// or a part of the engine crashed, and the engine ended what ran and said so.
    EngineKilled,
    /// The worker was killed whole: its connection was closed and did not come back.
    WorkerKilled,
    /// The worker stood still: its connection lived on and nothing was said, or it found out
    /// from its clock.
    Frozen,
    /// The lease was not renewed in time.
    Lease,
    /// The worker lost the process that held the job, as when it is killed from outside.
    ShimLost,
    /// The store was restored from a backup: its workers hold nothing of it any more.
    Restored,
    /// The kernel ended the job for want of memory.
    Oom,
    /// The worker's host could not run it: no process, descriptor, interpreter or disk space.
    Host,
    /// The worker gave it back before it had started.
    HandedBack,
    /// The worker that it was claimed for does not hold it: it never received it, or lost it.
    NotHeld,
}

impl EvidenceCode {
    /// Every code.
    pub const ALL: [Self; 12] = [
        Self::Drained,
        Self::GuardianKilled,
        Self::EngineKilled,
        Self::WorkerKilled,
        Self::Frozen,
        Self::Lease,
        Self::ShimLost,
        Self::Restored,
        Self::Oom,
        Self::Host,
        Self::HandedBack,
        Self::NotHeld,
    ];

    /// Returns the word for the code in the store, the API and the session.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::GuardianKilled => "guardian_killed",
            Self::EngineKilled => "engine_killed",
            Self::WorkerKilled => "worker_killed",
            Self::Frozen => "frozen",
            Self::Lease => "lease",
            Self::ShimLost => "shim_lost",
            Self::Restored => "restored",
            Self::Oom => "oom",
            Self::Host => "host",
            Self::HandedBack => "handed_back",
            Self::NotHeld => "not_held",
        }
    }

    /// Returns the code called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

impl Evidence {
    /// Evidence with a word for it.
    #[must_use]
    pub fn of(code: EvidenceCode, text: impl Into<String>) -> Self {
        Self { code: Some(code), text: text.into() }
    }

    /// Returns the word, if there is one.
    #[must_use]
    pub fn word(&self) -> Option<&'static str> {
        self.code.map(EvidenceCode::as_str)
    }
}

impl Deref for Evidence {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for Evidence {
    fn from(text: String) -> Self {
        Self { code: None, text }
    }
}

impl From<&str> for Evidence {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&Self> for Evidence {
    fn from(evidence: &Self) -> Self {
        evidence.clone()
    }
}
