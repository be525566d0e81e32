//! Which warm process serves, and when it is replaced. Plain state with time as an argument.
//!
//! ```text
//! absent ──ask──▶ starting ──has_started──▶ serving ──ended, grown, failed──▶ absent
//!    ▲               └─is_unfit, has_failed──▶ not before some time ──┘
//! ```

use std::time::Duration;

use outlast_core::time::BootTime;

use super::backoff::Backoff;

/// Memory by which any process may grow: its allocator keeps some.
const GROWTH_ALWAYS: u64 = 32 << 20;

/// The state of one warm process, or of its absence.
#[derive(Debug, Default)]
pub(super) struct Slot {
    phase: Phase,
    backoff: Backoff,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Absent,
    Starting,
    Serving {
        last_used: BootTime,
    },
}

/// Bytes of memory that are a process's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// When it had imported all.
    pub(super) at_start: u64,
    pub(super) now: u64,
}

/// What an attempt does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Advice {
    /// It is forked.
    Use,
    /// It is executed.
    Execute,
    /// The same, and a process is started for those that follow.
    Start,
    /// It is executed: there are too many processes to start another one.
    TooMany,
}

/// Why a process is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// No attempt has used it for long.
    Idle,
    /// It takes much more memory than at its start.
    Grown,
}

impl Slot {
    /// An attempt asks. `is_full` says that no further process may be started.
    pub(super) fn ask(&mut self, is_full: bool, now: BootTime) -> Advice {
        match self.phase {
            Phase::Serving { .. } => {
                self.phase = Phase::Serving { last_used: now };
                Advice::Use
            }
            Phase::Starting => Advice::Execute,
            Phase::Absent if self.backoff.forbids(now) => Advice::Execute,
            Phase::Absent if is_full => Advice::TooMany,
            Phase::Absent => Advice::Start,
        }
    }

    /// Whether there is a process, or will be.
    pub(super) fn is_taken(&self) -> bool {
        self.phase != Phase::Absent
    }

    /// One is started.
    pub(super) fn starts(&mut self) {
        self.phase = Phase::Starting;
    }

    /// It has imported all.
    pub(super) fn has_started(&mut self, now: BootTime) {
        self.phase = Phase::Serving { last_used: now };
    }

    /// An attempt was forked.
    pub(super) fn has_served(&mut self) {
        self.backoff.reset();
    }

    /// An attempt was not forked, for a reason that may be its own. True if none will be.
    pub(super) fn has_missed(&mut self, now: BootTime) -> bool {
        let is_useless = self.backoff.has_missed(now);
        if is_useless {
            self.phase = Phase::Absent;
        }
        is_useless
    }

    /// Whether it is to end.
    pub(super) fn look(
        &self,
        memory: Option<Memory>,
        idle: Duration,
        now: BootTime,
    ) -> Option<End> {
        let Phase::Serving { last_used } = self.phase else { return None };
        if memory.is_some_and(Memory::has_grown) {
            return Some(End::Grown);
        }
        let unused = Duration::from_millis(now.since(last_used).as_millis());
        (unused >= idle).then_some(End::Idle)
    }

    /// It has ended as it was to.
    pub(super) fn has_ended(&mut self) {
        self.phase = Phase::Absent;
    }

    /// It could not be started, hangs, or has ended by itself.
    pub(super) fn has_failed(&mut self, now: BootTime) {
        self.phase = Phase::Absent;
        self.backoff.has_failed(now);
    }

    /// What it imports does not let it be forked.
    pub(super) fn is_unfit(&mut self, now: BootTime) {
        self.phase = Phase::Absent;
        self.backoff.is_unfit(now);
    }
}

impl Memory {
    fn has_grown(self) -> bool {
        self.now.saturating_sub(self.at_start) > GROWTH_ALWAYS.max(self.at_start / 2)
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::time::Span;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(seconds: u64) -> BootTime {
        BootTime(0).after(Span::from_secs(seconds))
    }

    fn memory(at_start: u64, now: u64) -> Option<Memory> {
        Some(Memory { at_start: at_start * MIB, now: now * MIB })
    }

    fn serving(since: u64) -> Slot {
        let mut slot = Slot::default();
        assert_eq!(slot.ask(false, at(since)), Advice::Start);
        slot.starts();
        slot.has_started(at(since));
        slot
    }

    #[test]
    fn the_first_attempt_starts_one_and_those_after_it_use_it() {
        let mut slot = Slot::default();
        assert!(!slot.is_taken());
        assert_eq!(slot.ask(false, at(1)), Advice::Start);
        slot.starts();
        assert_eq!(slot.ask(false, at(2)), Advice::Execute, "nothing waits");
        slot.has_started(at(3));
        assert_eq!(slot.ask(false, at(4)), Advice::Use);
        assert!(slot.is_taken());
        slot.has_ended();
        assert_eq!(slot.ask(false, at(5)), Advice::Start);
    }

    #[test]
    fn one_that_is_there_is_used_and_none_is_started_when_there_are_too_many() {
        assert_eq!(Slot::default().ask(true, at(1)), Advice::TooMany);
        assert_eq!(serving(1).ask(true, at(1)), Advice::Use);
    }

    #[test]
    fn one_without_attempts_ends_when_it_has_been_idle() {
        let idle = Duration::from_secs(60);
        let mut slot = serving(0);
        assert_eq!(slot.look(None, idle, at(59)), None);
        assert_eq!(slot.ask(false, at(59)), Advice::Use);
        assert_eq!(slot.look(None, idle, at(118)), None, "it counts from the last attempt");
        assert_eq!(slot.look(None, idle, at(119)), Some(End::Idle));
        assert_eq!(Slot::default().look(None, idle, at(1000)), None);
    }

    #[test]
    fn one_that_has_grown_is_to_end() {
        let idle = Duration::from_secs(60);
        for (at_start, fits, grown) in [(10, 42, 43), (200, 300, 301)] {
            assert_eq!(serving(0).look(memory(at_start, fits), idle, at(1)), None);
            assert_eq!(serving(0).look(memory(at_start, grown), idle, at(1)), Some(End::Grown));
        }
    }

    #[test]
    fn one_that_fails_or_is_of_no_use_is_not_started_again_at_once() {
        let mut slot = serving(0);
        slot.has_failed(at(0));
        assert!(!slot.is_taken());
        assert_eq!(slot.ask(false, at(0)), Advice::Execute);
        assert_eq!(slot.ask(false, at(1)), Advice::Start);
        let mut slot = serving(0);
        slot.is_unfit(at(0));
        assert_eq!(slot.ask(false, at(599)), Advice::Execute);
        assert_eq!(slot.ask(false, at(600)), Advice::Start);
    }
}
