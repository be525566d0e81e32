//! The worker's own phases: running ⇄ quiet ─▶ draining ─▶ stopping ─▶ stopped.
//!
//! No new claim is taken from the instant a phase other than running is entered. Once
//! draining it goes forward only. Heartbeats go on until `stopped`. Two reasons to be
//! quiet are kept apart, so SIGCONT resumes only what SIGTSTP quieted, and a resume
//! order only what an order quieted.

use std::fmt;

/// Where the worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Takes new work.
    Running,
    /// Takes none, for one reason or both.
    Quiet(QuietBy),
    /// Finishes what it holds, within the grace period.
    Draining,
    /// Ends what is left: its trees got SIGTERM, and get SIGKILL in the end.
    Stopping,
    /// Ends what is left at once: its trees got SIGKILL.
    Forced,
    /// Holds nothing; may exit.
    Stopped,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Quiet(QuietBy::Signal) => "quiet by SIGTSTP",
            Self::Quiet(QuietBy::Order) => "quiet by order",
            Self::Quiet(QuietBy::Both) => "quiet by SIGTSTP and by order",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::Forced => "forced",
            Self::Stopped => "stopped",
        })
    }
}

/// Why a worker is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuietBy {
    /// SIGTSTP.
    Signal,
    /// An order from the server.
    Order,
    /// Both; each must be taken back.
    Both,
}

/// Something that moves a worker through its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StageEvent {
    /// SIGTSTP.
    StopSignal,
    /// SIGCONT.
    ContinueSignal,
    /// SIGTERM or SIGINT.
    TerminateSignal,
    /// The server orders quiet.
    QuietOrder,
    /// The server orders resume.
    ResumeOrder,
    /// The server orders a drain.
    DrainOrder,
    /// The grace period is over.
    GraceOver,
    /// Nothing is held any more.
    Empty,
    /// The guardian is gone: end everything now.
    GuardianGone,
}

/// What the worker must do on entering a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Nothing new.
    None,
    /// Tell the server that no new work is wanted.
    TakeNoWork,
    /// Tell the server that work is wanted again.
    TakeWork,
    /// Take no work, arm the grace timer, let attempts finish.
    Drain,
    /// SIGTERM every tree, SIGKILL what is left after the kill delay.
    EndTrees,
    /// SIGKILL every tree now and hand everything back.
    KillTrees,
    /// Say goodbye and exit.
    Leave,
    /// Exit at once, with the code for a fault.
    ExitNow,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Quiet(QuietBy::Signal),
        Self::Quiet(QuietBy::Order),
        Self::Quiet(QuietBy::Both),
        Self::Draining,
        Self::Stopping,
        Self::Forced,
        Self::Stopped,
    ];

    /// Returns whether a worker in this stage may take new work.
    #[must_use]
    pub const fn takes_work(self) -> bool {
        matches!(self, Self::Running)
    }
}

impl StageEvent {
    /// Every event.
    pub const ALL: [Self; 9] = [
        Self::StopSignal,
        Self::ContinueSignal,
        Self::TerminateSignal,
        Self::QuietOrder,
        Self::ResumeOrder,
        Self::DrainOrder,
        Self::GraceOver,
        Self::Empty,
        Self::GuardianGone,
    ];
}

/// Decides what `event` makes of a worker in `stage`, and what it must then do.
#[must_use]
pub const fn decide(stage: Stage, event: StageEvent) -> (Stage, Act) {
    match stage {
        Stage::Running => running(event),
        Stage::Quiet(by) => quiet(by, event),
        Stage::Draining => draining(event),
        Stage::Stopping => stopping(event),
        Stage::Forced => forced(event),
        Stage::Stopped => stopped(event),
    }
}

const fn running(event: StageEvent) -> (Stage, Act) {
    match event {
        StageEvent::StopSignal => (Stage::Quiet(QuietBy::Signal), Act::TakeNoWork),
        StageEvent::QuietOrder => (Stage::Quiet(QuietBy::Order), Act::TakeNoWork),
        StageEvent::TerminateSignal | StageEvent::DrainOrder => (Stage::Draining, Act::Drain),
        StageEvent::GuardianGone => (Stage::Forced, Act::KillTrees),
        StageEvent::ContinueSignal
        | StageEvent::ResumeOrder
        | StageEvent::GraceOver
        | StageEvent::Empty => (Stage::Running, Act::None),
    }
}

const fn quiet(by: QuietBy, event: StageEvent) -> (Stage, Act) {
    match (event, by) {
        (StageEvent::StopSignal, QuietBy::Order | QuietBy::Both)
        | (StageEvent::QuietOrder, QuietBy::Signal | QuietBy::Both) => {
            (Stage::Quiet(QuietBy::Both), Act::None)
        }
        (StageEvent::ContinueSignal, QuietBy::Signal)
        | (StageEvent::ResumeOrder, QuietBy::Order) => (Stage::Running, Act::TakeWork),
        (StageEvent::ContinueSignal, QuietBy::Both) => (Stage::Quiet(QuietBy::Order), Act::None),
        (StageEvent::ResumeOrder, QuietBy::Both) => (Stage::Quiet(QuietBy::Signal), Act::None),
        (StageEvent::TerminateSignal | StageEvent::DrainOrder, _) => (Stage::Draining, Act::Drain),
        (StageEvent::GuardianGone, _) => (Stage::Forced, Act::KillTrees),
        (StageEvent::StopSignal, QuietBy::Signal)
        | (StageEvent::QuietOrder, QuietBy::Order)
        | (StageEvent::ContinueSignal, QuietBy::Order)
        | (StageEvent::ResumeOrder, QuietBy::Signal)
        | (StageEvent::GraceOver | StageEvent::Empty, _) => (Stage::Quiet(by), Act::None),
    }
}

const fn draining(event: StageEvent) -> (Stage, Act) {
    match event {
        StageEvent::TerminateSignal | StageEvent::GuardianGone => (Stage::Forced, Act::KillTrees),
        StageEvent::GraceOver => (Stage::Stopping, Act::EndTrees),
        StageEvent::Empty => (Stage::Stopped, Act::Leave),
        StageEvent::StopSignal
        | StageEvent::ContinueSignal
        | StageEvent::QuietOrder
        | StageEvent::ResumeOrder
        | StageEvent::DrainOrder => (Stage::Draining, Act::None),
    }
}

const fn stopping(event: StageEvent) -> (Stage, Act) {
    match event {
        StageEvent::TerminateSignal | StageEvent::GuardianGone => (Stage::Forced, Act::KillTrees),
        StageEvent::Empty => (Stage::Stopped, Act::Leave),
        StageEvent::StopSignal
        | StageEvent::ContinueSignal
        | StageEvent::QuietOrder
        | StageEvent::ResumeOrder
        | StageEvent::DrainOrder
        | StageEvent::GraceOver => (Stage::Stopping, Act::None),
    }
}

const fn forced(event: StageEvent) -> (Stage, Act) {
    match event {
        StageEvent::TerminateSignal => (Stage::Forced, Act::ExitNow),
        StageEvent::Empty => (Stage::Stopped, Act::Leave),
        StageEvent::StopSignal
        | StageEvent::ContinueSignal
        | StageEvent::QuietOrder
        | StageEvent::ResumeOrder
        | StageEvent::DrainOrder
        | StageEvent::GraceOver
        | StageEvent::GuardianGone => (Stage::Forced, Act::None),
    }
}

const fn stopped(event: StageEvent) -> (Stage, Act) {
    match event {
        StageEvent::TerminateSignal => (Stage::Stopped, Act::ExitNow),
        StageEvent::StopSignal
        | StageEvent::ContinueSignal
        | StageEvent::QuietOrder
        | StageEvent::ResumeOrder
        | StageEvent::DrainOrder
        | StageEvent::GraceOver
        | StageEvent::Empty
        | StageEvent::GuardianGone => (Stage::Stopped, Act::None),
    }
}

#[cfg(test)]
mod tests;
