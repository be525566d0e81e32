//! Live counts: how many jobs each class has in each state, without counting them.
//!
//! A store keeps them as rows, one for each class (and server, where several write), and
//! changes them in the transaction that moves the jobs: one statement for all classes that a
//! batch touched. So they are exact after every batch, and no total needs a scan.
//!
//! What a move changes is said here, once for all stores:
//!
//! ```text
//! stored  +to              moved  -from +to, and `started` with it
//! deleted -state           dead letter  +reason when made, -reason when gone
//! ```
//!
//! A claimable job counts in the class that it is claimed from (its own, or that one's
//! isolated twin), any other job in its own. A cancelled job whose processes are awaited is
//! cancelled.
//!
//! Claimable jobs are also counted by the second since which they have been claimable. The first
//! second of a queue that counts any says how long its oldest job has waited, however many classes
//! there are.

use std::collections::BTreeMap;

use outlast_core::job::{DeadLetterReason, Hold, State, Transition};
use outlast_core::queue::WAITING;
use outlast_core::time::Timestamp;

use crate::command::{ClassId, ClassKey};

/// The columns of a tally, in the order of [`Counts::values`].
pub const COLUMNS: [&str; 11] = [
    "scheduled",
    "available",
    "pending",
    "active",
    "completed",
    "retryable",
    "cancelled",
    "discarded",
    "started",
    "exhausted",
    "abandoned",
];

const STARTED: usize = 8;
const EXHAUSTED: usize = 9;
const ABANDONED: usize = 10;

/// How many jobs of a class are where; or by how much that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([i64; COLUMNS.len()]);

impl Counts {
    /// Returns the counts in the order of [`COLUMNS`].
    #[must_use]
    pub const fn of(values: [i64; COLUMNS.len()]) -> Self {
        Self(values)
    }

    /// Returns them in the order of [`COLUMNS`].
    #[must_use]
    pub const fn values(&self) -> &[i64; COLUMNS.len()] {
        &self.0
    }

    /// Returns how many jobs are in a state.
    #[must_use]
    pub fn state(&self, state: State) -> u64 {
        self.at(column_of(state))
    }

    /// Returns how many are in any of these states.
    #[must_use]
    pub fn states(&self, states: &[State]) -> u64 {
        states.iter().map(|state| self.state(*state)).sum()
    }

    /// Returns how many active jobs are known to have started.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.at(STARTED)
    }

    /// Returns how many jobs are dead letters.
    #[must_use]
    pub fn dead_letters(&self) -> u64 {
        self.at(EXHAUSTED) + self.at(ABANDONED)
    }

    /// Returns how many of these are so because their attempts were used up.
    #[must_use]
    pub fn exhausted(&self) -> u64 {
        self.at(EXHAUSTED)
    }

    /// Returns how many dead letters are so after losses.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.at(ABANDONED)
    }

    /// Returns whether there is nothing to count.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// Adds others.
    pub fn add(&mut self, others: &Self) {
        for (count, other) in self.0.iter_mut().zip(others.0) {
            *count += other;
        }
    }

    /// Returns by how many more jobs wait, if these counts are changes.
    #[must_use]
    pub fn more_waiting(&self) -> i64 {
        WAITING.iter().filter_map(|state| self.0.get(column_of(*state))).sum()
    }

    fn at(&self, column: usize) -> u64 {
        self.0.get(column).copied().and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    fn change(&mut self, column: usize, by: i64) {
        if let Some(count) = self.0.get_mut(column) {
            *count += by;
        }
    }
}

const fn column_of(state: State) -> usize {
    match state {
        State::Scheduled => 0,
        State::Available => 1,
        State::Pending => 2,
        State::Active => 3,
        State::Completed => 4,
        State::Retryable => 5,
        State::Cancelled => 6,
        State::Discarded => 7,
    }
}

const fn place_of_letter(reason: DeadLetterReason) -> usize {
    match reason {
        DeadLetterReason::Exhausted => EXHAUSTED,
        DeadLetterReason::PoisonSuspect | DeadLetterReason::AtMostOnce => ABANDONED,
    }
}

/// A class with its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCounts {
    /// Its number.
    pub id: ClassId,
    /// What it routes.
    pub key: ClassKey,
    /// How many jobs of it are where.
    pub counts: Counts,
}

/// The number of a second, by which claimable jobs are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Second(pub i64);

impl Second {
    /// Returns the second that a time is in.
    #[must_use]
    pub const fn of(at: Timestamp) -> Self {
        Self(at.0.div_euclid(1000))
    }

    /// Returns when it began.
    #[must_use]
    pub const fn start(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(1000))
    }
}

/// By how much the number of claimable jobs of a class changes that have been so since a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyChange {
    /// The class that they are claimed from.
    pub class: ClassId,
    /// Since when they have been claimable.
    pub second: Second,
    /// How many more there are.
    pub more: i64,
}

/// What a tally must know of a job that moves.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Where it counts: the class it is claimable in, else its own.
    pub class: ClassId,
    /// Its state.
    pub state: State,
    /// Since when it has been claimable, if it is.
    pub claimable_since: Option<Timestamp>,
    /// Whether it is active and stored as started.
    pub started: bool,
    /// Why it is a dead letter, if it is.
    pub letter: Option<DeadLetterReason>,
}

/// By how much a batch changes the tallies.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    classes: BTreeMap<ClassId, Counts>,
    ready: BTreeMap<(ClassId, Second), i64>,
}

impl Changes {
    /// A job is stored at a time.
    pub fn stored(&mut self, class: ClassId, state: State, now: Timestamp) {
        self.add(class, column_of(state), 1);
        if state == State::Available {
            self.add_ready(class, now, 1);
        }
    }

    /// A job moves at a time; `class` is where it counts then.
    pub fn moved(&mut self, before: &Before, class: ClassId, step: &Transition, now: Timestamp) {
        self.add(before.class, column_of(before.state), -1);
        self.add(class, column_of(step.to), 1);
        if let Some(since) = before.claimable_since {
            self.add_ready(before.class, since, -1);
        }
        if step.to == State::Available {
            self.add_ready(class, now, 1);
        }
        if before.started {
            self.add(before.class, STARTED, -1);
        }
        let starts = match step.hold {
            Hold::Take(holder) | Hold::Keep(holder) => holder.started.is_some(),
            Hold::None | Hold::Drop(_) => false,
        };
        if starts && step.to == State::Active {
            self.add(class, STARTED, 1);
        }
        if let Some(reason) = before.letter {
            self.add(before.class, place_of_letter(reason), -1);
        }
        if let Some(reason) = step.dead_letter {
            self.add(class, place_of_letter(reason), 1);
        }
    }

    /// A job is no longer a dead letter, and keeps its state.
    pub fn letter_gone(&mut self, class: ClassId, reason: DeadLetterReason) {
        self.add(class, place_of_letter(reason), -1);
    }

    /// An ended job is deleted; it was no dead letter.
    pub fn deleted(&mut self, class: ClassId, state: State) {
        self.add(class, column_of(state), -1);
    }

    /// Whether something of a class changes.
    #[must_use]
    pub fn touch(&self, class: ClassId) -> bool {
        self.classes.get(&class).is_some_and(|counts| !counts.is_zero())
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns by how many more jobs wait in each class that has changed.
    pub fn more_waiting(&self) -> impl Iterator<Item = (ClassId, i64)> {
        self.classes.iter().map(|(class, counts)| (*class, counts.more_waiting()))
    }

    /// Takes what has changed, by class.
    pub fn take(&mut self) -> Vec<(ClassId, Counts)> {
        let all = std::mem::take(&mut self.classes);
        all.into_iter().filter(|(_, counts)| !counts.is_zero()).collect()
    }

    /// Takes what has changed of claimable jobs, by class and second.
    pub fn take_ready(&mut self) -> Vec<ReadyChange> {
        let all = std::mem::take(&mut self.ready).into_iter().filter(|(_, more)| *more != 0);
        all.map(|((class, second), more)| ReadyChange { class, second, more }).collect()
    }

    fn add(&mut self, class: ClassId, column: usize, by: i64) {
        self.classes.entry(class).or_default().change(column, by);
    }

    fn add_ready(&mut self, class: ClassId, since: Timestamp, by: i64) {
        *self.ready.entry((class, Second::of(since))).or_default() += by;
    }
}
