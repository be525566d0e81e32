//! The limits and the settings of queues in force: what a writer keeps in memory, and what changes them.

mod asked;

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::keys::Keys;
use outlast_core::limit::{LIMITS_MAX, Limit, Scope, Subject};
use outlast_core::queue::{Fair, QueueSettings};
use outlast_store::command::{AskedByQueues, ClassId, ClassKey};
use outlast_store::limit::{LimitChange, LimitRecord, LimitRefusal, RemoveLimit, SetLimit};
use outlast_store::queue::QueueRecord;

use super::claim::lane::{Lane, LaneGate, Share};

/// Decides whether a limit may be set, and what that changes; `count` is how many limits there are.
///
/// # Errors
/// Returns why it stays as it is.
pub fn set(
    found: Option<&LimitRecord>,
    count: usize,
    order: &SetLimit,
) -> Result<LimitChange, LimitRefusal> {
    match found {
        Some(found) if found.configured && !order.configured => Err(LimitRefusal::Configured),
        Some(found) if found.limit == order.limit && found.configured == order.configured => {
            Ok(LimitChange::Unchanged)
        }
        Some(_) => Ok(LimitChange::Replaced),
        None if count >= LIMITS_MAX => Err(LimitRefusal::TooMany),
        None => Ok(LimitChange::Created),
    }
}

/// Decides whether a limit may be removed.
///
/// # Errors
/// Returns why it stays as it is.
pub fn remove(
    found: Option<&LimitRecord>,
    order: &RemoveLimit,
) -> Result<LimitChange, LimitRefusal> {
    match found {
        Some(found) if found.configured && !order.configured => Err(LimitRefusal::Configured),
        Some(found) if order.configured && !found.configured => Ok(LimitChange::Unchanged),
        Some(_) => Ok(LimitChange::Removed),
        None => Ok(LimitChange::NotFound),
    }
}

/// The limits and the settings of queues in force: what a writer keeps in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    all: Arc<[Limit]>,
    queues: Arc<BTreeMap<String, QueueSettings>>,
    asked: AskedByQueues,
}

impl FromIterator<Limit> for Limits {
    fn from_iter<T: IntoIterator<Item = Limit>>(limits: T) -> Self {
        Self { all: limits.into_iter().collect(), ..Self::default() }
    }
}

impl Limits {
    /// Returns what was read together from the store.
    #[must_use]
    pub fn of(limits: Vec<LimitRecord>, queues: Vec<QueueRecord>) -> Self {
        let queues: BTreeMap<String, QueueSettings> =
            queues.into_iter().map(|record| (record.queue, record.settings)).collect();
        Self {
            all: limits.into_iter().map(|record| record.limit).collect(),
            asked: asked::by(&queues),
            queues: Arc::new(queues),
        }
    }

    /// Whether these are the very ones, and not read again since.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.all, &other.all) && Arc::ptr_eq(&self.queues, &other.queues)
    }

    /// Whether jobs of a class may be sent to workers before these have a free slot. A rate counts
    /// starts, and these would come later.
    #[must_use]
    pub fn may_prefetch(&self, class: &ClassKey) -> bool {
        let forbids = |limit: &Limit| {
            limit.rate.is_some() && limit.may_apply(&class.queue, &class.job_type, class.keyed)
        };
        !self.all.iter().any(forbids)
    }

    /// Whether the jobs of a queue share slots.
    #[must_use]
    pub fn is_fair(&self, queue: &str) -> bool {
        self.fair(queue).is_some()
    }

    /// Returns what is set for a queue.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&QueueSettings> {
        self.queues.get(name)
    }

    /// Whether a limit may apply to jobs of a class, or its queue shares slots.
    #[must_use]
    pub fn may_apply(&self, class: &ClassKey) -> bool {
        if self.fair(&class.queue).is_some() {
            return true;
        }
        let applies = |limit: &Limit| limit.may_apply(&class.queue, &class.job_type, class.keyed);
        self.all.iter().any(applies)
    }

    /// Returns how the jobs of a queue share slots, if they do.
    fn fair(&self, queue: &str) -> Option<&Fair> {
        self.queue(queue)?.fair.as_ref()
    }

    /// Returns the share that jobs with these keys belong to, if their queue has shares.
    #[must_use]
    pub fn share_of(&self, queue: &str, keys: &Keys) -> Option<Share> {
        let fair = self.fair(queue)?;
        let value = keys.get(&fair.key);
        let weight = fair.weight(value);
        Some(Share { queue: queue.to_owned(), value: value.map(ToOwned::to_owned), weight })
    }

    /// Returns how many limits there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is nothing that a claim must look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.queues.values().all(|queue| queue.fair.is_none())
    }

    /// Whether the depth of any queue is bounded.
    #[must_use]
    pub fn bound_depths(&self) -> bool {
        self.queues.values().any(|queue| queue.max_depth.is_some())
    }

    /// Whether there is nothing that a claim from this queue must look at.
    #[must_use]
    pub fn is_free(&self, queue: &str) -> bool {
        self.all.is_empty() && self.fair(queue).is_none()
    }

    /// Whether limits or shares tell the jobs of a class apart by their keys.
    #[must_use]
    pub fn need_lanes(&self, class: &ClassKey) -> bool {
        let per_key = || self.all.iter().any(|limit| matches!(limit.scope, Scope::Key(_)));
        class.keyed && (self.fair(&class.queue).is_some() || per_key())
    }

    /// Returns the lane of all jobs of a class that limits do not tell apart.
    #[must_use]
    pub fn whole(&self, class: ClassId, key: &ClassKey) -> Lane {
        let keys = Arc::<Keys>::default();
        let share = self.share_of(&key.queue, &keys);
        Lane { class, number: None, gates: self.gates_of(key, &keys), keys, share }
    }

    /// Returns the lane of the jobs of a class that have these keys.
    #[must_use]
    pub fn lane(&self, class: ClassId, key: &ClassKey, number: i64, keys: Keys) -> Lane {
        let (gates, share) = (self.gates_of(key, &keys), self.share_of(&key.queue, &keys));
        Lane { class, number: Some(number), gates, keys: Arc::new(keys), share }
    }

    /// Returns the gates that jobs of a class with these keys must pass.
    #[must_use]
    pub fn gates_of(&self, class: &ClassKey, keys: &Keys) -> Arc<[LaneGate]> {
        let subject = Subject { queue: &class.queue, job_type: &class.job_type, keys };
        let gates = self.all.iter().filter_map(|limit| limit.gate_of(subject));
        let mut gates: Vec<LaneGate> = gates
            .map(|gate| LaneGate {
                id: gate.id(),
                name: gate.limit.name.clone(),
                value: gate.value.map(ToOwned::to_owned),
                concurrency: gate.limit.concurrency,
                rate: gate.limit.rate,
            })
            .collect();
        gates.sort_by_key(|gate| gate.id);
        gates.into()
    }
}
