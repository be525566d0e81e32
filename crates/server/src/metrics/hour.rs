//! What this server did in each minute of the last hour, in memory: pages show it without a question
//! to the store.

use std::collections::VecDeque;

/// Minutes that are kept.
pub(crate) const MINUTES: usize = 60;

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    /// Jobs that were stored.
    pub(crate) enqueued: u64,
    /// Attempts that were given to workers.
    pub(crate) claimed: u64,
    /// Attempts that completed.
    pub(crate) completed: u64,
    /// Attempts that ended by an error or a time limit.
    pub(crate) failed: u64,
    /// Attempts that were lost with their workers.
    pub(crate) lost: u64,
}

impl Happened {
    /// Returns what happened since `before`. Counters never fall.
    const fn since(self, before: Self) -> Self {
        Self {
            enqueued: self.enqueued.saturating_sub(before.enqueued),
            claimed: self.claimed.saturating_sub(before.claimed),
            completed: self.completed.saturating_sub(before.completed),
            failed: self.failed.saturating_sub(before.failed),
            lost: self.lost.saturating_sub(before.lost),
        }
    }
}

/// The last hour, minute by minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hour {
    /// What had happened when the latest minute ended.
    until: Happened,
    minutes: VecDeque<Happened>,
}

impl Hour {
    /// Ends a minute: `all` has happened since the server started.
    pub(crate) fn end_minute(&mut self, all: Happened) {
        self.minutes.push_back(all.since(self.until));
        if self.minutes.len() > MINUTES {
            self.minutes.pop_front();
        }
        self.until = all;
    }

    /// Returns the minutes that ended, the oldest first.
    pub(crate) fn minutes(&self) -> impl ExactSizeIterator<Item = &Happened> {
        self.minutes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Happened, Hour, MINUTES};

    #[test]
    fn minute_holds_what_happened_in_it_and_the_oldest_leaves() {
        let mut hour = Hour::default();
        assert_eq!(hour.minutes().len(), 0);
        let mut all = Happened::default();
        for minute in 0..=MINUTES as u64 {
            all.enqueued += minute;
            all.lost += 1;
            hour.end_minute(all);
        }
        let enqueued: Vec<u64> = hour.minutes().map(|minute| minute.enqueued).collect();
        assert_eq!(enqueued, (1..=MINUTES as u64).collect::<Vec<_>>());
        assert!(hour.minutes().all(|minute| minute.lost == 1 && minute.failed == 0));
    }
}
