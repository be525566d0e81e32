//! Which session gets how many jobs of which classes. Pure: no clock, no store.
//!
//! Order of selection (seeds 000–002): able to run it → active → fresh heartbeat → free
//! slots, least loaded first. Slots are filled before anyone gets prefetch. Isolated jobs
//! go to a worker that holds nothing, and it gets nothing beside them.

use outlast_core::id::WorkerId;
use outlast_store::command::ClassId;

use crate::engine::classes::Classes;
use crate::engine::sessions::Sessions;

/// Most jobs that one claim takes, so that no worker makes a batch long.
const CLAIM_MAX: u32 = 512;

/// A claim to make for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) worker: WorkerId,
    pub(crate) session: u64,
    pub(crate) classes: Vec<ClassId>,
    pub(crate) max: u32,
    /// Tokens that were taken for it, where handing out is limited.
    pub(crate) tokens: u32,
}

/// Plans claims for every session that has room, for classes that have claimable jobs.
pub(crate) fn plan(sessions: &mut Sessions, classes: &Classes) -> Vec<Planned> {
    if !classes.has_claimable() || sessions.is_empty() {
        return Vec::new();
    }
    let mut planned = plan_isolated(sessions, classes);
    let taken: Vec<WorkerId> = planned.iter().map(|claim| claim.worker).collect();
    let free = candidates(sessions, classes, &taken, false);
    if free.is_empty() {
        let prefetching = candidates(sessions, classes, &taken, true);
        planned.extend(share_out(prefetching, true));
    } else {
        planned.extend(share_out(free, false));
    }
    planned
}

/// A session with room, and the waiting classes that it can take.
struct Candidate {
    worker: WorkerId,
    session: u64,
    classes: Vec<ClassId>,
    ready: u64,
    room: u32,
    /// Jobs in flight, or about to be, per thousand slots.
    load: u64,
}

fn candidates(
    sessions: &mut Sessions,
    classes: &Classes,
    taken: &[WorkerId],
    with_prefetch: bool,
) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = sessions
        .iter_mut()
        .filter(|session| session.room(with_prefetch) > 0 && !taken.contains(&session.worker))
        .filter_map(|session| {
            let mut ready = 0_u64;
            let mut able = Vec::new();
            for (id, class) in classes.claimable().filter(|(_, class)| !class.key.isolated) {
                if session.can_take(id, &class.key) {
                    able.push(id);
                    ready = ready.saturating_add(class.ready.wanted());
                }
            }
            // A claim that waits for the worker's row counts: others are to get the jobs meanwhile.
            let in_flight = u64::try_from(session.in_flight.len()).unwrap_or(u64::MAX);
            let in_flight = in_flight.saturating_add(session.pending.into());
            (!able.is_empty()).then(|| Candidate {
                worker: session.worker,
                session: session.number,
                classes: able,
                ready,
                room: session.room(with_prefetch),
                load: in_flight.saturating_mul(1000) / u64::from(session.slots.max(1)),
            })
        })
        .collect();
    found.sort_by_key(|candidate| (candidate.load, candidate.worker));
    found
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
            tokens: 0,
        });
    }
    planned
}

fn plan_isolated(sessions: &mut Sessions, classes: &Classes) -> Vec<Planned> {
    let mut planned: Vec<Planned> = Vec::new();
    for (id, class) in classes.claimable().filter(|(_, class)| class.key.isolated) {
        let idle = sessions
            .iter_mut()
            .filter(|session| {
                session.in_flight.is_empty() && session.pending == 0 && session.room(false) > 0
            })
            .filter(|session| planned.iter().all(|claim| claim.worker != session.worker))
            .find_map(|session| {
                session.can_take(id, &class.key).then_some((session.worker, session.number))
            });
        if let Some((worker, session)) = idle {
            planned.push(Planned { worker, session, classes: vec![id], max: 1, tokens: 0 });
        }
    }
    planned
}

#[cfg(test)]
mod tests;
