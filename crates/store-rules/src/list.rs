//! How a page of a list is found without reading what is not on it: the same for every store.
//!
//! Jobs are listed newest first. A list is walked in the tables that hold the wanted states,
//! or in the blocks of jobs in which the wanted classes have some, whichever is less; the live
//! counts tell. A walk looks at a bounded number of rows. Where it ends before the page is
//! full, the page is short, and its cursor goes on from there. A list by time only walks what is
//! numbered like the jobs of that time.
//!
//! ```text
//! query + counts ─▶ plan ─▶ Nothing
//!                        ─▶ Blocks: 1,024 jobs each, those in which the classes have some
//!                        ─▶ Sources: tables by state, or what a worker holds and held
//! ```

mod filter;
mod fit;
mod walk;

use std::collections::HashSet;

use outlast_core::job::{DeadLetterReason, State};
use outlast_core::selector::Placement;
use outlast_core::time::Span;
use outlast_store::command::{ClassId, ClassKey, Route};
use outlast_store::query::{JobQuery, LetterFilter};
use outlast_store::tally::{ClassCounts, Counts};

pub use filter::{Dialect, Values};
pub use fit::{Fit, dead_letters, filled, listed};
pub use walk::{Look, Numbers, at_once, cursor, find};

/// Jobs in a block: a class is noted once for each that it has jobs in.
pub const BLOCK_BITS: u32 = 10;
/// Classes whose blocks are put together. More of them are walked with all the others, unless
/// they have few jobs.
pub const CLASSES_MAX: usize = 200;
/// Rows that one page looks at, in steps; each step only if those before found too few.
pub const STEPS: [u32; 4] = [500, 2_000, 6_000, 12_000];
/// Blocks that one page looks at, in steps.
pub const BLOCK_STEPS: [u32; 3] = [2, 8, 24];
/// A table with no more rows than this is looked through in one step.
const FEW: u64 = 5_000;
/// Jobs of a range of ids that are looked at at once; more of them are looked for like others.
pub const IDS_MAX: u64 = 1_000;
/// What is not known from the counts is counted one by one up to here.
const COUNTED_MAX: u32 = 2_000;

/// The times at which jobs were made rise with their numbers, but for this: servers that write side
/// by side take a batch's time first and its numbers later, and a batch is tried for seconds. A list
/// by time looks this much further.
pub const OUT_OF_ORDER: Span = Span::from_secs(30);

/// Numbers that are looked at at once for the next job of the times that are asked for.
pub const SKIP: i64 = 20_000;
/// How often a page does so in vain. An import or a clock that jumped may have left any number of
/// jobs of other times in between.
pub const SKIPS_MAX: u32 = 10;

/// A table to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Claimable jobs.
    Ready,
    /// Jobs that wait for a time or for activation.
    Waiting,
    /// Attempts under way.
    Active,
    /// Ended jobs, completed ones included.
    Ended,
    /// Ended jobs that did not complete.
    Failed,
    /// What a worker holds.
    Held,
    /// Attempts that have ended.
    Attempts,
    /// Dead letters.
    Letters,
    /// All jobs.
    Jobs,
    /// The jobs whose ids are in the range that is asked for, if they are few.
    Ids,
}

/// Where a list is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nowhere: the counts say that there is none.
    Nothing,
    /// In the blocks of the classes.
    Blocks,
    /// In these tables; `true` for one that is looked through in one step.
    Sources(Vec<(Source, bool)>),
}

/// How a list is found, and how many match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where.
    pub way: Way,
    /// The classes that match and have jobs, if some do not match. An isolated twin is among
    /// them with the class that its jobs are of.
    pub classes: Option<Vec<ClassId>>,
    /// Those of them that have claimable jobs.
    pub ready: Vec<ClassId>,
    /// How many match at most.
    pub at_most: u64,
    /// Whether the count is exact.
    pub is_exact: bool,
}

/// What a plan needs of the live counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tallied {
    /// Those of all classes together.
    pub all: Counts,
    /// Those of each class that has what is asked for, if a queue, type or tenant is; else the
    /// claimable jobs of each class that has some, if they are asked for.
    pub classes: Vec<ClassCounts>,
}

impl Tallied {
    /// Picks them from those of all classes.
    #[must_use]
    pub fn of(query: &JobQuery, tally: Vec<ClassCounts>) -> Self {
        let mut all = Counts::default();
        tally.iter().for_each(|class| all.add(&class.counts));
        let classes = tally.into_iter().filter(|class| {
            if is_narrow(query) {
                matches(query, &class.key)
            } else {
                names_claimable(query) && class.counts.state(State::Available) > 0
            }
        });
        Self { all, classes: classes.collect() }
    }
}

/// Whether a queue, type or tenant is asked for.
#[must_use]
pub const fn is_narrow(query: &JobQuery) -> bool {
    query.queue.is_some() || query.job_type.is_some() || query.tenant.is_some()
}

/// Whether claimable jobs are asked for by name.
#[must_use]
pub fn names_claimable(query: &JobQuery) -> bool {
    query.states.contains(&State::Available)
}

impl Plan {
    /// Plans a list. There are `ids` jobs in the range of ids that is asked for, if one is; more
    /// than [`IDS_MAX`] need not be counted.
    #[must_use]
    pub fn of(query: &JobQuery, tallied: &Tallied, ids: u64) -> Self {
        let (narrow, all) = (is_narrow(query), &tallied.all);
        let mut ours = if narrow { Counts::default() } else { *all };
        if narrow {
            tallied.classes.iter().for_each(|class| ours.add(&class.counts));
        }
        let mut at_most = most(query, &ours);
        if query.ids.is_some() && ids <= IDS_MAX {
            at_most = at_most.min(ids);
        }
        let is_exact = query.worker.is_none()
            && !query.looks_inside()
            && query.timed_out.is_none()
            && query.ids.is_none()
            && query.created_from.is_none()
            && query.created_before.is_none()
            && query.letters.is_none_or(|letters| has_count(query, letters))
            && (query.abandoned.is_none() || query.started.is_none());
        let classes = narrow.then(|| families(&tallied.classes));
        let ready = tallied.classes.iter().filter(|class| class.counts.state(State::Available) > 0);
        let way = if at_most == 0 {
            Way::Nothing
        } else if query.ids.is_some() && ids <= IDS_MAX {
            Way::Sources(vec![(Source::Ids, true)])
        } else if query.worker.is_some() {
            Way::Sources(of_worker(query))
        } else {
            let few = classes.as_ref().is_some_and(|classes| {
                classes.len() <= CLASSES_MAX || ours.states(&State::ALL) <= FEW
            });
            let size = if query.letters.is_some() {
                all.dead_letters()
            } else {
                all.states(&wanted(query))
            };
            if few && ours.states(&State::ALL) < size {
                Way::Blocks
            } else if query.letters.is_some() {
                Way::Sources(vec![(Source::Letters, size <= FEW)])
            } else if query.states.is_empty() {
                // Where every row is on the page, the page bounds what is read.
                let all_match = classes.is_none()
                    && !query.looks_inside()
                    && query.ids.is_none()
                    && query.created_from.is_none()
                    && query.created_before.is_none()
                    && query.abandoned.is_none()
                    && query.timed_out.is_none()
                    && query.started.is_none();
                Way::Sources(vec![(Source::Jobs, all_match)])
            } else {
                Way::Sources(sources(query, all))
            }
        };
        Self { way, classes, ready: ready.map(|class| class.id).collect(), at_most, is_exact }
    }

    /// Returns how many match in all, or how that is found.
    #[must_use]
    pub fn total(&self) -> Total {
        if self.is_exact {
            Total::Known(self.at_most)
        } else if self.at_most <= u64::from(COUNTED_MAX) {
            // One more than there may be tells whether the walk saw all.
            let most = usize::try_from(COUNTED_MAX).unwrap_or(usize::MAX);
            Total::ToCount(most.saturating_add(1))
        } else {
            Total::Unknown
        }
    }
}

fn matches(query: &JobQuery, key: &ClassKey) -> bool {
    query.queue.as_ref().is_none_or(|queue| *queue == key.queue)
        && query.job_type.as_ref().is_none_or(|job_type| *job_type == key.job_type)
        && query.tenant.as_ref().is_none_or(|tenant| key.tenant.as_ref() == Some(tenant))
}

/// The classes that have jobs, each with its isolated twin.
fn families(matching: &[ClassCounts]) -> Vec<ClassId> {
    fn family(key: &ClassKey) -> (&str, &str, &Route, Option<&str>, bool, &Placement) {
        let (route, placement) = (&key.route, &key.placement);
        (&key.queue, &key.job_type, route, key.tenant.as_deref(), key.keyed, placement)
    }
    let there = matching.iter().filter(|class| !class.counts.is_zero());
    let there: HashSet<_> = there.map(|class| family(&class.key)).collect();
    let ours = matching.iter().filter(|class| there.contains(&family(&class.key)));
    ours.map(|class| class.id).collect()
}

/// What a worker holds, and what it held.
fn of_worker(query: &JobQuery) -> Vec<(Source, bool)> {
    let in_flight = |state: &State| matches!(state, State::Active | State::Cancelled);
    let states = wanted(query);
    let mut sources = Vec::new();
    if states.iter().any(in_flight) {
        sources.push((Source::Held, true));
    }
    if states.iter().any(|state| *state != State::Active) {
        sources.push((Source::Attempts, false));
    }
    sources
}

/// The states that are wanted, each once.
fn wanted(query: &JobQuery) -> Vec<State> {
    let any = query.states.is_empty();
    State::ALL.into_iter().filter(|state| any || query.states.contains(state)).collect()
}

/// How many of these match, but for what no count tells.
fn most(query: &JobQuery, counts: &Counts) -> u64 {
    let states = wanted(query);
    let all = counts.states(&states);
    let abandoned = if states.contains(&State::Discarded) { counts.abandoned() } else { 0 };
    let started = if states.contains(&State::Active) { counts.started() } else { 0 };
    let matching = |(wanted, these): (Option<bool>, u64)| match wanted {
        Some(true) => these,
        Some(false) => all.saturating_sub(these),
        None => all,
    };
    let letters = match query.letters {
        None => all,
        Some(_) if !states.contains(&State::Discarded) => 0,
        Some(LetterFilter { reason: None, .. }) => counts.dead_letters(),
        Some(LetterFilter { reason: Some(DeadLetterReason::Exhausted), .. }) => counts.exhausted(),
        Some(LetterFilter { reason: Some(_), .. }) => counts.abandoned(),
    };
    let other = matching((query.abandoned, abandoned)).min(matching((query.started, started)));
    all.min(letters).min(other)
}

/// Whether the live counts tell how many dead letters these are.
fn has_count(query: &JobQuery, letters: LetterFilter) -> bool {
    let is_counted = |reason| reason == DeadLetterReason::Exhausted;
    letters.reason.is_none_or(is_counted)
        && letters.from.is_none()
        && letters.before.is_none()
        && query.abandoned.is_none()
        && query.started.is_none()
}

fn sources(query: &JobQuery, all: &Counts) -> Vec<(Source, bool)> {
    let of = |states: &[State]| -> u64 {
        states.iter().filter(|state| query.states.contains(state)).map(|s| all.state(*s)).sum()
    };
    let resting = [State::Scheduled, State::Pending, State::Retryable];
    let failed = [State::Cancelled, State::Discarded];
    let completed = query.states.contains(&State::Completed);
    let sorts = [
        (Source::Ready, of(&[State::Available]), 0),
        (Source::Waiting, of(&resting), all.states(&resting)),
        (Source::Active, of(&[State::Active]), all.state(State::Active)),
        (Source::Failed, if completed { 0 } else { of(&failed) }, all.states(&failed)),
        (
            Source::Ended,
            if completed { of(&[State::Completed]) + of(&failed) } else { 0 },
            all.state(State::Completed) + all.states(&failed),
        ),
    ];
    let there = sorts.into_iter().filter(|(_, wanted, _)| *wanted > 0);
    there.map(|(source, _, size)| (source, size <= FEW)).collect()
}

/// What a walk found, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Numbers of jobs.
    pub seqs: Vec<i64>,
    /// The number above which everything was looked at; `None` when it is the beginning.
    pub down_to: Option<i64>,
}

/// How many match in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// The exact number.
    Known(u64),
    /// They are few enough to be walked, so many at most; [`counted`] makes the count of it.
    ToCount(usize),
    /// Only reading many of them would tell.
    Unknown,
}

/// Counts what a walk of [`Total::ToCount`] found; `None` if it did not see all.
#[must_use]
pub fn counted(walks: Vec<Found>) -> Option<u64> {
    let (all, rest) = page(walks, COUNTED_MAX);
    rest.is_none().then(|| u64::try_from(all.len()).unwrap_or(0))
}

/// Puts walks together into a page: its jobs, and where the next one begins.
#[must_use]
pub fn page(walks: Vec<Found>, limit: u32) -> (Vec<i64>, Option<i64>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let down_to = walks.iter().filter_map(|walk| walk.down_to).max();
    let mut seqs: Vec<i64> = walks.into_iter().flat_map(|walk| walk.seqs).collect();
    seqs.retain(|seq| down_to.is_none_or(|down_to| *seq >= down_to));
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    seqs.dedup();
    let more = seqs.len() > limit;
    seqs.truncate(limit);
    let next = if more { seqs.last().copied() } else { down_to };
    (seqs, next)
}

#[cfg(test)]
mod tests {
    use outlast_core::time::Timestamp;

    use super::*;
    use outlast_store::command::Route;
    use outlast_store::query::Page;
    use outlast_store::tally::COLUMNS;

    /// The jobs of the last hours of a large store once took a scan of all of it.
    #[test]
    fn all_jobs_are_looked_through_at_once_only_if_all_are_on_the_page() {
        let key = ClassKey {
            queue: "q".into(),
            job_type: "t".into(),
            route: Route::Plain,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Default::default(),
        };
        let counts = Counts::of([1_000_000; COLUMNS.len()]);
        let tally = vec![ClassCounts { id: ClassId(1), key, counts }];
        let query = |created_from| JobQuery {
            created_from,
            ..JobQuery::all(Page { limit: 50, cursor: None })
        };
        for (since, at_once) in [(None, true), (Some(Timestamp(1)), false)] {
            let query = query(since);
            let plan = Plan::of(&query, &Tallied::of(&query, tally.clone()), 0);
            assert_eq!(plan.way, Way::Sources(vec![(Source::Jobs, at_once)]));
        }
    }
}
