//! How long the writer waits: for locks, and for statements. Everything behind a batch waits as
//! long.
//!
//! A batch that met a lock, or one of whose statements took too long, is split by the caller to
//! find the command that is to blame. So for a while after it, the writer waits only briefly.
//!
//! ```text
//! patient ──a statement took too long──▶ brief for some minutes ──▶ patient
//!    ▲                                     │
//!    └──no batch went through in time──────┘
//! ```

use std::time::Duration;

use outlast_store::{Batch, Command};
use tokio::time::Instant;

use crate::connection::{Statement, values};

/// Longest that one statement of a batch may take.
pub(crate) const STATEMENT_LIMIT: Duration = Duration::from_secs(10);
/// How long after a row was locked the writer waits only briefly for locks.
const LOCKS: Duration = Duration::from_secs(5);
/// How long after a statement took too long the writer waits only briefly for statements. A command
/// that is always slow may come back again and again, and costs the others the whole limit once in
/// this time.
const STATEMENTS: Duration = Duration::from_secs(300);
/// After so many batches in a row that did not go through in brief time, PostgreSQL is slow and not
/// a command.
const IN_VAIN_MAX: u32 = 8;
/// How long a statement may take while the writer waits briefly: for each command and job of its
/// batch, and beside that. What looks for its rows itself may look at many.
const BRIEF: Duration = Duration::from_millis(250);
const BRIEF_FOR_LOOKING: Duration = Duration::from_millis(500);
const BRIEF_FOR_EACH: Duration = Duration::from_millis(1);
/// How much longer than a statement a try of a batch may take, and a whole batch than a try.
const SPARE: Duration = Duration::from_secs(1);

/// How long one writer waits.
#[derive(Debug)]
pub(super) struct Patience {
    /// How long a statement may take at most.
    limit: Duration,
    /// Until when locks are awaited only briefly.
    locks: Option<Instant>,
    /// Until when statements are.
    statements: Option<Instant>,
    /// How many batches in a row did not go through in brief time.
    in_vain: u32,
}

impl Patience {
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit, locks: None, statements: None, in_vain: 0 }
    }

    /// Longest that one try of a batch may take before its connection counts as dead: longer than
    /// any of its statements may.
    pub(super) fn of_try(&self) -> Duration {
        self.limit + SPARE
    }

    /// Longest that a batch is tried at all. Nothing is begun after it, so it returns even when
    /// PostgreSQL hangs without a word.
    pub(super) fn of_batch(&self) -> Duration {
        self.of_try() + SPARE
    }

    /// Whether a row was locked recently, so that locks are awaited only briefly.
    pub(super) fn hurries(&self) -> bool {
        self.locks.is_some_and(|until| Instant::now() < until)
    }

    /// Notes that a row was locked; returns whether one was recently.
    pub(super) fn was_locked(&mut self) -> bool {
        let hurries = self.hurries();
        self.locks = Some(Instant::now() + LOCKS);
        hurries
    }

    /// Returns what a statement of a batch may take, if that is less than usual.
    pub(super) fn brief(&self, batch: &Batch) -> Option<Duration> {
        self.brief_at(batch, Instant::now())
    }

    fn brief_at(&self, batch: &Batch, now: Instant) -> Option<Duration> {
        self.statements.filter(|until| now < *until)?;
        brief_for(&batch.commands).filter(|brief| *brief < self.limit)
    }

    /// Notes that a statement took too long; `brief` is what it was given, if that was less than
    /// usual.
    pub(super) fn was_slow(&mut self, brief: Option<Duration>) {
        if brief.is_none() {
            self.statements = Some(Instant::now() + STATEMENTS);
            self.in_vain = 0;
            return;
        }
        self.in_vain += 1;
        if self.in_vain >= IN_VAIN_MAX {
            self.statements = None;
        }
    }

    /// Notes that a batch went through.
    pub(super) const fn went_through(&mut self) {
        self.in_vain = 0;
    }
}

/// Returns how long a statement of a batch may take in brief time; `None` if nothing waits behind
/// the batch.
fn brief_for(commands: &[Command]) -> Option<Duration> {
    let (mut rows, mut looks) = (commands.len(), false);
    for command in commands {
        match command {
            Command::EnqueueAll(jobs) => rows += jobs.len(),
            Command::EnqueueOnce(once) => rows += once.jobs.len(),
            Command::EnqueueArrived(order) => rows += order.jobs.len(),
            Command::Enqueue(_)
            | Command::Start(_)
            | Command::Finish(_)
            | Command::Progress(_)
            | Command::Log(_)
            | Command::Cancel(_)
            | Command::Renew(_) => {}
            Command::Prune(_) | Command::Reset => return None,
            _ => looks = true,
        }
    }
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    let beside = if looks { BRIEF_FOR_LOOKING } else { BRIEF };
    Some(beside + BRIEF_FOR_EACH.saturating_mul(rows))
}

/// Limits what the next statements of a transaction may take.
pub(super) fn limiting(brief: Duration) -> Statement {
    let limit = format!("{}ms", brief.as_millis());
    Statement::new("select set_config('statement_timeout', $1, true)", values![limit])
}

#[cfg(test)]
mod tests {
    use outlast_core::budget::Budgets;
    use outlast_core::time::Span;
    use outlast_store::BatchId;
    use outlast_store::command::Sweep;
    use uuid::Uuid;

    use super::*;

    fn batch(commands: Vec<Command>) -> Batch {
        let id = BatchId { server: Uuid::nil(), n: 1 };
        Batch { id, jitter_seed: 0, budgets: Budgets::DEFAULT, commands }
    }

    #[test]
    fn one_slow_statement_makes_the_writer_brief_for_a_while() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let sweep = || Command::Sweep(Sweep { limit: 1, watched: Span::ZERO });
        let batch = batch(vec![sweep(), sweep()]);
        assert_eq!(patience.brief(&batch), None);
        patience.was_slow(None);
        let brief = patience.brief(&batch);
        assert_eq!(brief, Some(Duration::from_millis(502)));
        // A command that stays slow does not prolong it.
        let over = Instant::now() + STATEMENTS;
        patience.was_slow(brief);
        assert_eq!(patience.brief(&batch), brief);
        assert_eq!(patience.brief_at(&batch, over), None);
    }

    #[test]
    fn writer_is_patient_again_when_nothing_goes_through_in_brief_time() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let batch = batch(Vec::new());
        patience.was_slow(None);
        let brief = patience.brief(&batch);
        (1..IN_VAIN_MAX).for_each(|_| patience.was_slow(brief));
        patience.went_through();
        (1..IN_VAIN_MAX).for_each(|_| patience.was_slow(brief));
        assert_eq!(patience.brief(&batch), brief);
        patience.was_slow(brief);
        assert_eq!(patience.brief(&batch), None);
    }
}
