//! What happened to the jobs of each class. Labels are put on when the page is written, so
//! that the hot path handles numbers only.

use std::collections::{BTreeMap, HashMap};

use outlast_core::job::State;
use outlast_core::time::Span;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store::reply::Moved;

use super::histogram::{Histogram, RUN, SHORT, Snapshot, WAIT};

/// Most classes that are counted separately. The jobs of others are counted together.
const CLASSES_MAX: usize = 2_000;
/// Most pairs of queue and type, and most queues, on the page. More are added up under this.
pub(crate) const LABELS_MAX: usize = 200;
pub(crate) const OVERFLOW: &str = "_other";
/// States in which an attempt may leave its job for good.
pub(crate) const ENDS: [State; 3] = [State::Completed, State::Cancelled, State::Discarded];

/// Counts of one class.
#[derive(Debug)]
struct Class {
    enqueued: u64,
    ended: [u64; ENDS.len()],
    retried: u64,
    expired: u64,
    /// Enqueues of which the first job is of this class.
    enqueues: Histogram,
    waits: Histogram,
    runs: [Histogram; ENDS.len()],
}

impl Class {
    fn new() -> Self {
        Self {
            enqueued: 0,
            ended: [0; ENDS.len()],
            retried: 0,
            expired: 0,
            enqueues: Histogram::new(SHORT),
            waits: Histogram::new(WAIT),
            runs: [(); ENDS.len()].map(|()| Histogram::new(RUN)),
        }
    }
}

/// Counts of all classes.
#[derive(Debug, Default)]
pub(crate) struct Series {
    classes: HashMap<ClassId, Class>,
}

/// The counts of a pair of queue and type.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) enqueued: u64,
    pub(crate) ended: [u64; ENDS.len()],
    pub(crate) retried: u64,
    pub(crate) expired: u64,
    pub(crate) enqueues: Snapshot,
    pub(crate) waits: Snapshot,
    pub(crate) runs: [Snapshot; ENDS.len()],
}

/// Queue and type.
pub(crate) type Pair = (String, String);

impl Series {
    fn class(&mut self, id: ClassId) -> &mut Class {
        // Number 0 is no class's.
        let full = self.classes.len() >= CLASSES_MAX && !self.classes.contains_key(&id);
        let id = if full { ClassId(0) } else { id };
        self.classes.entry(id).or_insert_with(Class::new)
    }

    pub(crate) fn enqueued(&mut self, class: ClassId) {
        self.class(class).enqueued += 1;
    }

    pub(crate) fn expired(&mut self, class: ClassId) {
        self.class(class).expired += 1;
    }

    pub(crate) fn enqueue_took(&mut self, class: ClassId, micros: u64) {
        self.class(class).enqueues.observe(micros);
    }

    pub(crate) fn waited(&mut self, class: ClassId, span: Span) {
        self.class(class).waits.observe(span.0);
    }

    pub(crate) fn moved(&mut self, moved: &Moved) {
        if moved.from == moved.state {
            return;
        }
        let class = self.class(moved.class);
        if moved.state == State::Retryable {
            class.retried += 1;
        }
        let Some(end) = ENDS.iter().position(|state| *state == moved.state) else { return };
        if let Some(count) = class.ended.get_mut(end) {
            *count += 1;
        }
        if let (Some(ran), Some(runs)) = (moved.ran, class.runs.get(end)) {
            runs.observe(ran.0);
        }
    }

    /// Adds the classes up by queue and type. A class that `keys` does not name is another's.
    pub(crate) fn sums(&self, keys: &HashMap<ClassId, &ClassKey>) -> BTreeMap<Pair, Sums> {
        let mut sums: BTreeMap<Pair, Sums> = BTreeMap::new();
        let other = || (OVERFLOW.to_owned(), OVERFLOW.to_owned());
        let mut ids: Vec<&ClassId> = self.classes.keys().collect();
        // The older a class, the surer its place: labels must not come and go.
        ids.sort_unstable_by_key(|id| id.0);
        for id in ids {
            let Some(class) = self.classes.get(id) else { continue };
            let pair = keys.get(id).map_or_else(other, |key| {
                let pair = (key.queue.clone(), key.job_type.clone());
                if sums.len() < LABELS_MAX || sums.contains_key(&pair) { pair } else { other() }
            });
            let sum = sums.entry(pair).or_insert_with(|| Sums {
                enqueued: 0,
                ended: [0; ENDS.len()],
                retried: 0,
                expired: 0,
                enqueues: Snapshot::empty(SHORT),
                waits: Snapshot::empty(WAIT),
                runs: [(); ENDS.len()].map(|()| Snapshot::empty(RUN)),
            });
            sum.enqueued += class.enqueued;
            sum.retried += class.retried;
            sum.expired += class.expired;
            sum.enqueues.add(&class.enqueues.snapshot());
            sum.waits.add(&class.waits.snapshot());
            for (at, (ended, runs)) in class.ended.iter().zip(&class.runs).enumerate() {
                if let (Some(sum_ended), Some(sum_runs)) =
                    (sum.ended.get_mut(at), sum.runs.get_mut(at))
                {
                    *sum_ended += ended;
                    sum_runs.add(&runs.snapshot());
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_beyond_the_bound_are_added_up_and_none_is_lost() {
        let mut series = Series::default();
        let keys: Vec<ClassKey> = (0..LABELS_MAX + 50)
            .map(|n| ClassKey {
                queue: format!("q{n}"),
                job_type: "t".into(),
                route: outlast_store::command::Route::Plain,
                tenant: None,
                isolated: false,
            })
            .collect();
        let named: HashMap<ClassId, &ClassKey> = keys
            .iter()
            .enumerate()
            .map(|(n, key)| (ClassId(i64::try_from(n).unwrap() + 1), key))
            .collect();
        for id in named.keys() {
            series.enqueued(*id);
            series.waited(*id, Span(40));
        }
        let sums = series.sums(&named);
        assert_eq!(sums.len(), LABELS_MAX + 1);
        assert_eq!(sums[&(OVERFLOW.into(), OVERFLOW.into())].enqueued, 50);
        let waits: u64 = sums.values().map(|sum| sum.waits.count()).sum();
        assert_eq!(waits, keys.len() as u64);
    }
}
