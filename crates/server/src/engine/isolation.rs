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
//! Where there is no other one, other servers have their chance first: the server resigns for a while.
//! At most one worker in ten is reserved or runs such a job while others wait for its slots.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::id::WorkerId;
use outlast_core::time::{BootTime, Span};
use outlast_store::command::ClassId;

use crate::engine::classes::{Class, Classes};
use crate::engine::profile::Profile;
use crate::engine::sessions::{Session, Sessions};

/// One in this many sessions may be reserved, and at least one.
const SESSIONS_PER_RESERVATION: usize = 10;
/// Most classes that one server makes an effort for at a time.
const EFFORTS_MAX: usize = 4;
/// How often the reservations are looked at.
const LOOK_EVERY: Span = Span::from_millis(50);
/// How long to wait for the store's answer before asking again.
const ANSWER_MAX: Span = Span::from_secs(2);
/// How long a server leads for a class. Another takes over that much later if it dies.
pub(crate) const LEASE: Span = Span::from_secs(6);
/// How long the first worker may take to become idle before another one is tried; then twice as
/// long each time.
const PATIENCE: Span = Span::from_secs(10);
const PATIENCE_MAX: Span = Span::from_secs(600);
/// How long a server that gave up its last worker leaves the lead to others. These ask again when the
/// lease is over of which they know.
const RESIGNED: Span = Span::from_secs(8);

/// What this server does for a class whose jobs wait for an idle worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effort {
    stage: Stage,
    /// How long the worker that is kept free next may take to become idle.
    patience: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has asked to lead. Without an answer it asks again then.
    Asks { again: BootTime },
    /// It leads until then, and asks to go on a while before.
    Leads { renew: BootTime, until: BootTime, reserved: Option<Reserved> },
}

/// An effort that is made later: another server leads, or no worker here became idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Later {
    from: BootTime,
    patience: Span,
}

/// A worker that is kept free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserved {
    worker: WorkerId,
    /// When another one is tried.
    until: BootTime,
}

/// The classes with jobs that must run alone and wait for a worker here.
#[derive(Debug, Default)]
pub(crate) struct Isolation {
    efforts: BTreeMap<ClassId, Effort>,
    later: BTreeMap<ClassId, Later>,
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

/// Classes whose jobs wait for a worker of their own, of all that are known.
struct Waiting<'a> {
    waiting: BTreeSet<ClassId>,
    classes: &'a Classes,
}

impl Isolation {
    /// The store says that this server leads for a class, for `lease` from `now`. Returns false if
    /// no job of it waits any more.
    pub(crate) fn leads(&mut self, class: ClassId, lease: Span, now: BootTime) -> bool {
        let Some(effort) = self.efforts.get_mut(&class) else { return false };
        let reserved = match effort.stage {
            Stage::Leads { reserved, .. } => reserved,
            Stage::Asks { .. } => None,
        };
        let (renew, until) = (now.after(Span(lease.0 / 2)), now.after(lease));
        effort.stage = Stage::Leads { renew, until, reserved };
        true
    }

    /// Another server leads for a class until then, or the store cannot say before. Meanwhile other
    /// classes have their turn.
    pub(crate) fn waits(&mut self, class: ClassId, until: BootTime) {
        if let Some(Effort { patience, .. }) = self.efforts.remove(&class) {
            self.later.insert(class, Later { from: until, patience });
            self.last = Some(class);
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
        self.later.retain(|class, it| it.from > now || waiting.contains(class));
        if waiting.is_empty() && self.efforts.is_empty() {
            return Vec::new();
        }
        let mut asks = Vec::new();
        // An idle worker takes one job: it serves one class.
        let mut crews = crews_of(sessions);
        let (last, mut done) = (&mut self.last, BTreeSet::new());
        self.efforts.retain(|class, effort| {
            let keep =
                waiting.contains(class) && take_worker(&mut crews, classes, *class) == Found::Busy;
            if !keep {
                *last = Some(*class);
                done.insert(*class);
                if matches!(effort.stage, Stage::Leads { .. }) {
                    asks.push(Ask::Resign(*class));
                }
            }
            keep
        });
        let limit = (sessions.iter().count() / SESSIONS_PER_RESERVATION).max(1);
        let alone = sessions.iter().filter(|it| it.runs_alone()).count();
        let room = limit.saturating_sub(alone).min(EFFORTS_MAX).saturating_sub(self.efforts.len());
        let waiting = waiting.difference(&done).copied().collect();
        self.begin(&Waiting { waiting, classes }, room, &mut crews, now);
        asks.extend(self.due(now));
        for class in self.reserve(sessions, classes, now) {
            self.waits(class, now.after(RESIGNED));
            asks.retain(|ask| *ask != Ask::Lead(class));
            asks.push(Ask::Resign(class));
        }
        asks
    }

    /// Begins an effort for classes that have none, in turn.
    fn begin(
        &mut self,
        waiting: &Waiting<'_>,
        mut room: usize,
        crews: &mut [Crew<'_>],
        now: BootTime,
    ) {
        let Waiting { waiting, classes } = waiting;
        let idle: usize = crews.iter().map(|crew| crew.idle).sum();
        let last = self.last.unwrap_or(ClassId(i64::MIN));
        let (before, behind): (Vec<ClassId>, Vec<ClassId>) =
            waiting.iter().partition(|class| **class <= last);
        let mut in_turn: Vec<ClassId> = behind.into_iter().chain(before).collect();
        in_turn.retain(|class| {
            let is_later = self.later.get(class).is_some_and(|it| it.from > now);
            !is_later && !self.efforts.contains_key(class)
        });
        for class in in_turn.into_iter().take(2 * EFFORTS_MAX + idle) {
            if room == 0 {
                return;
            }
            if take_worker(crews, classes, class) == Found::Busy {
                let patience = self.later.remove(&class).map_or(PATIENCE, |it| it.patience);
                let stage = Stage::Asks { again: now };
                self.efforts.insert(class, Effort { stage, patience });
                room -= 1;
            }
        }
    }

    /// Returns what to ask now.
    fn due(&mut self, now: BootTime) -> Vec<Ask> {
        let mut asks = Vec::new();
        for (class, Effort { stage, .. }) in &mut self.efforts {
            let again = now.after(ANSWER_MAX);
            match stage {
                Stage::Leads { until, .. } if *until <= now => *stage = Stage::Asks { again },
                Stage::Leads { renew, .. } if *renew <= now => *renew = again,
                Stage::Asks { again: at } if *at <= now => *at = again,
                Stage::Leads { .. } | Stage::Asks { .. } => continue,
            }
            asks.push(Ask::Lead(*class));
        }
        asks
    }

    /// Keeps a worker free for each class that this server leads for; returns the classes for which
    /// there is none, or none that was not given up.
    fn reserve(
        &mut self,
        sessions: &mut Sessions,
        classes: &Classes,
        now: BootTime,
    ) -> Vec<ClassId> {
        let mut chosen: BTreeMap<WorkerId, ClassId> = BTreeMap::new();
        let mut given_up = Vec::new();
        for (class, Effort { stage, patience }) in &mut self.efforts {
            let Stage::Leads { reserved, .. } = stage else { continue };
            let may =
                |it: &Session| !chosen.contains_key(&it.worker) && is_able(it, classes, *class);
            let kept = reserved.filter(|it| sessions.get(it.worker).is_some_and(may));
            let late = kept.filter(|it| it.until <= now).map(|it| it.worker);
            if late.is_some() {
                *patience = Span(patience.0.saturating_mul(2)).min(PATIENCE_MAX);
            }
            if late.is_some() || kept.is_none() {
                let others = sessions.iter().filter(|it| may(it) && Some(it.worker) != late);
                let next = others.min_by_key(|it| (it.runs_alone(), it.busy(), it.worker));
                let until = now.after(*patience);
                *reserved = next.map(|it| Reserved { worker: it.worker, until });
            }
            match reserved {
                Some(reserved) => drop(chosen.insert(reserved.worker, *class)),
                None => given_up.push(*class),
            }
        }
        for session in sessions.iter_mut() {
            let class = chosen.get(&session.worker).copied();
            if let (Some(class), None) = (class, session.restrictions.reserved) {
                tracing::info!(
                    worker = &*session.facts.name,
                    class = class.0,
                    "keeping a worker free for a job that must run alone"
                );
            }
            session.restrictions.reserved = class;
        }
        given_up
    }
}

/// Workers of one profile that take new work.
struct Crew<'a> {
    one: &'a Session,
    /// How many of them hold nothing, and are not kept free for a class.
    idle: usize,
}

/// Whether a crew can run the jobs of a class, and has a worker left that holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    None,
    Busy,
    Idle,
}

fn crews_of(sessions: &Sessions) -> Vec<Crew<'_>> {
    let mut crews: HashMap<*const Profile, Crew<'_>> = HashMap::new();
    for one in sessions.iter().filter(|it| takes_work(it)) {
        let crew = crews.entry(Arc::as_ptr(&one.profile)).or_insert(Crew { one, idle: 0 });
        crew.idle += usize::from(one.is_free_alone() && one.restrictions.reserved.is_none());
    }
    crews.into_values().collect()
}

/// Looks for a worker for jobs of a class. One that holds nothing is not found again.
fn take_worker(crews: &mut [Crew<'_>], classes: &Classes, id: ClassId) -> Found {
    let Some(asked) = classes.get(id).map(Class::asked) else { return Found::None };
    let mut found = Found::None;
    for crew in crews.iter_mut().filter(|crew| crew.one.can_take(id, &asked)) {
        if crew.idle > 0 {
            crew.idle -= 1;
            return Found::Idle;
        }
        found = Found::Busy;
    }
    found
}

fn takes_work(session: &Session) -> bool {
    session.gets_work() && session.capacity.slots > 0
}

fn is_able(session: &Session, classes: &Classes, id: ClassId) -> bool {
    let asked = classes.get(id).map(Class::asked);
    takes_work(session) && asked.is_some_and(|it| session.can_take(id, &it))
}

#[cfg(test)]
mod tests;
