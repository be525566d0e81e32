//! Up to which number every job is stored, or never will be.
//!
//! Numbers are drawn from one sequence, and a transaction draws them after it has begun to write. So
//! all transactions that drew a number up to the sequence's last value are among those that run when
//! the next snapshot is taken. Once these have ended, later snapshots show all such jobs that will
//! ever be stored under their first number.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::writer::STATEMENT_LIMIT;

/// How long transactions are waited for: one of an application may run for hours, and stores no job.
/// A batch draws its numbers in the last message that it sends, and PostgreSQL gives each of its
/// statements no more than the limit.
pub(super) const PATIENCE: Duration = STATEMENT_LIMIT.saturating_add(Duration::from_secs(2));
/// Time between looks that are waited for: while some application's transaction runs, what is decided
/// lags behind by no more than this and the patience.
const STEP: Duration = Duration::from_secs(1);

/// What one look at the store says about numbers and transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The last number that was drawn, read before the snapshot was taken.
    pub(super) last: i64,
    /// The snapshot shows all transactions below this one.
    pub(super) xmin: i64,
    /// The snapshot shows no transaction from this one on.
    pub(super) xmax: i64,
    /// When the look began.
    pub(super) at: Instant,
}

/// Up to which number jobs are decided.
#[derive(Debug)]
pub(super) struct Decided {
    upto: i64,
    /// Looks, each of which decides something once all its transactions have ended; the oldest first.
    pending: VecDeque<Seen>,
}

impl Default for Decided {
    fn default() -> Self {
        Self { upto: i64::MIN, pending: VecDeque::new() }
    }
}

impl Decided {
    /// Takes in a look, and returns up to which number its snapshot shows all jobs.
    pub(super) fn observe(&mut self, seen: Seen) -> i64 {
        while let Some(pending) = self.pending.front()
            && (pending.xmax <= seen.xmin || seen.at >= pending.at + PATIENCE)
        {
            self.upto = self.upto.max(pending.last);
            self.pending.pop_front();
        }
        if self.pending.back().is_none_or(|latest| seen.at >= latest.at + STEP) {
            self.pending.push_back(seen);
        }
        self.upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(last: i64, xmin: i64, xmax: i64, at: Instant) -> Seen {
        Seen { last, xmin, xmax, at }
    }

    #[test]
    fn a_number_is_decided_once_the_transactions_that_may_have_drawn_it_have_ended() {
        let (mut decided, now) = (Decided::default(), Instant::now());
        assert_eq!(decided.observe(seen(100, 5, 9, now)), i64::MIN);
        // Transaction 8 still runs, and later looks do not put it off.
        assert_eq!(decided.observe(seen(200, 8, 20, now)), i64::MIN);
        assert_eq!(decided.observe(seen(300, 9, 30, now)), 100);
        assert_eq!(decided.observe(seen(400, 30, 40, now)), 300);
    }

    #[test]
    fn a_transaction_that_runs_for_long_is_not_waited_for() {
        let (mut decided, now) = (Decided::default(), Instant::now());
        decided.observe(seen(100, 5, 9, now));
        assert_eq!(decided.observe(seen(200, 5, 20, now + PATIENCE / 2)), i64::MIN);
        assert_eq!(decided.observe(seen(300, 5, 30, now + PATIENCE)), 100);
    }

    #[test]
    fn what_is_decided_lags_behind_by_little_more_than_the_patience() {
        let (mut decided, now) = (Decided::default(), Instant::now());
        for second in 0..60_u32 {
            let last = i64::from(second);
            let upto = decided.observe(seen(last, 5, 20, now + Duration::from_secs(1) * second));
            let patience = i64::try_from(PATIENCE.as_secs()).unwrap();
            assert_eq!(upto, if last < patience { i64::MIN } else { last - patience });
        }
    }

    #[test]
    fn what_is_decided_stays_decided() {
        let (mut decided, now) = (Decided::default(), Instant::now());
        decided.observe(seen(100, 5, 9, now));
        decided.observe(seen(50, 9, 9, now));
        assert_eq!(decided.observe(seen(60, 9, 9, now)), 100);
    }
}
