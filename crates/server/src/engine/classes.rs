//! The classes of jobs that the event loop knows, and how many claimable jobs each has.
//!
//! The counts are estimates. The loop sees every job that it makes claimable itself, other
//! servers signal theirs, and the backlog is read now and then. A claim that returns fewer jobs
//! than it asked for corrects the estimate.

mod prefetch;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use outlast_core::selector::Placement;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::command::{AskedByQueues, ClassId, ClassKey};
use outlast_store::reply::Claims;
use outlast_store_rules::apply::limit::Limits;

use crate::clock::boot_time;
use crate::engine::asked::{self, Asked};
use crate::engine::estimate::Estimate;
use crate::engine::waiting_classes::KnownClass;

use prefetch::Prefetch;

/// How long no worker is kept free for jobs that a limit held back: it would do nothing meanwhile,
/// and the limit may stay shut.
const NOT_RESERVED: Span = Span::from_secs(60);

/// What a claim asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimOf<'a> {
    pub(crate) classes: &'a [ClassId],
    /// So many jobs.
    pub(crate) max: u32,
    /// Whether they are for workers without a free slot.
    pub(crate) is_prefetch: bool,
}

impl ClaimOf<'_> {
    fn is_short(self, got: &[ClassId]) -> bool {
        got.len() < usize::try_from(self.max).unwrap_or(usize::MAX)
    }
}

/// A class and the estimate of its claimable jobs.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) key: ClassKey,
    pub(crate) ready: Estimate,
    /// What its queue asks of workers.
    by_queue: Placement,
    /// Whether a limit may apply to its jobs.
    pub(crate) is_limited: bool,
    /// How many of its jobs may be sent to workers without a free slot.
    pub(crate) prefetch: Prefetch,
    /// When a rate opens that they wait for, if a timer is set to then.
    opens: Option<Timestamp>,
    /// Until when no worker is kept free for its jobs, which must run alone: a limit held them back
    /// when one was free.
    not_reserved: BootTime,
    /// When the loop last heard of its jobs.
    used: BootTime,
}

impl Class {
    /// Returns what is asked of a worker that is to run its jobs.
    pub(crate) const fn asked(&self) -> Asked<'_> {
        Asked { key: &self.key, by_queue: Cow::Borrowed(&self.by_queue) }
    }
}

/// Classes by their queues: of very many queues, a worker serves few.
#[derive(Debug, Default)]
struct ByQueue {
    queues: HashMap<String, BTreeSet<ClassId>>,
    all: BTreeSet<ClassId>,
    /// Those of jobs that must run alone.
    alone: BTreeSet<ClassId>,
}

impl ByQueue {
    fn insert(&mut self, ClassKey { queue, isolated, .. }: &ClassKey, id: ClassId) {
        self.all.insert(id);
        if *isolated {
            self.alone.insert(id);
        }
        match self.queues.get_mut(queue) {
            Some(classes) => drop(classes.insert(id)),
            None => drop(self.queues.insert(queue.to_owned(), [id].into())),
        }
    }

    fn remove(&mut self, queue: &str, id: ClassId) {
        self.all.remove(&id);
        self.alone.remove(&id);
        if let Some(classes) = self.queues.get_mut(queue)
            && classes.remove(&id)
            && classes.is_empty()
        {
            self.queues.remove(queue);
        }
    }

    fn remove_all(&mut self, queue: &str) {
        for id in self.queues.remove(queue).into_iter().flatten() {
            self.all.remove(&id);
            self.alone.remove(&id);
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(ClassId) -> bool) {
        self.all.retain(|id| keep(*id));
        let all = &self.all;
        self.alone.retain(|id| all.contains(id));
        self.queues.retain(|_, classes| {
            classes.retain(|id| all.contains(id));
            !classes.is_empty()
        });
    }

    /// Returns the classes of these queues from one on, in order, and then those before it.
    fn of(&self, queues: &[String], from: ClassId) -> impl Iterator<Item = ClassId> {
        let mut listed = Vec::new();
        let every = queues.iter().any(|queue| queue == "*");
        let all = every.then(|| self.all.range(from..).chain(self.all.range(..from)).copied());
        if !every {
            listed.extend(queues.iter().filter_map(|queue| self.queues.get(queue)).flatten());
            listed.sort_unstable();
            listed.dedup();
            let first = listed.partition_point(|id| *id < from);
            listed.rotate_left(first);
        }
        all.into_iter().flatten().chain(listed)
    }
}

/// The known classes.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    by_id: BTreeMap<ClassId, Class>,
    ids: HashMap<ClassKey, ClassId>,
    /// Classes with claimable jobs, without those whose jobs wait for a limit; by queue.
    claimable: ByQueue,
    /// Classes whose jobs all wait for a limit, as the last claim saw them.
    blocked: HashSet<ClassId>,
    limits: Limits,
    /// Whether the store has other settings: nothing is claimed until they are read.
    outdated: bool,
}

impl Classes {
    pub(crate) fn get(&self, id: ClassId) -> Option<&Class> {
        self.by_id.get(&id)
    }

    pub(crate) fn contains(&self, id: ClassId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Notes that queues ask something else of workers than is known here.
    pub(crate) const fn outdate(&mut self) {
        self.outdated = true;
    }

    /// Whether that is so, and nothing newer was read since.
    pub(crate) const fn are_outdated(&self) -> bool {
        self.outdated
    }

    /// Returns what stands for all that queues ask of workers, as far as is known here.
    pub(crate) const fn asked(&self) -> AskedByQueues {
        self.limits.asked()
    }

    pub(crate) fn id_of(&self, key: &ClassKey) -> Option<ClassId> {
        self.ids.get(key).copied()
    }

    /// Returns the classes that have claimable jobs which do not wait for a limit.
    pub(crate) fn claimable(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.claimable.all.iter().filter_map(|id| Some((*id, self.by_id.get(id)?)))
    }

    /// Returns those of jobs that must run alone.
    pub(crate) fn claimable_alone(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.claimable.alone.iter().filter_map(|id| Some((*id, self.by_id.get(id)?)))
    }

    /// Returns those of these queues, of which `*` is every queue: from one on, in order, and then
    /// those before it.
    pub(crate) fn claimable_in(
        &self,
        queues: &[String],
        from: ClassId,
    ) -> impl Iterator<Item = (ClassId, &Class)> {
        let ids = self.claimable.of(queues, from);
        ids.filter_map(|id| Some((id, self.by_id.get(&id)?)))
    }

    /// Returns so many of the classes with the most claimable jobs, whether they wait for a limit or not.
    pub(crate) fn waiting(&self, max: usize) -> Vec<KnownClass> {
        let waits = |(_, class): &(&ClassId, &Class)| class.ready != Estimate::None;
        let of = |(id, class): (&ClassId, &Class)| (Reverse(class.ready.wanted()), *id);
        let mut all: Vec<_> = self.by_id.iter().filter(waits).map(of).collect();
        if all.len() > max {
            all.select_nth_unstable(max);
            all.truncate(max);
        }
        let known = |(_, id): (_, ClassId)| {
            let key = self.by_id.get(&id)?.key.clone();
            Some(KnownClass { id, key, is_blocked: self.blocked.contains(&id) })
        };
        all.into_iter().filter_map(known).collect()
    }

    pub(crate) fn is_claimable(&self, id: ClassId) -> bool {
        self.claimable.all.contains(&id)
    }

    pub(crate) fn has_claimable(&self) -> bool {
        !self.claimable.all.is_empty()
    }

    /// Adds a class unless it is known.
    pub(crate) fn learn(&mut self, id: ClassId, key: &ClassKey, now: BootTime) -> &Class {
        let Self { by_id, ids, limits, .. } = self;
        let class = by_id.entry(id).or_insert_with(|| {
            ids.insert(key.clone(), id);
            Class {
                key: key.clone(),
                ready: Estimate::None,
                by_queue: asked::by_queue(&key.queue, limits),
                is_limited: limits.may_apply(key),
                prefetch: Prefetch::of(limits, key),
                opens: None,
                not_reserved: BootTime::default(),
                used: now,
            }
        });
        class.used = now;
        class
    }

    /// Takes note of the limits and settings in force, after each look at the backlog; returns whether
    /// queues ask something else of workers than before.
    pub(crate) fn set_limits(&mut self, limits: Limits) -> bool {
        let is_same = self.limits == limits;
        let differ = self.limits.asked() != limits.asked();
        for class in self.by_id.values_mut() {
            if !is_same {
                class.is_limited = limits.may_apply(&class.key);
                class.prefetch = Prefetch::of(&limits, &class.key);
            }
            class.prefetch.may_start();
            if differ {
                class.by_queue = asked::by_queue(&class.key.queue, &limits);
            }
        }
        (self.limits, self.outdated) = (limits, false);
        differ
    }

    /// Takes it that some jobs of the classes that waited for a limit may start.
    pub(crate) fn unblock(&mut self) {
        let Self { by_id, claimable, blocked, .. } = self;
        by_id.values_mut().for_each(|class| class.prefetch.opened());
        for id in blocked.drain() {
            if let Some(class) = by_id.get(&id).filter(|class| class.ready != Estimate::None) {
                claimable.insert(&class.key, id);
            }
        }
    }

    /// As [`Classes::unblock`], of one class.
    pub(crate) fn unblock_one(&mut self, id: ClassId) {
        let Some(class) = self.by_id.get_mut(&id) else { return };
        class.opens = None;
        class.prefetch.may_start();
        let ready = class.ready;
        self.blocked.remove(&id);
        self.set_ready(id, ready);
    }

    /// Takes the jobs for gone of classes that are not `listed` as having some, unless the loop
    /// has heard of others since that list was read.
    pub(crate) fn clear_unlisted(&mut self, listed: &HashSet<ClassId>, read: BootTime) {
        let Self { by_id, claimable, .. } = self;
        claimable.retain(|id| {
            let Some(class) = by_id.get_mut(&id) else { return false };
            let keep = listed.contains(&id) || class.used >= read;
            if !keep {
                class.ready = Estimate::None;
            }
            keep
        });
    }

    /// Takes no job of a queue for claimable: it is paused.
    pub(crate) fn clear_queue(&mut self, queue: &str) {
        let Self { by_id, claimable, .. } = self;
        for class in by_id.values_mut().filter(|class| class.key.queue == queue) {
            class.ready = Estimate::None;
        }
        claimable.remove_all(queue);
    }

    /// Forgets classes without claimable jobs that were last used before `before`; returns
    /// whether there were any. A forgotten class is learned again when it gets jobs.
    pub(crate) fn forget_unused(&mut self, before: BootTime) -> bool {
        let Self { by_id, ids, blocked, .. } = self;
        let known = by_id.len();
        by_id.retain(|id, class| {
            let keep = class.ready != Estimate::None || class.used >= before;
            // The key may have a new id.
            if !keep && ids.get(&class.key) == Some(id) {
                ids.remove(&class.key);
            }
            if !keep {
                blocked.remove(id);
            }
            keep
        });
        by_id.len() < known
    }

    /// Adds `count` claimable jobs to a class. Returns false when the class is not known, so
    /// that the backlog must be read.
    pub(crate) fn add_ready(&mut self, id: ClassId, count: u64, now: BootTime) -> bool {
        let Some(class) = self.by_id.get_mut(&id) else { return false };
        class.used = now;
        if class.ready == Estimate::None {
            class.prefetch.may_start();
        }
        let ready = class.ready.more(count);
        // The new ones may pass other gates.
        self.blocked.remove(&id);
        self.set_ready(id, ready);
        true
    }

    /// Corrects the estimates after a claim that got one job of each class in `got`. A short claim
    /// proves nothing about classes whose jobs it passed over: while the claim gets some jobs, it is
    /// repeated at once. One that was cut for the length of its jobs proves nothing about any. Those
    /// whose jobs wait for a limit are left out until one opens.
    pub(crate) fn claimed(&mut self, claim: ClaimOf<'_>, got: &[ClassId], claims: &Claims) {
        self.note_prefetch(claim, got, claims);
        let Claims { passed_over, blocked, kept, .. } = claims;
        if claim.is_short(got) && (got.is_empty() || !claims.cut) {
            for id in claim.classes {
                if kept.contains(id) {
                    let took = |class: &Class| class.ready.took(u64::from(count_of(*id, got)));
                    let ready = self.by_id.get(id).map_or(Estimate::None, took);
                    self.set_ready(*id, ready);
                    continue;
                }
                let is_blocked = blocked.iter().any(|blocked| blocked.class == *id);
                // Other jobs of it may be let start, behind those that were looked at.
                if is_blocked && !passed_over.contains(id) {
                    self.block(*id);
                } else if got.is_empty() || !passed_over.contains(id) {
                    self.set_ready(*id, Estimate::None);
                }
            }
            return;
        }
        let mut counts: BTreeMap<ClassId, u64> = BTreeMap::new();
        for id in got {
            *counts.entry(*id).or_default() += 1;
        }
        for (id, count) in counts {
            let Some(class) = self.by_id.get(&id) else { continue };
            let took = if class.key.isolated { Estimate::took_alone } else { Estimate::took };
            self.set_ready(id, took(class.ready, count));
        }
    }

    /// Notes what a claim means for the next ones ahead of free slots.
    fn note_prefetch(&mut self, claim: ClaimOf<'_>, got: &[ClassId], claims: &Claims) {
        for id in claim.classes {
            let Some(class) = self.by_id.get_mut(id).filter(|class| class.is_limited) else {
                continue;
            };
            let is_stopped =
                || claims.kept.contains(id) || claims.blocked.iter().any(|by| by.class == *id);
            if !claim.is_prefetch {
                class.prefetch.slots_filled(got.contains(id));
            } else if !claim.is_short(got) || claims.cut {
                class.prefetch.ended_full();
            } else if is_stopped() {
                class.prefetch.ended_short(count_of(*id, got));
            }
        }
    }

    /// Returns the classes with claimable jobs that must run alone, and for which a worker may be
    /// kept free.
    pub(crate) fn wait_alone(&self, now: BootTime) -> impl Iterator<Item = ClassId> {
        self.claimable_alone().filter(move |(_, class)| class.not_reserved <= now).map(|(id, _)| id)
    }

    /// Notes when a rate opens that jobs of a class wait for; returns whether a timer is needed.
    pub(crate) fn opens_at(&mut self, id: ClassId, at: Timestamp) -> bool {
        let Some(class) = self.by_id.get_mut(&id) else { return false };
        let is_first = class.opens.is_none_or(|set| at < set);
        if is_first {
            class.opens = Some(at);
        }
        is_first
    }

    fn block(&mut self, id: ClassId) {
        if let Some(class) = self.by_id.get_mut(&id) {
            class.not_reserved = boot_time().after(NOT_RESERVED);
            self.blocked.insert(id);
            self.claimable.remove(&class.key.queue, id);
        }
    }

    pub(crate) fn set_ready(&mut self, id: ClassId, ready: Estimate) {
        let Some(class) = self.by_id.get_mut(&id) else { return };
        class.ready = ready;
        if ready == Estimate::None || self.blocked.contains(&id) {
            self.claimable.remove(&class.key.queue, id);
        } else {
            self.claimable.insert(&class.key, id);
        }
    }
}

/// Returns how many jobs of a class a claim got.
fn count_of(id: ClassId, got: &[ClassId]) -> u32 {
    u32::try_from(got.iter().filter(|got| **got == id).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
