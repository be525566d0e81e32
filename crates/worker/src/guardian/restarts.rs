//! Whether a dead engine is followed by another, and how soon.
//!
//! The first restart comes at once, as most deaths are single events. An engine that dies again and
//! again has a cause that a restart does not remove, so the guardian waits longer each time and then
//! gives up: the supervisor of the worker sees the exit code, and the log says the reason.

use std::time::Duration;

use outlast_core::time::{BootTime, Span};

use super::{CLEAN, FAULT, NOT_ALLOWED, USAGE};

/// How many ends within [`WINDOW`] are one too many.
pub(super) const ENDS_MAX: usize = 5;

/// For how long an end counts.
pub(super) const WINDOW: Span = Span::from_secs(60);

/// Pause before the first restart; each further one within [`WINDOW`] is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What the worker was asked to do; it holds for every engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) terminations: u32,
    /// By SIGTSTP, and not by SIGCONT since.
    pub(super) quiet: bool,
    /// By the server, as far as engines said.
    pub(super) by_server: ByServer,
    /// Whether any engine has had an identity.
    pub(super) registered: bool,
}

/// What the server has ordered the worker, as far as its guardian must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ByServer {
    /// To go on, or to be quiet: each engine learns that from the server.
    #[default]
    Stay,
    /// To drain: no other engine is to follow.
    Drain,
}

/// How an engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EngineEnd {
    /// The exit code that it would give the worker.
    pub(super) code: i32,
    /// Whether it exited with that code itself: it was not killed, and has not crashed.
    pub(super) by_itself: bool,
}

/// What follows the end of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The worker ends with this code.
    Exit(i32),
    /// The same, as it drained by order: its supervisor must not start it again.
    ExitDrained,
    /// The same, as a restart does not help.
    GiveUp,
    Restart(Duration),
}

/// The ends of engines that count.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    ends: Vec<BootTime>,
}

impl Restarts {
    /// Decides what follows. `asked` is how things stood when the engine ended.
    pub(super) fn after(
        &mut self,
        end: EngineEnd,
        asked: Asked,
        now: BootTime,
        jitter: f64,
    ) -> After {
        let failed = end.by_itself && end.code == FAULT;
        if end.by_itself && matches!(end.code, CLEAN | USAGE | NOT_ALLOWED) {
            return After::Exit(end.code);
        }
        // It says that it cannot start, and no other one has come further.
        if asked.terminations > 0 || failed && !asked.registered {
            return After::Exit(end.code);
        }
        if asked.by_server == ByServer::Drain {
            return if failed { After::Exit(end.code) } else { After::ExitDrained };
        }
        self.ended(now, jitter).map_or(After::GiveUp, After::Restart)
    }

    /// Notes an end. Returns the pause before the next start, or nothing to give up. `jitter`, from 0
    /// to 1, lengthens the pause by up to a half: workers that died of one cause do not all come
    /// back at once.
    fn ended(&mut self, now: BootTime, jitter: f64) -> Option<Duration> {
        self.ends.retain(|end| now.since(*end) < WINDOW);
        self.ends.push(now);
        if self.ends.len() >= ENDS_MAX {
            return None;
        }
        let earlier = u32::try_from(self.ends.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let pause = FIRST_PAUSE * 4_u32.saturating_pow(earlier);
        Some(pause.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime(0).after(Span::from_millis(millis))
    }

    const KILLED: EngineEnd = EngineEnd { code: FAULT, by_itself: false };
    const FAILED: EngineEnd = EngineEnd { code: FAULT, by_itself: true };

    fn after(end: EngineEnd, asked: Asked) -> After {
        Restarts::default().after(end, asked, at(0), 0.0)
    }

    #[test]
    fn another_engine_follows_unless_the_worker_is_to_end_or_could_not_start() {
        let served = Asked { registered: true, ..Asked::default() };
        let terminated = Asked { terminations: 1, ..served };
        let drains = Asked { by_server: ByServer::Drain, ..served };
        let quiet = Asked { quiet: true, ..served };
        let again = After::Restart(FIRST_PAUSE);
        for code in [CLEAN, USAGE, NOT_ALLOWED] {
            let end = EngineEnd { code, by_itself: true };
            for asked in [Asked::default(), served, terminated, drains, quiet] {
                assert_eq!(after(end, asked), After::Exit(code));
            }
        }
        for (end, asked, expected) in [
            (KILLED, Asked::default(), again),
            (KILLED, served, again),
            (KILLED, quiet, again),
            (KILLED, terminated, After::Exit(FAULT)),
            (KILLED, drains, After::ExitDrained),
            (FAILED, Asked::default(), After::Exit(FAULT)),
            (FAILED, served, again),
            (FAILED, terminated, After::Exit(FAULT)),
            (FAILED, drains, After::Exit(FAULT)),
        ] {
            assert_eq!(after(end, asked), expected, "{end:?} {asked:?}");
        }
        let mut restarts = Restarts::default();
        let last = (0..5).map(|nth| restarts.after(KILLED, served, at(nth), 0.0)).last();
        assert_eq!(last, Some(After::GiveUp));
    }

    #[test]
    fn pauses_grow_and_the_fifth_end_within_a_minute_is_the_last() {
        let mut restarts = Restarts::default();
        let pauses: Vec<Option<u128>> = (0..5)
            .map(|nth| restarts.ended(at(nth * 14_900), 0.0).map(|pause| pause.as_millis()))
            .collect();
        assert_eq!(pauses, [Some(100), Some(400), Some(1600), Some(6400), None]);
    }

    #[test]
    fn ends_are_forgotten_after_a_minute() {
        let mut restarts = Restarts::default();
        for nth in 0..100 {
            let pause = restarts.ended(at(nth * 20_000), 0.0);
            assert!(pause.is_some_and(|pause| pause.as_millis() <= 1600), "{nth}: {pause:?}");
        }
        assert_eq!(restarts.ended(at(3_000_000), 0.0), Some(FIRST_PAUSE));
    }

    #[test]
    fn jitter_lengthens_a_pause_by_a_half_at_most() {
        let pause = |jitter| Restarts::default().ended(at(0), jitter).unwrap().as_millis();
        assert_eq!((pause(0.0), pause(0.5), pause(1.0), pause(7.0)), (100, 125, 150, 150));
    }
}
