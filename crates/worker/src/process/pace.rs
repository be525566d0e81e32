//! How often a tree that will not end is looked at.

use rustix::event::Timespec;

/// A fork may have dodged the first SIGKILL, so the second comes soon.
const FIRST_MS: i64 = 20;
/// A process that a disk or a tracer holds may take hours; each look reads all of /proc.
const LONGEST_MS: i64 = 1000;
/// How many checks are made before they become rarer.
const EAGER: u32 = 25;

/// Pauses that become longer.
pub(crate) struct Pace {
    pauses: u32,
    pause_ms: i64,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { pauses: 0, pause_ms: FIRST_MS }
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Timespec {
        self.pauses = self.pauses.saturating_add(1);
        if self.pauses > EAGER {
            self.pause_ms = (self.pause_ms * 2).min(LONGEST_MS);
        }
        Timespec { tv_sec: self.pause_ms / 1000, tv_nsec: self.pause_ms % 1000 * 1_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn a_tree_that_will_not_end_is_looked_at_less_and_less() {
        let mut pace = Pace::new();
        let mut millis = || {
            let pause = pace.next();
            pause.tv_sec * 1000 + pause.tv_nsec / 1_000_000
        };
        let first_second: i64 = (0..25).map(|_| millis()).sum();
        assert_eq!(first_second, 500);
        assert_eq!(
            (0..7).map(|_| millis()).collect::<Vec<_>>(),
            [40, 80, 160, 320, 640, 1000, 1000]
        );
    }
}
