//! Which worker is kept free for a job that must run alone. Pure: no clock, no store.
//!
//! On a fleet that is always full, no worker would ever be idle by chance. So the server that leads
//! for a class picks one, which gets nothing new until it is idle:
//!
//! ```text
//! job waits, no worker idle ──lead for the class──▶ one worker reserved ──idle──▶ claim
//!                           └─another server leads─▶ ask again when its lease is over
//! another worker idle, or no job waits ──▶ reservation dropped, leadership resigned
//! ```
//!
//! A worker whose attempts last long is given up after a while, and another one is tried for longer.
//! At most one worker in ten is reserved or runs such a job while others wait for its slots.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use outlast_core::id::WorkerId;
use outlast_core::time::{BootTime, Span};
use outlast_store::command::ClassId;

use crate::engine::classes::{Class, Classes};
use crate::engine::sessions::{Session, Sessions};

/// One in this many sessions may be reserved, and at least one.
const SESSIONS_PER_RESERVATION: usize = 10;
/// Most classes that one server makes an effort for at a time.
const EFFORTS_MAX: usize = 4;
/// How often the reservations are looked at.
const LOOK_EVERY: Span = Span::from_millis(50);
/// How long to wait for the store's answer before asking again.
const ANSWER_MAX: Span = Span::from_secs(2);
/// How long the first worker may take to become idle before another one is tried; then twice as
/// long each time.
const PATIENCE: Span = Span::from_secs(10);
const PATIENCE_MAX: Span = Span::from_secs(600);

/// What this server does for a class whose jobs wait for an idle worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// It has asked to lead, or another server does; it asks again then.
    Waits { until: BootTime },
    /// It leads until then, and asks to go on a while before.
    Leads { renew: BootTime, until: BootTime, reserved: Option<Reserved> },
}

/// A worker that is kept free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserved {
    worker: WorkerId,
    /// When another one is tried, and how long this one was given.
    until: BootTime,
    patience: Span,
}

/// The classes with jobs that must run alone and wait for a worker here.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    efforts: BTreeMap<ClassId, Effort>,
    /// The class whose effort ended last: the next ones are looked for behind it.
    last: Option<ClassId>,
    looked: Option<BootTime>,
}

/// What the event loop is to ask the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To lead for the class, or to go on.
    Lead(ClassId),
    /// To lead no more.
    Resign(ClassId),
}

impl Isolation {
    /// The store says that this server leads for a class, for `lease` from `now`. Returns false if
    /// no job of it waits any more.
    pub(crate) fn leads(&mut self, class: ClassId, lease: Span, now: BootTime) -> bool {
        let Some(effort) = self.efforts.get_mut(&class) else { return false };
        let reserved = match *effort {
            Effort::Leads { reserved, .. } => reserved,
            Effort::Waits { .. } => None,
        };
        let (renew, until) = (now.after(Span(lease.0 / 2)), now.after(lease));
        *effort = Effort::Leads { renew, until, reserved };
        true
    }

    /// Another server leads for a class until then, or the store cannot say before.
    pub(crate) fn waits(&mut self, class: ClassId, until: BootTime) {
        if let Some(effort) = self.efforts.get_mut(&class) {
            *effort = Effort::Waits { until };
        }
    }

    /// Brings the reservations up to date.
    pub(crate) fn update(
        &mut self,
        sessions: &mut Sessions,
        classes: &Classes,
        now: BootTime,
    ) -> Vec<Ask> {
        // A class without jobs frees its worker at once.
        let served = self.efforts.keys().any(|class| !classes.is_claimable(*class));
        if !served && self.looked.is_some_and(|looked| now < looked.after(LOOK_EVERY)) {
            return Vec::new();
        }
        self.looked = Some(now);
        let waiting: BTreeSet<ClassId> = classes.wait_alone(now).collect();
        if waiting.is_empty() && self.efforts.is_empty() {
            return Vec::new();
        }
        let mut asks = Vec::new();
        // An idle worker takes one job: it serves one class.
        let mut idle: HashSet<WorkerId> = sessions
            .iter()
            .filter(|it| it.is_free_alone() && it.reserved.is_none())
            .map(|it| it.worker)
            .collect();
        let (last, mut done) = (&mut self.last, BTreeSet::new());
        self.efforts.retain(|class, effort| {
            let is_served = !waiting.contains(class)
                || idle
                    .iter()
                    .copied()
                    .find(|worker| able(sessions, classes, *worker, *class))
                    .is_some_and(|it| idle.remove(&it));
            let keep = !is_served && sessions.iter().any(|it| is_able(it, classes, *class));
            if !keep {
                *last = Some(*class);
                done.insert(*class);
                if matches!(effort, Effort::Leads { .. }) {
                    asks.push(Ask::Resign(*class));
                }
            }
            keep
        });
        let limit = (sessions.iter().count() / SESSIONS_PER_RESERVATION).max(1);
        let alone = sessions.iter().filter(|it| it.runs_alone()).count();
        let room = limit.saturating_sub(alone).min(EFFORTS_MAX).saturating_sub(self.efforts.len());
        let waiting = waiting.difference(&done).copied().collect();
        self.begin(&waiting, idle, room, (sessions, classes));
        asks.extend(self.due(now));
        self.reserve(sessions, classes, now);
        asks
    }

    /// Begins an effort for classes that have none, in turn.
    fn begin(
        &mut self,
        waiting: &BTreeSet<ClassId>,
        mut idle: HashSet<WorkerId>,
        mut room: usize,
        (sessions, classes): (&Sessions, &Classes),
    ) {
        let last = self.last.unwrap_or(ClassId(i64::MIN));
        let (before, behind): (Vec<ClassId>, Vec<ClassId>) =
            waiting.iter().partition(|class| **class <= last);
        for class in behind.into_iter().chain(before).take(2 * EFFORTS_MAX + idle.len()) {
            if room == 0 {
                return;
            }
            if self.efforts.contains_key(&class) {
                continue;
            }
            let served = idle.iter().copied().find(|it| able(sessions, classes, *it, class));
            if let Some(worker) = served {
                idle.remove(&worker);
            } else if sessions.iter().any(|it| is_able(it, classes, class)) {
                self.efforts.insert(class, Effort::Waits { until: BootTime::default() });
                room -= 1;
            }
        }
    }

    /// Returns what to ask now.
    fn due(&mut self, now: BootTime) -> Vec<Ask> {
        let mut asks = Vec::new();
        for (class, effort) in &mut self.efforts {
            match effort {
                Effort::Leads { until, .. } if *until <= now => {
                    *effort = Effort::Waits { until: now.after(ANSWER_MAX) };
                }
                Effort::Leads { renew, .. } if *renew <= now => *renew = now.after(ANSWER_MAX),
                Effort::Waits { until } if *until <= now => *until = now.after(ANSWER_MAX),
                Effort::Leads { .. } | Effort::Waits { .. } => continue,
            }
            asks.push(Ask::Lead(*class));
        }
        asks
    }

    /// Keeps a worker free for each class that this server leads for.
    fn reserve(&mut self, sessions: &mut Sessions, classes: &Classes, now: BootTime) {
        let mut chosen: BTreeMap<WorkerId, ClassId> = BTreeMap::new();
        for (class, effort) in &mut self.efforts {
            let Effort::Leads { reserved, .. } = effort else { continue };
            let may =
                |it: &Session| !chosen.contains_key(&it.worker) && is_able(it, classes, *class);
            let kept = reserved.filter(|it| sessions.get(it.worker).is_some_and(may));
            let given_up = kept.filter(|it| it.until <= now);
            let busy = |it: &Session| (it.runs_alone(), it.busy(), it.worker);
            let best = |sessions: &Sessions, but: Option<WorkerId>| {
                let able = sessions.iter().filter(|it| may(it)).map(busy);
                able.filter(|it| Some(it.2) != but).min().map(|it| it.2)
            };
            *reserved = match (kept, given_up) {
                (Some(kept), None) => Some(kept),
                (_, given_up) => {
                    let patience = given_up.map_or(PATIENCE, |it| {
                        Span(it.patience.0.saturating_mul(2)).min(PATIENCE_MAX)
                    });
                    let but = given_up.map(|it| it.worker);
                    let worker = best(sessions, but).or(but);
                    worker.map(|worker| Reserved { worker, until: now.after(patience), patience })
                }
            };
            if let Some(reserved) = reserved {
                chosen.insert(reserved.worker, *class);
            }
        }
        for session in sessions.iter_mut() {
            let class = chosen.get(&session.worker).copied();
            if let (Some(class), None) = (class, session.reserved) {
                tracing::info!(
                    worker = &*session.facts.name,
                    class = class.0,
                    "keeping a worker free for a job that must run alone"
                );
            }
            session.reserved = class;
        }
    }
}

fn able(sessions: &Sessions, classes: &Classes, worker: WorkerId, class: ClassId) -> bool {
    sessions.get(worker).is_some_and(|session| is_able(session, classes, class))
}

fn is_able(session: &Session, classes: &Classes, id: ClassId) -> bool {
    let asked = classes.get(id).map(Class::asked);
    session.gets_work() && session.slots > 0 && asked.is_some_and(|it| session.can_take(id, &it))
}

#[cfg(test)]
mod tests;
