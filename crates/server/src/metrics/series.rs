//! What happened to the jobs of each class. Labels are put on when the page is written, so
//! that the hot path handles numbers only. A class keeps its labels for as long as the server
//! runs, also when the store has forgotten it: no counter may ever fall.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use outlast_core::job::State;
use outlast_core::time::Span;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store::reply::Moved;

use super::histogram::{Histogram, RUN, SHORT, Snapshot, WAIT};

/// Most classes that are counted separately. The jobs of others are counted together.
const CLASSES_MAX: usize = 2_000;
/// Stands for these others: no class has this number.
const UNCOUNTED: ClassId = ClassId(0);
/// Most pairs of queue and type, and most queues, on the page. More are added up under this.
pub(crate) const LABELS_MAX: usize = 200;
pub(crate) const OVERFLOW: &str = "_other";
/// States in which an attempt may leave its job for good.
pub(crate) const ENDS: [State; 3] = [State::Completed, State::Cancelled, State::Discarded];

/// Counts of one class.
#[derive(Debug)]
struct Class {
    /// What it is shown under, if it was on a page.
    shown: Option<Pair>,
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
            shown: None,
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
    /// Counts of classes that the store has forgotten.
    kept: BTreeMap<Pair, Sums>,
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

impl Sums {
    fn zero() -> Self {
        Self {
            enqueued: 0,
            ended: [0; ENDS.len()],
            retried: 0,
            expired: 0,
            enqueues: Snapshot::empty(SHORT),
            waits: Snapshot::empty(WAIT),
            runs: [(); ENDS.len()].map(|()| Snapshot::empty(RUN)),
        }
    }

    fn add(&mut self, class: &Class) {
        self.enqueued += class.enqueued;
        self.retried += class.retried;
        self.expired += class.expired;
        self.enqueues.add(&class.enqueues.snapshot());
        self.waits.add(&class.waits.snapshot());
        for (sum, ended) in self.ended.iter_mut().zip(&class.ended) {
            *sum += ended;
        }
        for (sum, runs) in self.runs.iter_mut().zip(&class.runs) {
            sum.add(&runs.snapshot());
        }
    }
}

/// Queue and type.
pub(crate) type Pair = (String, String);

impl Series {
    fn class(&mut self, id: ClassId) -> &mut Class {
        let full = self.classes.len() >= CLASSES_MAX && !self.classes.contains_key(&id);
        let id = if full { UNCOUNTED } else { id };
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

    /// Returns the classes that are counted: what the store is asked about.
    pub(crate) fn ids(&self) -> Vec<ClassId> {
        self.classes.keys().copied().filter(|id| *id != UNCOUNTED).collect()
    }

    /// Adds the classes up by queue and type. `asked` are those that the store was asked about, and
    /// `keys` those of them that it has.
    pub(crate) fn sums(
        &mut self,
        asked: &HashSet<ClassId>,
        keys: &HashMap<ClassId, &ClassKey>,
    ) -> BTreeMap<Pair, Sums> {
        self.label(asked, keys);
        let Self { classes, kept } = self;
        classes.retain(|id, class| {
            let Some(pair) = class.shown.clone() else { return true };
            let is_known = keys.contains_key(id) || !asked.contains(id);
            if !is_known {
                kept.entry(pair).or_insert_with(Sums::zero).add(class);
            }
            is_known
        });
        let mut sums = kept.clone();
        for class in classes.values() {
            if let Some(pair) = &class.shown {
                sums.entry(pair.clone()).or_insert_with(Sums::zero).add(class);
            }
        }
        sums
    }

    /// Gives labels to the classes that were on no page yet.
    fn label(&mut self, asked: &HashSet<ClassId>, keys: &HashMap<ClassId, &ClassKey>) {
        let shown = self.classes.values().filter_map(|class| class.shown.clone());
        let mut pairs: BTreeSet<Pair> = shown.chain(self.kept.keys().cloned()).collect();
        let mut new: Vec<_> =
            self.classes.iter_mut().filter(|(_, class)| class.shown.is_none()).collect();
        // The older a class, the surer its place.
        new.sort_unstable_by_key(|(id, _)| id.0);
        for (id, class) in new {
            let pair = match keys.get(id) {
                Some(key) => (key.queue.clone(), key.job_type.clone()),
                // The store has forgotten it.
                None if asked.contains(id) || *id == UNCOUNTED => other(),
                // It was counted since the store was asked.
                None => continue,
            };
            let has_place = pairs.len() < LABELS_MAX || pairs.contains(&pair);
            let pair = if has_place { pair } else { other() };
            pairs.insert(pair.clone());
            class.shown = Some(pair);
        }
    }
}

fn other() -> Pair {
    (OVERFLOW.to_owned(), OVERFLOW.to_owned())
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
                keyed: false,
                placement: Default::default(),
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
        let sums = series.sums(&series.ids().into_iter().collect(), &named);
        assert_eq!(sums.len(), LABELS_MAX + 1);
        assert_eq!(sums[&(OVERFLOW.into(), OVERFLOW.into())].enqueued, 50);
        let waits: u64 = sums.values().map(|sum| sum.waits.count()).sum();
        assert_eq!(waits, keys.len() as u64);
    }

    fn key(job_type: &str) -> ClassKey {
        ClassKey {
            queue: "q".into(),
            job_type: job_type.into(),
            route: outlast_store::command::Route::Plain,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Default::default(),
        }
    }

    /// What a class had counted once moved to the overflow: a fall here and a leap there.
    #[test]
    fn what_was_counted_of_a_class_stays_where_it_was_when_the_store_forgets_the_class() {
        let mut series = Series::default();
        let first = key("first");
        let shown = |series: &mut Series, asked: &[i64], named: &[(i64, &ClassKey)]| {
            let asked = asked.iter().map(|id| ClassId(*id)).collect();
            let named = named.iter().map(|(id, key)| (ClassId(*id), *key)).collect();
            let sums = series.sums(&asked, &named);
            sums.into_iter().map(|((_, of), sum)| (of, sum.enqueued)).collect::<Vec<_>>()
        };
        series.enqueued(ClassId(1));
        series.enqueued(ClassId(1));
        assert_eq!(series.ids(), [ClassId(1)]);
        assert_eq!(shown(&mut series, &[1], &[(1, &first)]), [("first".to_owned(), 2)]);
        assert_eq!(shown(&mut series, &[1], &[]), [("first".to_owned(), 2)]);
        // It is there again, under another number, about which the store was not asked yet.
        series.enqueued(ClassId(3));
        assert_eq!(shown(&mut series, &[], &[]), [("first".to_owned(), 2)]);
        assert_eq!(shown(&mut series, &[3], &[(3, &first)]), [("first".to_owned(), 3)]);
        // It was forgotten before it was on any page.
        series.enqueued(ClassId(2));
        let counted = [("_other".to_owned(), 1), ("first".to_owned(), 3)];
        assert_eq!(shown(&mut series, &[2, 3], &[(3, &first)]), counted);
        assert_eq!(series.classes.len(), 1);
    }
}
