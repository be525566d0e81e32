//! Which session gets how many jobs of which classes. Pure: no clock, no store.
//!
//! Order of selection (seeds 000–002): able to run it → active → fresh heartbeat → free
//! slots, least loaded first. Jobs are fetched ahead of free slots only once all slots are filled, in
//! the same plan: if that waited for the next one, a worker that runs its jobs faster than the store
//! answers would never get any. Isolated jobs go to a worker that holds nothing, and it gets nothing
//! beside them. Preferred workers come first
//! while they have room for all that waits; no job waits for one that is full. A worker that retries
//! avoid comes last in the same way, and leaves as many of them alone as others take in its place.

mod crews;

use std::collections::HashMap;
use std::sync::Arc;

use outlast_core::id::{JobId, WorkerId};
use outlast_store::command::ClassId;

use crate::engine::classes::{ClaimOf, Class, Classes};
use crate::engine::profile::Profile;
use crate::engine::sessions::{Alone, Session, Sessions};

use crews::FreeCrews;

/// A claim to make for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) worker: WorkerId,
    pub(crate) session: u64,
    /// Many claims share one list.
    pub(crate) classes: Arc<[ClassId]>,
    pub(crate) max: u32,
    /// Whether it is for a job that must run alone.
    pub(crate) alone: bool,
    /// Whether the worker has no free slot for them. Whether a limit applies to them is for the store
    /// to say: another server may have set it a moment ago.
    pub(crate) is_prefetch: bool,
    /// Retries that it leaves to others.
    pub(crate) avoids: Vec<JobId>,
    /// Tokens that were taken for it, where handing out is limited.
    pub(crate) tokens: u32,
}

impl Planned {
    /// Returns what it asks for.
    pub(crate) fn asks(&self) -> ClaimOf<'_> {
        ClaimOf { classes: &self.classes, max: self.max, is_prefetch: self.is_prefetch }
    }

    /// Counts the jobs as on their way to the session.
    pub(crate) fn begin(&self, sessions: &mut Sessions) {
        if let Some(session) = sessions.current(self.worker, self.session) {
            session.pending = session.pending.saturating_add(self.max);
            if self.alone {
                session.restrictions.alone = Alone::Claiming;
            }
        }
    }

    /// Takes back what [`Self::begin`] counted: the claim was answered, failed or was not made.
    pub(crate) fn end(&self, sessions: &mut Sessions) {
        if let Some(session) = sessions.current(self.worker, self.session) {
            session.pending = session.pending.saturating_sub(self.max);
            if self.alone {
                session.restrictions.alone = Alone::No;
            }
        }
    }
}

/// Plans claims for every session that has room, for classes that have claimable jobs.
pub(crate) fn plan(sessions: &Sessions, classes: &Classes) -> Vec<Planned> {
    if !classes.has_claimable() || sessions.is_empty() {
        return Vec::new();
    }
    let mut planned = plan_isolated(sessions, classes);
    // A worker that gets an isolated job gets nothing else.
    let mut given: Given = planned.iter().map(|claim| (claim.worker, u32::MAX)).collect();
    let mut left = HashMap::new();
    let filling = FreeCrews::of(sessions, classes, &given, Room::Slots).share_out(&mut left);
    given.extend(filling.iter().map(|claim| (claim.worker, claim.max)));
    let ahead = FreeCrews::of(sessions, classes, &given, Room::Ahead).share_out(&mut left);
    planned.extend(grouped(filling.into_iter().chain(ahead)));
    planned
}

/// How many jobs a plan has given to workers so far.
type Given = HashMap<WorkerId, u32>;

/// What a plan fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// Free slots.
    Slots,
    /// What a worker takes beyond its slots, once they are filled.
    Ahead,
}

impl Room {
    /// Returns how many more jobs a session takes.
    fn of(self, session: &Session, given: &Given) -> u32 {
        let given = given.get(&session.worker).copied().unwrap_or(0);
        match self {
            Self::Slots => session.room(false).saturating_sub(given),
            // Slots that are still free are filled by the next plan.
            Self::Ahead if session.room(false) > given => 0,
            Self::Ahead => session.room(true).saturating_sub(given),
        }
    }
}

/// Puts claims of the same classes behind each other, in their order: a store takes for all of them
/// at once.
fn grouped(planned: impl Iterator<Item = Planned>) -> Vec<Planned> {
    let mut groups: Vec<Vec<Planned>> = Vec::new();
    let mut places: HashMap<Arc<[ClassId]>, usize> = HashMap::new();
    // Most claims share their list with others.
    let mut of_lists: HashMap<*const ClassId, usize> = HashMap::new();
    for claim in planned {
        let place = *of_lists.entry(claim.classes.as_ptr()).or_insert_with(|| {
            *places.entry(Arc::clone(&claim.classes)).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            })
        });
        if let Some(group) = groups.get_mut(place) {
            group.push(claim);
        }
    }
    groups.into_iter().flatten().collect()
}

/// Plans a claim for each idle worker, of one job that must run alone. After such a job, a worker
/// takes others first, or many of them would keep the others from running.
fn plan_isolated(sessions: &Sessions, classes: &Classes) -> Vec<Planned> {
    let isolated: Vec<(ClassId, &Class)> = classes.claimable_alone().collect();
    if isolated.is_empty() {
        return Vec::new();
    }
    let mut idle = idle_crews(sessions, classes);
    let mut planned = Vec::new();
    for (id, class) in isolated {
        let mut left = usize::try_from(class.ready.wanted()).unwrap_or(usize::MAX);
        let list: Arc<[ClassId]> = [id].into();
        idle.retain_mut(|crew| {
            let takes = crew.first().is_some_and(|one| {
                one.restrictions.reserved.is_none_or(|class| class == id)
                    && one.can_take(id, &class.asked())
            });
            let some = if takes { left.min(crew.len()) } else { 0 };
            left -= some;
            planned.extend(crew.drain(..some).map(|session| Planned {
                worker: session.worker,
                session: session.number,
                classes: Arc::clone(&list),
                max: 1,
                alone: true,
                is_prefetch: false,
                avoids: Vec::new(),
                tokens: 0,
            }));
            !crew.is_empty()
        });
        if idle.is_empty() {
            break;
        }
    }
    planned
}

/// Returns the workers that may get a job which must run alone: those of one profile together, by
/// which class they are kept free for.
fn idle_crews<'a>(sessions: &'a Sessions, classes: &Classes) -> Vec<Vec<&'a Session>> {
    let mut crews: HashMap<(*const Profile, Option<ClassId>), Vec<&Session>> = HashMap::new();
    for session in sessions.iter().filter(|session| session.is_free_alone()) {
        let crew = (Arc::as_ptr(&session.profile), session.restrictions.reserved);
        crews.entry(crew).or_default().push(session);
    }
    let mut crews: Vec<_> = crews.into_values().collect();
    for crew in &mut crews {
        let comes_last = |one: &Session| {
            one.restrictions.reserved.is_none() && one.restrictions.alone == Alone::Ran
        };
        let one = crew.iter().copied().find(|one| comes_last(one));
        if one.is_some_and(|one| takes_others(one, classes)) {
            crew.retain(|one| !comes_last(one));
        }
    }
    crews.retain(|crew| !crew.is_empty());
    crews
}

/// Whether jobs wait for a worker that may run beside others.
fn takes_others(session: &Session, classes: &Classes) -> bool {
    let claimable = classes.claimable_in(&session.profile.queues, ClassId(i64::MIN));
    let mut others = claimable.filter(|(_, class)| !class.key.isolated);
    others.any(|(id, class)| session.can_take(id, &class.asked()))
}

#[cfg(test)]
pub(super) mod tests;
