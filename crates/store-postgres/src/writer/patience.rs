//! How long the writer waits: for locks, and for statements. Everything behind a batch waits as
//! long.
//!
//! A batch that met a lock, or one of whose statements took too long, is split by the caller to
//! find the command that is to blame. So for a while after it, the writer waits only briefly.
//!
//! ```text
//! patient ──a statement took too long──▶ brief for a while ──▶ patient
//!    ▲                                     │
//!    └──no batch went through in time──────┘
//! ```
//!
//! A command that took too long alone in brief time gets longer at its next try ([`slow_ones`]). One
//! that the whole limit was too short for gets no more than that for a while, in patient time too.

mod slow_ones;

use std::time::Duration;

use outlast_store::error::ChosenJob;
use outlast_store::{Batch, Command};
use tokio::time::Instant;

use crate::connection::{Statement, values};
use slow_ones::SlowOnes;

/// Longest that one statement of a batch may take.
pub(crate) const STATEMENT_LIMIT: Duration = Duration::from_secs(10);
/// How long after a row was locked the writer waits only briefly for locks.
const LOCKS: Duration = Duration::from_secs(5);
/// How long after a statement took too long the writer waits only briefly for statements. It is
/// twice as long each time if it happens again soon: a command that is always slow may come back
/// again and again, and costs the others the whole limit a few times in the longest such time.
const STATEMENTS: Duration = Duration::from_secs(30);
const STATEMENTS_MAX: Duration = Duration::from_secs(300);
/// After so many batches in a row that did not go through in brief time, PostgreSQL is slow and not
/// a command.
const IN_VAIN_MAX: u32 = 8;
/// How long a statement may take while the writer waits briefly: for each command and job of its
/// batch, and beside that. What looks for its rows itself may look at many.
const BRIEF: Duration = Duration::from_millis(250);
const BRIEF_FOR_LOOKING: Duration = Duration::from_millis(500);
const BRIEF_FOR_EACH: Duration = Duration::from_millis(1);
/// Longest that a claim gets in brief time when it found its jobs, and taking one of them is slow: the
/// others are claimed without it.
const SLOW_JOB_MAX: Duration = Duration::from_secs(2);
/// How much longer than a statement a try of a batch may take, and a whole batch than a try.
const SPARE: Duration = Duration::from_secs(1);

/// How long one writer waits.
#[derive(Debug)]
pub(super) struct Patience {
    /// How long a statement may take at most.
    limit: Duration,
    /// Until when locks are awaited only briefly.
    locks: Option<Instant>,
    /// Until when statements are, and for how long altogether.
    statements: Option<Instant>,
    period: Duration,
    /// What commands that were slow alone get.
    slow_ones: SlowOnes,
    /// How many batches in a row did not go through in brief time, but for commands that are known
    /// to be slow.
    in_vain: u32,
    /// When a batch last went through.
    through: Option<Instant>,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            locks: None,
            statements: None,
            period: STATEMENTS,
            slow_ones: SlowOnes::default(),
            in_vain: 0,
            through: None,
        }
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
        if !self.is_brief(batch, now) {
            return None;
        }
        let brief = brief_for(&batch.commands)?;
        let brief = self.slow_ones.limit_for(&batch.commands, brief, now);
        (brief < self.limit).then_some(brief)
    }

    fn is_brief(&self, batch: &Batch, now: Instant) -> bool {
        self.statements.is_some_and(|until| now < until)
            || self.slow_ones.are_spent(&batch.commands, now)
            || self.slow_ones.expect_slow_job(&batch.commands, now)
    }

    /// Notes that a statement took too long; `brief` is what it was given, if that was less than
    /// usual.
    pub(super) fn was_slow(&mut self, tried: &Tried<'_>, brief: Option<Duration>) {
        self.was_slow_at(tried, brief, Instant::now());
    }

    fn was_slow_at(&mut self, tried: &Tried<'_>, brief: Option<Duration>, now: Instant) {
        let batch = tried.batch;
        let given = brief.unwrap_or(self.limit);
        let is_brief = self.is_brief(batch, now);
        let were_known = self.slow_ones.know_all(&batch.commands);
        let alone = match batch.commands.as_slice() {
            [alone] if is_brief => Some(alone),
            _ => None,
        };
        let slow_job = tried.is_slow_for_a_job();
        let most = if slow_job { self.limit.min(SLOW_JOB_MAX) } else { self.limit };
        let grew = alone.is_some_and(|it| self.slow_ones.failed(it, given, most, now));
        // Commands that are known to be slow say nothing of PostgreSQL, as long as others go through.
        let is_new = !were_known || self.through.is_none_or(|at| now >= at + STATEMENTS);
        if brief.is_none() && !grew {
            self.begin_brief(now);
        } else if is_new {
            self.in_vain += 1;
            if self.in_vain >= IN_VAIN_MAX {
                self.statements = None;
            }
        }
        if slow_job {
            self.slow_ones.met_slow_job(now);
        }
    }

    fn begin_brief(&mut self, now: Instant) {
        let again = self.statements.is_some_and(|until| now < until + STATEMENTS_MAX);
        if again {
            self.period = (self.period * 2).min(STATEMENTS_MAX);
        } else {
            self.period = STATEMENTS;
            self.slow_ones = SlowOnes::default();
        }
        self.statements = Some(now + self.period);
        self.in_vain = 0;
    }

    /// Notes that a batch went through, and how long it took.
    pub(super) fn went_through(&mut self, batch: &Batch, took: Duration) {
        self.in_vain = 0;
        self.through = Some(Instant::now());
        if let [alone] = batch.commands.as_slice() {
            self.slow_ones.went_through(alone, took);
        }
    }
}

/// A batch that took too long, and the jobs that its claims had chosen by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried<'a> {
    pub(super) batch: &'a Batch,
    pub(super) chosen: &'a [ChosenJob],
}

impl Tried<'_> {
    /// Whether it consists of claims that had chosen their jobs: what took too long was to take them.
    fn is_slow_for_a_job(&self) -> bool {
        let is_claim = |command: &Command| matches!(command, Command::Claim(_));
        !self.chosen.is_empty() && self.batch.commands.iter().all(is_claim)
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
            Command::WriteSchedule(write) => {
                rows += write.jobs.len();
                looks = true;
            }
            Command::WriteWorkflow(write) => {
                rows += write.jobs.len() + write.items.len() + write.started.len();
                looks = true;
            }
            Command::WriteOperation(write) => {
                rows += write.orders.len();
                looks = true;
            }
            Command::Enqueue(_)
            | Command::Start(_)
            | Command::Finish(_)
            | Command::Progress(_)
            | Command::Log(_)
            | Command::NoteSkew(_)
            | Command::Order(_)
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

    fn tried(batch: &Batch) -> Tried<'_> {
        Tried { batch, chosen: &[] }
    }

    fn sweep() -> Command {
        Command::Sweep(Sweep { limit: 1, watched: Span::ZERO })
    }

    #[test]
    fn one_slow_statement_makes_the_writer_brief_for_a_while() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let batch = batch(vec![sweep(), sweep()]);
        let now = Instant::now();
        assert_eq!(patience.brief_at(&batch, now), None);
        patience.was_slow_at(&tried(&batch), None, now);
        let brief = patience.brief_at(&batch, now);
        assert_eq!(brief, Some(Duration::from_millis(502)));
        // A command that stays slow does not prolong it.
        patience.was_slow_at(&tried(&batch), brief, now);
        assert_eq!(patience.brief_at(&batch, now + STATEMENTS - SPARE), brief);
        assert_eq!(patience.brief_at(&batch, now + STATEMENTS), None);
    }

    #[test]
    fn writer_is_brief_for_longer_when_statements_are_slow_again_soon() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let batch = batch(vec![sweep(), sweep()]);
        let mut now = Instant::now();
        for seconds in [30, 60, 120, 240, 300, 300] {
            patience.was_slow_at(&tried(&batch), None, now);
            let over = now + Duration::from_secs(seconds);
            assert!(patience.brief_at(&batch, over - SPARE).is_some(), "{seconds}");
            assert_eq!(patience.brief_at(&batch, over), None, "{seconds}");
            now = over;
        }
        now += STATEMENTS_MAX;
        patience.was_slow_at(&tried(&batch), None, now);
        assert_eq!(patience.brief_at(&batch, now + STATEMENTS), None);
    }

    /// Claims that took 0.7 s were refused for five minutes after one slow statement.
    #[test]
    fn command_that_is_slow_alone_gets_longer_at_its_next_try() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let alone = batch(vec![sweep()]);
        let now = Instant::now();
        patience.was_slow_at(&tried(&batch(vec![sweep(), sweep()])), None, now);
        let mut given = Vec::new();
        for _ in 0..4 {
            let brief = patience.brief_at(&alone, now);
            given.push(brief.map(|it| it.as_millis()));
            patience.was_slow_at(&tried(&alone), brief, now);
        }
        // The full limit is given once, then nothing more for a while.
        assert_eq!(given, [Some(501), Some(2_004), Some(8_016), None]);
        assert_eq!(patience.brief_at(&alone, now), Some(Duration::from_millis(501)));
    }

    #[test]
    fn batches_get_longer_for_a_command_that_went_through_slowly() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let (alone, both) = (batch(vec![sweep()]), batch(vec![sweep(), sweep()]));
        let now = Instant::now();
        patience.was_slow_at(&tried(&both), None, now);
        let brief = patience.brief_at(&alone, now);
        patience.was_slow_at(&tried(&alone), brief, now);
        // It is not known yet what it needs.
        assert_eq!(patience.brief_at(&both, now), Some(Duration::from_millis(502)));
        patience.went_through(&alone, Duration::from_millis(700));
        assert_eq!(patience.brief_at(&both, now), Some(Duration::from_millis(1_902)));
    }

    /// A dozen producers that retried jobs of one kind made the writer patient again: each of its
    /// batches then took the whole limit.
    #[test]
    fn commands_that_are_known_to_be_slow_make_the_writer_no_more_patient() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let (slow, both) = (batch(vec![sweep()]), batch(vec![sweep(), sweep()]));
        let now = Instant::now();
        patience.was_slow_at(&tried(&both), None, now);
        patience.went_through(&batch(Vec::new()), Duration::ZERO);
        let mut tries = |at: Instant| {
            for _ in 0..IN_VAIN_MAX * 2 {
                for batch in [&slow, &both] {
                    let brief = patience.brief_at(batch, at);
                    patience.was_slow_at(&tried(batch), brief, at);
                }
            }
            patience.brief_at(&slow, at)
        };
        assert_eq!(tries(now), Some(Duration::from_millis(501)));
        // They do not get the whole limit when others have it again.
        let over = now + STATEMENTS;
        assert_eq!(patience.brief_at(&batch(Vec::new()), over), None);
        assert_eq!(patience.brief_at(&slow, over), Some(Duration::from_millis(501)));
    }

    #[test]
    fn writer_is_patient_again_when_nothing_goes_through_in_brief_time() {
        let mut patience = Patience::new(STATEMENT_LIMIT);
        let batch = batch(Vec::new());
        patience.was_slow(&tried(&batch), None);
        let brief = patience.brief(&batch);
        (1..IN_VAIN_MAX).for_each(|_| patience.was_slow(&tried(&batch), brief));
        patience.went_through(&batch, Duration::ZERO);
        (1..IN_VAIN_MAX).for_each(|_| patience.was_slow(&tried(&batch), brief));
        assert_eq!(patience.brief(&batch), brief);
        patience.was_slow(&tried(&batch), brief);
        assert_eq!(patience.brief(&batch), None);
    }
}
