//! Which worker a retry avoids: the one that has just failed it.
//!
//! ```text
//! attempt failed ─▶ remembered until it is due ─▶ its class is claimable: for at most 1 s, the
//! worker gets jobs of the class only if no other worker has room for all that wait, and then not
//! this one while others take some of them
//! ```
//!
//! Only the server that the worker is attached to could give it the job again, so only that one
//! remembers, in memory. Whether workers of other servers have room is not known here: they are
//! given a moment to take the job. Other jobs never wait for it.

use std::collections::{BTreeMap, HashMap};

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::Outcome;
use outlast_core::time::{BootTime, Span};
use outlast_store::command::ClassId;
use outlast_store::reply::{Claimed, Moved};
use uuid::Uuid;

use super::{EventLoop, Planning};
use crate::clock::{boot_time, millis};
use crate::engine::classes::Classes;
use crate::engine::fleet::Fleet;
use crate::engine::input::Input;
use crate::engine::session_facts::Condition;
use crate::engine::sessions::Sessions;

/// Longest that a retry avoids a worker: the bound of dispatch (I5).
const AVOIDS_MAX: Span = Span::from_secs(1);
/// How long workers of other servers have to take it, if no other worker here has room.
const ELSEWHERE_MAX: Span = Span::from_millis(250);
/// A store may take a job for due a little before this server does.
const EARLY: Span = Span::from_millis(200);
/// Most retries that are remembered: those that are due first.
const RETRIES_MAX: usize = 1_000;

/// A retry that is or will soon be due.
#[derive(Debug)]
struct Retry {
    worker: WorkerId,
    class: ClassId,
    /// Since when the worker is avoided: since its class had claimable jobs.
    since: Option<BootTime>,
    /// Whether it may wait for workers of other servers.
    waits: bool,
}

/// The retries of jobs that workers attached here have failed.
#[derive(Debug, Default)]
pub(super) struct Affinity {
    /// By when they are due.
    retries: BTreeMap<(BootTime, JobId), Retry>,
    due: HashMap<JobId, BootTime>,
    /// Workers that are avoided by the current plan.
    marked: Vec<WorkerId>,
}

impl Affinity {
    /// Remembers which worker has failed a job that is to be tried again.
    pub(super) fn failed(&mut self, worker: WorkerId, moved: &Moved, now: BootTime) {
        let by_worker = matches!(moved.outcome, Some(Outcome::Failed | Outcome::Timeout));
        if !by_worker || moved.state.is_terminal() {
            return;
        }
        let wait = moved.due.map_or(Span::ZERO, |due| due.since(moved.at));
        let due = now.after(wait);
        let retry = Retry { worker, class: moved.class, since: None, waits: false };
        if let Some(before) = self.due.insert(moved.job, due) {
            self.retries.remove(&(before, moved.job));
        }
        self.retries.insert((due, moved.job), retry);
        if self.retries.len() > RETRIES_MAX
            && let Some(((_, job), _)) = self.retries.pop_last()
        {
            self.due.remove(&job);
        }
    }

    /// Forgets jobs that were claimed.
    pub(super) fn claimed(&mut self, claimed: &[Claimed]) {
        if self.due.is_empty() {
            return;
        }
        for job in claimed.iter().map(|claimed| claimed.job.id) {
            if let Some(due) = self.due.remove(&job) {
                self.retries.remove(&(due, job));
            }
        }
    }

    /// Marks the sessions that the next plan avoids. Returns when to plan again, as workers of other
    /// servers have had their chance.
    fn mark(&mut self, at: &mut Scene<'_>) -> Option<BootTime> {
        for worker in self.marked.drain(..) {
            if let Some(session) = at.sessions.get_mut(worker) {
                session.restrictions.avoided.clear();
            }
        }
        let mut elsewhere: HashMap<ClassId, bool> = HashMap::new();
        let (mut over, mut again) = (Vec::new(), None);
        let last = (at.now.after(EARLY), JobId(Uuid::max()));
        for ((due, job), retry) in self.retries.range_mut(..=last) {
            let late = at.now.since(*due);
            if at.classes.is_claimable(retry.class) {
                // After that long it was probably claimed elsewhere, and this is another job.
                let is_new = retry.since.is_none() && late <= ELSEWHERE_MAX;
                retry.waits |= is_new;
                let begun = *retry.since.get_or_insert_with(|| at.now.max(*due));
                let since = at.now.since(begun);
                if since < AVOIDS_MAX {
                    let others = elsewhere.entry(retry.class);
                    let others = *others.or_insert_with(|| at.has_others_elsewhere(retry.class));
                    if is_new && others {
                        again = again.max(Some(begun.after(ELSEWHERE_MAX)));
                    }
                    at.avoid(*job, retry, others && retry.waits && since < ELSEWHERE_MAX);
                    self.marked.push(retry.worker);
                }
            }
            let is_gone = retry.since.is_some() && !at.classes.is_claimable(retry.class);
            if late > AVOIDS_MAX || (late > EARLY && is_gone) {
                over.push((*due, *job));
            }
        }
        for (due, job) in over {
            self.retries.remove(&(due, job));
            self.due.remove(&job);
        }
        again
    }
}

/// What a plan is made of.
struct Scene<'a> {
    sessions: &'a mut Sessions,
    classes: &'a Classes,
    fleet: &'a Fleet,
    now: BootTime,
}

impl Scene<'_> {
    /// Avoids the worker of a retry; `waits` if another server's may take it meanwhile.
    fn avoid(&mut self, job: JobId, retry: &Retry, waits: bool) {
        if let Some(session) = self.sessions.get_mut(retry.worker) {
            let avoided = session.restrictions.avoided.entry(retry.class).or_default();
            avoided.jobs.push(job);
            avoided.waits |= waits;
        }
    }

    /// Whether workers at other servers take jobs of a class.
    fn has_others_elsewhere(&mut self, id: ClassId) -> bool {
        let Some(class) = self.classes.get(id) else { return false };
        let asked = class.asked();
        let here = self.sessions.iter();
        let here = here.filter_map(|it| (it.gets_work() && it.can_take(id, &asked)).then_some(()));
        let here = here.count();
        let crews = self.fleet.crews();
        let fit = crews.fit(&asked);
        let able = crews.crews.iter().zip(fit.iter()).filter(|(_, fit)| fit.is_ok());
        let live = able.flat_map(|(crew, _)| &crew.live);
        let active = live.filter(|(condition, _)| *condition == Condition::Active);
        active.map(|(_, count)| count).sum::<usize>() > here
    }
}

impl EventLoop {
    /// Marks the workers that retries avoid, for the plan that follows.
    pub(super) fn mark_avoided(&mut self) {
        if self.planning.affinity.retries.is_empty() && self.planning.affinity.marked.is_empty() {
            return;
        }
        let Self { sessions, planning: Planning { classes, affinity, .. }, shared, .. } = self;
        let mut scene = Scene { sessions, classes, fleet: &shared.fleet, now: boot_time() };
        if let Some(again) = affinity.mark(&mut scene) {
            let wait = millis(again.since(boot_time()));
            let inputs = self.inputs.clone();
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                if let Some(inputs) = inputs.upgrade() {
                    // A loop that has ended plans nothing.
                    drop(inputs.send(Input::RetryWaited).await);
                }
            });
        }
    }
}
