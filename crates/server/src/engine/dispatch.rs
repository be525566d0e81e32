//! Which session gets how many jobs of which classes. Pure: no clock, no store.
//!
//! Order of selection (seeds 000–002): able to run it → active → fresh heartbeat → free
//! slots, least loaded first. Slots are filled before anyone gets prefetch. Isolated jobs
//! go to a worker that holds nothing, and it gets nothing beside them. Preferred workers come first
//! while they have room for all that waits; no job waits for one that is full. A worker that retries
//! avoid comes last in the same way.

use std::collections::{BTreeMap, HashMap, HashSet};

use outlast_core::id::WorkerId;
use outlast_store::command::ClassId;

use crate::engine::classes::{Class, Classes};
use crate::engine::sessions::{Alone, Session, Sessions};

/// Most jobs that one claim takes, so that no worker makes a batch long.
const CLAIM_MAX: u32 = 512;

/// A claim to make for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) worker: WorkerId,
    pub(crate) session: u64,
    pub(crate) classes: Vec<ClassId>,
    pub(crate) max: u32,
    /// Whether it is for a job that must run alone.
    pub(crate) alone: bool,
    /// Whether the worker has no free slot for the jobs.
    pub(crate) is_prefetch: bool,
    /// Tokens that were taken for it, where handing out is limited.
    pub(crate) tokens: u32,
}

impl Planned {
    /// Counts the jobs as on their way to the session.
    pub(crate) fn begin(&self, sessions: &mut Sessions) {
        if let Some(session) = sessions.current(self.worker, self.session) {
            session.pending = session.pending.saturating_add(self.max);
            if self.alone {
                session.alone = Alone::Claiming;
            }
        }
    }

    /// Takes back what [`Self::begin`] counted: the claim was answered, failed or was not made.
    pub(crate) fn end(&self, sessions: &mut Sessions) {
        if let Some(session) = sessions.current(self.worker, self.session) {
            session.pending = session.pending.saturating_sub(self.max);
            if self.alone {
                session.alone = Alone::No;
            }
        }
    }
}

/// Plans claims for every session that has room, for classes that have claimable jobs.
pub(crate) fn plan(sessions: &mut Sessions, classes: &Classes) -> Vec<Planned> {
    if !classes.has_claimable() || sessions.is_empty() {
        return Vec::new();
    }
    let mut planned = plan_isolated(sessions, classes);
    let taken: HashSet<WorkerId> = planned.iter().map(|claim| claim.worker).collect();
    let free = candidates(sessions, classes, &taken, false);
    let shared = if free.is_empty() {
        let prefetching = candidates(sessions, classes, &taken, true);
        share_out(prefetching, true)
    } else {
        share_out(free, false)
    };
    planned.extend(grouped(shared));
    planned
}

/// Puts claims of the same classes behind each other, the least loaded first: a store takes for
/// all of them at once.
fn grouped(planned: Vec<Planned>) -> Vec<Planned> {
    let mut groups: Vec<Vec<Planned>> = Vec::new();
    let mut places: HashMap<Vec<ClassId>, usize> = HashMap::new();
    for claim in planned {
        let place = match places.get(&claim.classes) {
            Some(place) => *place,
            None => {
                places.insert(claim.classes.clone(), groups.len());
                groups.push(Vec::new());
                groups.len() - 1
            }
        };
        if let Some(group) = groups.get_mut(place) {
            group.push(claim);
        }
    }
    groups.into_iter().flatten().collect()
}

/// A session with room, and the waiting classes that it can take.
struct Candidate {
    worker: WorkerId,
    session: u64,
    classes: Vec<ClassId>,
    ready: u64,
    room: u32,
    /// Whether retries among them avoid it.
    is_avoided: bool,
    /// Jobs in flight, or about to be, per thousand slots.
    load: u64,
}

fn candidates(
    sessions: &mut Sessions,
    classes: &Classes,
    taken: &HashSet<WorkerId>,
    with_prefetch: bool,
) -> Vec<Candidate> {
    let preferred = Preferred::of(sessions, classes, taken, with_prefetch);
    let mut found: Vec<Candidate> = sessions
        .iter_mut()
        .filter(|session| session.room(with_prefetch) > 0 && !taken.contains(&session.worker))
        .filter_map(|session| {
            let mut able = Vec::new();
            for (id, class) in classes.claimable().filter(|(_, class)| !class.key.isolated) {
                if with_prefetch && !class.may_prefetch() {
                    continue;
                }
                let Some(score) = session.score(id, &class.key) else { continue };
                let avoided = session.avoided.get(&id);
                if !preferred.leaves_out(id, (avoided.is_none(), score))
                    && !avoided.is_some_and(|it| it.waits && class.ready.may_be(it.jobs))
                {
                    able.push((id, class));
                }
            }
            // Claims that limits do not concern cost less.
            if with_prefetch && able.iter().any(|(_, class)| !class.is_limited) {
                able.retain(|(_, class)| !class.is_limited);
            }
            let wanted = able.iter().map(|(_, class)| class.ready.wanted());
            let ready = wanted.fold(0, u64::saturating_add);
            let able: Vec<ClassId> = able.into_iter().map(|(id, _)| id).collect();
            // A claim that waits for the worker's row counts: others are to get the jobs meanwhile.
            let in_flight = u64::from(session.busy());
            (!able.is_empty()).then(|| Candidate {
                worker: session.worker,
                session: session.number,
                is_avoided: able.iter().any(|id| session.avoided.contains_key(id)),
                classes: able,
                ready,
                room: session.room(with_prefetch),
                load: in_flight.saturating_mul(1000) / u64::from(session.slots.max(1)),
            })
        })
        .collect();
    // Claims get jobs in this order, and a retry is at the front of its class.
    found.sort_by_key(|candidate| (candidate.is_avoided, candidate.load, candidate.worker));
    found
}

/// The least score that workers need for the jobs of a class: those that score at least that have
/// room for all of them. Only of classes with preferences, or with retries that avoid a worker.
struct Preferred(HashMap<ClassId, Score>);

/// Whether no retry of a class avoids a worker, and how much it has of what the class prefers.
type Score = (bool, usize);

impl Preferred {
    fn of(
        sessions: &mut Sessions,
        classes: &Classes,
        taken: &HashSet<WorkerId>,
        with_prefetch: bool,
    ) -> Self {
        // Every plan comes here: most find no worker with room.
        if !sessions.iter_mut().any(|it| it.room(with_prefetch) > 0 && !taken.contains(&it.worker))
        {
            return Self(HashMap::new());
        }
        let avoiding = sessions.iter_mut().flat_map(|it| it.avoided.keys().copied());
        let avoiding: HashSet<ClassId> = avoiding.collect();
        let picky = classes
            .claimable()
            .filter(|(id, class)| !class.key.placement.prefers.is_empty() || avoiding.contains(id));
        let least = picky.map(|(id, class)| {
            let mut rooms: BTreeMap<Score, u64> = BTreeMap::new();
            for session in sessions.iter_mut().filter(|it| !taken.contains(&it.worker)) {
                let room = u64::from(session.room(with_prefetch));
                if room > 0
                    && let Some(score) = session.score(id, &class.key)
                {
                    let score = (!session.avoided.contains_key(&id), score);
                    *rooms.entry(score).or_default() += room;
                }
            }
            let mut missing = class.ready.wanted();
            let enough = rooms.into_iter().rev().find(|(_, room)| {
                missing = missing.saturating_sub(*room);
                missing == 0
            });
            (id, enough.map(|(score, _)| score).unwrap_or_default())
        });
        Self(least.collect())
    }

    fn leaves_out(&self, class: ClassId, score: Score) -> bool {
        self.0.get(&class).is_some_and(|least| score < *least)
    }
}

/// Shares the waiting jobs evenly among the sessions with room, least loaded first.
fn share_out(candidates: Vec<Candidate>, prefetching: bool) -> Vec<Planned> {
    let sessions = u64::try_from(candidates.len()).unwrap_or(1).max(1);
    let mut left = candidates.iter().map(|candidate| candidate.ready).max().unwrap_or(0);
    let mut planned = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let share = candidate.ready.div_ceil(sessions).min(left);
        let max = candidate.room.min(u32::try_from(share).unwrap_or(u32::MAX)).min(CLAIM_MAX);
        if max == 0 {
            continue;
        }
        // Prefetched jobs wait behind running ones: do not prefetch the last few.
        if prefetching && candidate.ready <= sessions {
            continue;
        }
        left = left.saturating_sub(u64::from(max));
        planned.push(Planned {
            worker: candidate.worker,
            session: candidate.session,
            classes: candidate.classes,
            max,
            alone: false,
            is_prefetch: prefetching,
            tokens: 0,
        });
    }
    planned
}

/// Plans a claim for each idle worker, of one job that must run alone. After such a job, a worker
/// takes others first, or many of them would keep the others from running.
fn plan_isolated(sessions: &mut Sessions, classes: &Classes) -> Vec<Planned> {
    let isolated: Vec<(ClassId, &Class)> =
        classes.claimable().filter(|(_, class)| class.key.isolated).collect();
    if isolated.is_empty() {
        return Vec::new();
    }
    let mut idle: Vec<&mut Session> =
        sessions.iter_mut().filter(|session| session.is_free_alone()).collect();
    idle.retain_mut(|session| {
        let others = || classes.claimable().filter(|(_, class)| !class.key.isolated);
        session.reserved.is_some()
            || session.alone != Alone::Ran
            || !others().any(|(id, class)| session.can_take(id, &class.key))
    });
    let mut planned = Vec::new();
    for (id, class) in isolated {
        let mut left = class.ready.wanted();
        idle.retain_mut(|session| {
            let takes = left > 0
                && session.reserved.is_none_or(|class| class == id)
                && session.can_take(id, &class.key);
            if takes {
                left -= 1;
                planned.push(Planned {
                    worker: session.worker,
                    session: session.number,
                    classes: vec![id],
                    max: 1,
                    alone: true,
                    is_prefetch: false,
                    tokens: 0,
                });
            }
            !takes
        });
        if idle.is_empty() {
            break;
        }
    }
    planned
}

#[cfg(test)]
pub(super) mod tests;
