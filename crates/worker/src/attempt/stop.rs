//! Ending a tree step by step: who asked first, and what comes next if nothing happens.
//!
//! ```text
//! Idle ──stop──▶ Asked(SIGTERM) ──kill_after──▶ Killed(SIGKILL by the shim)
//!      ──main process ended or kill_now──────▶ Killed ──1 s──▶ Forced ──5 s in all──▶ GivenUp
//! ```
//!
//! Plain state with time as an argument; the caller sends what a step says.

use std::time::Duration;

use outlast_core::limits;
use outlast_core::time::BootTime;
use tokio::time::Instant;

use super::end::EndKind;

/// How long the shim has to report an empty tree before it is bypassed.
const FORCE_AFTER: Duration = Duration::from_secs(1);

/// What a handle may ask for.
#[derive(Debug)]
pub(super) enum Command {
    Cancel,
    Interrupt,
    /// SIGTERM, and all the time that is left.
    Ask,
    KillNow,
    Deadline(BootTime),
}

/// Why we are ending it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    TimedOut,
    Cancelled,
    Interrupted,
    DeadlinePassed,
}

impl Cause {
    pub(super) fn into_kind(self) -> EndKind {
        match self {
            Self::TimedOut => EndKind::TimedOut,
            Self::Cancelled => EndKind::Cancelled,
            Self::Interrupted => EndKind::Interrupted,
            Self::DeadlinePassed => EndKind::DeadlinePassed,
        }
    }
}

/// What must be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Tell the shim to send SIGTERM.
    Terminate,
    /// Tell the shim to send SIGKILL.
    Kill,
    /// Kill past the shim, which does not answer.
    Force,
    /// Report that the tree would not end.
    GiveUp,
}

/// How far the ending has come.
#[derive(Debug)]
pub(super) struct KillSequence {
    cause: Option<Cause>,
    next: Option<(Instant, Step)>,
    kill_after: Duration,
}

impl KillSequence {
    pub(super) fn new(kill_after: Duration) -> Self {
        Self { cause: None, next: None, kill_after }
    }

    /// The first reason given, which is the one that counts.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// When the next step is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next.map(|(at, _)| at)
    }

    /// When it will be given up, if the last resort was used already.
    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.next.filter(|(_, step)| *step == Step::GiveUp).map(|(at, _)| at)
    }

    /// Begins a polite end. A second reason changes nothing.
    pub(super) fn stop(&mut self, cause: Cause, now: Instant) -> Option<Step> {
        if self.cause.is_some() || self.next.is_some() {
            return None;
        }
        self.cause = Some(cause);
        self.next = Some((now + self.kill_after, Step::Kill));
        Some(Step::Terminate)
    }

    /// Ends at once, cutting a polite end short.
    pub(super) fn kill(&mut self, cause: Cause, now: Instant) -> Option<Step> {
        self.cause.get_or_insert(cause);
        match self.next {
            None | Some((_, Step::Terminate | Step::Kill)) => {
                self.next = Some((now + FORCE_AFTER, Step::Force));
                Some(Step::Kill)
            }
            Some((_, Step::Force | Step::GiveUp)) => None,
        }
    }

    /// Notes that the main process ended: the shim is killing the rest without being told.
    pub(super) fn main_ended(&mut self, now: Instant) {
        if matches!(self.next, None | Some((_, Step::Terminate | Step::Kill))) {
            self.next = Some((now + FORCE_AFTER, Step::Force));
        }
    }

    /// Takes the step that is due and arms the one after it.
    pub(super) fn advance(&mut self, now: Instant) -> Option<Step> {
        let (_, step) = self.next.filter(|(at, _)| *at <= now)?;
        let confirm = Duration::from_millis(limits::KILL_CONFIRM_MAX.as_millis());
        self.next = match step {
            Step::Terminate => Some((now + self.kill_after, Step::Kill)),
            Step::Kill => Some((now + FORCE_AFTER, Step::Force)),
            Step::Force => Some((now + confirm.saturating_sub(FORCE_AFTER), Step::GiveUp)),
            Step::GiveUp => None,
        };
        Some(step)
    }
}
