//! Which classes a store forgets: those without a job, so that invented names do not pile up.
//!
//! A job always counts in its own class or in that one's isolated twin, so the two go together.
//! The class with the highest number stays: the next one is numbered after it, and no number is
//! used twice. A name that comes back gets a new number.

use outlast_store::command::ClassId;
use outlast_store::tally::Changes;

/// How many classes one prune looks at. The next prune goes on behind them.
pub const LOOKED_MAX: i64 = 1_000;

/// A class that a prune looks at.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// Its number.
    pub id: ClassId,
    /// Whether it is a twin: then its class decides about both.
    pub isolated: bool,
    /// Its isolated twin, if there is one.
    pub twin: Option<ClassId>,
    /// The sum of all live counts of both.
    pub jobs: i64,
}

/// A class without jobs, and its twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// Its number.
    pub id: ClassId,
    /// Its isolated twin, if there is one.
    pub twin: Option<ClassId>,
}

impl Empty {
    /// Returns the numbers of both.
    pub fn ids(self) -> impl Iterator<Item = ClassId> {
        std::iter::once(self.id).chain(self.twin)
    }
}

/// Returns the classes that may go. `latest` is the highest number there is, and `changes` what
/// the batch under way has yet to count.
#[must_use]
pub fn empty(looked: &[Looked], latest: ClassId, changes: &Changes) -> Vec<Empty> {
    looked
        .iter()
        .filter(|class| !class.isolated && class.jobs == 0)
        .map(|class| Empty { id: class.id, twin: class.twin })
        .filter(|class| class.ids().all(|id| id != latest && !changes.touch(id)))
        .collect()
}

/// Returns behind which class the next prune begins to look.
#[must_use]
pub fn next(looked: &[Looked]) -> ClassId {
    let full = i64::try_from(looked.len()).is_ok_and(|count| count >= LOOKED_MAX);
    looked.last().filter(|_| full).map_or(ClassId(0), |last| last.id)
}

#[cfg(test)]
mod tests {
    use outlast_core::job::State;
    use outlast_core::time::Timestamp;

    use super::*;

    fn looked(id: i64, twin: Option<i64>, jobs: i64) -> Looked {
        Looked { id: ClassId(id), isolated: false, twin: twin.map(ClassId), jobs }
    }

    #[test]
    fn only_classes_without_jobs_go_and_never_the_latest() {
        let mut changes = Changes::default();
        changes.stored(ClassId(4), State::Available, Timestamp(1));
        let twin = Looked { isolated: true, ..looked(6, None, 0) };
        let all = [
            looked(1, None, 0),
            looked(2, Some(6), 0),
            looked(3, None, 1),
            looked(4, None, 0),
            looked(5, Some(9), 0),
            twin,
        ];
        let gone: Vec<_> =
            empty(&all, ClassId(9), &changes).into_iter().flat_map(Empty::ids).collect();
        assert_eq!(gone, [1, 2, 6].map(ClassId));
    }

    #[test]
    fn look_begins_again_after_the_last_class() {
        let full: Vec<_> = (1..=LOOKED_MAX).map(|id| looked(id, None, 1)).collect();
        assert_eq!(next(&full), ClassId(LOOKED_MAX));
        assert_eq!((next(&full[1..]), next(&[])), (ClassId(0), ClassId(0)));
    }
}
