//! Why jobs wait, and how many for each reason, queue and type.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use outlast_core::job::State;
use outlast_store::StoreError;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store::query::QueueStats;
use outlast_store::tally::ClassCounts;

use crate::Engine;
use crate::engine::waiting_classes::{WaitingClass, Why};

/// How many classes are looked at: those with the most claimable jobs.
const CLASSES_MAX: usize = 500;
/// How many groups are listed.
const GROUPS_MAX: usize = 50;

/// Why the jobs of all queues wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The largest groups, largest first.
    pub(crate) groups: Vec<WaitingGroup>,
    /// How many jobs wait that are in none of these.
    pub(crate) others: u64,
}

/// Jobs that wait for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitingGroup {
    pub(crate) reason: Reason,
    pub(crate) queue: String,
    /// `None` where the reason holds for all types.
    pub(crate) job_type: Option<String>,
    pub(crate) jobs: u64,
    /// The largest class of those that can run nowhere.
    pub(crate) class: Option<ClassKey>,
}

/// What jobs wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A time that their producer set.
    Time,
    /// Their producer to activate them.
    Activation,
    /// Their next attempt.
    Retry,
    /// Their queue to be resumed.
    Paused,
    /// A worker that can run them: there is none.
    NoWorker,
    /// Workers that can run them and are not connected.
    WorkersAway,
    /// A limit to have room.
    Limit,
    /// A worker that holds nothing else.
    Alone,
    /// Their turn.
    Turn,
}

impl Reason {
    /// Whether no worker can take the jobs at all.
    pub(crate) const fn is_nowhere(self) -> bool {
        matches!(self, Self::NoWorker | Self::WorkersAway)
    }

    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Time,
        Self::Activation,
        Self::Retry,
        Self::Paused,
        Self::NoWorker,
        Self::WorkersAway,
        Self::Limit,
        Self::Alone,
        Self::Turn,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Activation => "activation",
            Self::Retry => "retry",
            Self::Paused => "paused",
            Self::NoWorker => "no_worker",
            Self::WorkersAway => "workers_away",
            Self::Limit => "limit",
            Self::Alone => "alone",
            Self::Turn => "turn",
        }
    }
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Paused => Self::Paused,
            Why::NoWorker => Self::NoWorker,
            Why::WorkersAway => Self::WorkersAway,
            Why::Limit => Self::Limit,
            Why::Alone => Self::Alone,
            Why::Turn => Self::Turn,
        }
    }
}

/// A group while it is counted.
#[derive(Default)]
struct Group<'a> {
    jobs: u64,
    /// The class with the most jobs of it.
    largest: Option<&'a ClassCounts>,
    most: u64,
}

impl<'a> Group<'a> {
    fn add(&mut self, class: &'a ClassCounts, jobs: u64) {
        self.jobs += jobs;
        if jobs > self.most {
            (self.largest, self.most) = (Some(class), jobs);
        }
    }
}

impl Waiting {
    /// Counts the jobs that wait in these queues.
    pub(super) async fn look(engine: &Engine, queues: &[QueueStats]) -> Result<Self, StoreError> {
        let classes = engine.waiting_classes(CLASSES_MAX).await;
        let ids = classes.iter().map(|class| class.id).collect();
        let counted = engine.store().tally_of(ids).await?;
        Ok(Self::of(queues, &classes, &counted))
    }

    fn of(queues: &[QueueStats], classes: &[WaitingClass], counted: &[ClassCounts]) -> Self {
        let why: HashMap<ClassId, Why> =
            classes.iter().map(|class| (class.id, class.why)).collect();
        let mut groups: BTreeMap<(Reason, &str, Option<&str>), Group<'_>> = BTreeMap::new();
        // How many claimable jobs of each queue have no reason yet.
        let mut left: HashMap<&str, u64> = HashMap::new();
        for queue in queues {
            let name = queue.name.as_str();
            let mut add =
                |reason, jobs| groups.entry((reason, name, None)).or_default().jobs += jobs;
            add(Reason::Time, queue.scheduled);
            add(Reason::Activation, queue.pending);
            add(Reason::Retry, queue.retryable);
            if queue.paused {
                add(Reason::Paused, queue.available);
            } else {
                left.insert(name, queue.available);
            }
        }
        for class in counted {
            let queue = class.key.queue.as_str();
            // The queue was counted first: jobs may have come since.
            let (Some(left), Some(why)) = (left.get_mut(queue), why.get(&class.id)) else {
                continue;
            };
            let jobs = class.counts.state(State::Available).min(*left);
            *left -= jobs;
            let of = (Reason::from(*why), queue, Some(class.key.job_type.as_str()));
            groups.entry(of).or_default().add(class, jobs);
        }
        let mut groups: Vec<WaitingGroup> = groups
            .into_iter()
            .filter(|(_, group)| group.jobs > 0)
            .map(|((reason, queue, job_type), group)| WaitingGroup {
                reason,
                queue: queue.to_owned(),
                job_type: job_type.map(ToOwned::to_owned),
                jobs: group.jobs,
                class: group.largest.filter(|_| reason.is_nowhere()).map(|it| it.key.clone()),
            })
            .collect();
        groups.sort_by_key(|group| Reverse(group.jobs));
        let small = groups.split_off(groups.len().min(GROUPS_MAX));
        let others = left.into_values().sum::<u64>() + small.iter().map(|it| it.jobs).sum::<u64>();
        Self { groups, others }
    }
}

#[cfg(test)]
mod tests {
    use outlast_store::command::Route;
    use outlast_store::tally::{COLUMNS, Counts};

    use super::*;

    fn key(queue: &str, job_type: &str) -> ClassKey {
        ClassKey {
            queue: queue.into(),
            job_type: job_type.into(),
            route: Route::Plain,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Default::default(),
        }
    }

    fn counted(id: i64, queue: &str, job_type: &str, jobs: i64) -> ClassCounts {
        let mut values = [0; COLUMNS.len()];
        values[1] = jobs;
        ClassCounts { id: ClassId(id), key: key(queue, job_type), counts: Counts::of(values) }
    }

    fn queue(name: &str, available: u64) -> QueueStats {
        QueueStats { name: name.into(), available, ..QueueStats::default() }
    }

    fn texts(waiting: &Waiting) -> Vec<String> {
        let text = |it: &WaitingGroup| {
            let of = it.job_type.as_deref().unwrap_or("*");
            format!("{} {} {of} {}", it.reason.as_str(), it.queue, it.jobs)
        };
        waiting.groups.iter().map(text).collect()
    }

    fn class(id: i64, why: Why) -> WaitingClass {
        WaitingClass { id: ClassId(id), why }
    }

    #[test]
    fn jobs_are_grouped_by_reason_queue_and_type() {
        let stopped = QueueStats { paused: true, ..queue("stopped", 9) };
        let busy = QueueStats { scheduled: 2, retryable: 1, pending: 3, ..queue("busy", 40) };
        let classes = [class(1, Why::Turn), class(2, Why::NoWorker), class(3, Why::Turn)];
        let counts = [
            counted(1, "busy", "mail", 10),
            counted(2, "busy", "film", 20),
            counted(3, "busy", "mail", 5),
            counted(4, "stopped", "mail", 9),
        ];
        let waiting = Waiting::of(&[busy, stopped], &classes, &counts);
        assert_eq!(
            texts(&waiting),
            [
                "no_worker busy film 20",
                "turn busy mail 15",
                "paused stopped * 9",
                "activation busy * 3",
                "time busy * 2",
                "retry busy * 1",
            ]
        );
        let nowhere = waiting.groups.iter().filter_map(|group| group.class.clone());
        assert_eq!(nowhere.collect::<Vec<_>>(), [key("busy", "film")]);
        assert_eq!(waiting.others, 5, "those of classes that were not looked at");
    }

    #[test]
    fn small_groups_are_one_number_and_no_job_is_missing() {
        let queues: Vec<QueueStats> = (0..80)
            .map(|n| QueueStats { scheduled: n + 1, ..queue(&format!("q{n}"), 7) })
            .collect();
        let waiting = Waiting::of(&queues, &[], &[]);
        assert_eq!(waiting.groups.len(), GROUPS_MAX);
        assert_eq!(waiting.groups[0].jobs, 80);
        let listed: u64 = waiting.groups.iter().map(|group| group.jobs).sum();
        let all: u64 = queues.iter().map(QueueStats::depth).sum();
        assert_eq!(listed + waiting.others, all);
    }

    #[test]
    fn class_that_grew_since_the_queue_was_counted_adds_no_jobs() {
        let waiting =
            Waiting::of(&[queue("q", 3)], &[class(1, Why::Turn)], &[counted(1, "q", "mail", 8)]);
        assert_eq!((texts(&waiting), waiting.others), (vec!["turn q mail 3".into()], 0));
    }
}
