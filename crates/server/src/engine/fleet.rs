//! The workers of every server on the store, by what they can run: who is eligible for a class.
//!
//! ```text
//! lease monitor, each second: the store's briefs ─┐
//! sessions here, as they come, go and change ─────┴▶ crews (equal profiles) ─▶ class × crew, cached
//! ```
//!
//! Eligibility is a property of the whole fleet. The sessions of this server only make it fresher:
//! they show workers that the store has not listed yet, and workers that do not poll. The other
//! servers signal which of theirs do not poll, so that all judge alike.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use outlast_core::id::WorkerId;
use outlast_core::selector::Placement;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_core::worker::liveness::{Liveness, Phase};
use outlast_store::command::ClassKey;
use outlast_store::record::{WorkerBrief, WorkerRecord};

use crate::clock::boot_time;
use crate::engine::asked::Asked;
use crate::engine::profile::{Misfit, Profile};
use crate::engine::session_facts::{Condition, NOT_POLLING_AFTER, SessionFacts};

/// When more classes than this are cached, the cache is cleared.
const CLASSES_MAX: usize = 50_000;

/// A worker of the fleet.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) brief: WorkerBrief,
    pub(crate) name: Arc<str>,
    pub(crate) profile: Arc<Profile>,
}

/// Workers of equal profile.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) profile: Arc<Profile>,
    /// How many are in which condition, except those that are gone.
    pub(crate) live: Vec<(Condition, usize)>,
    /// Name of a live one.
    pub(crate) name: Option<Arc<str>>,
    /// How many of the recently gone workers had this profile.
    pub(crate) gone: usize,
    pub(crate) last_heartbeat: Option<Timestamp>,
}

impl Crew {
    pub(crate) fn count(&self) -> usize {
        self.live.iter().map(|(_, count)| count).sum()
    }

    fn add(&mut self, condition: Condition, name: &Arc<str>, heartbeat: Option<Timestamp>) {
        self.last_heartbeat = self.last_heartbeat.max(heartbeat);
        if condition == Condition::Gone {
            self.gone += 1;
            return;
        }
        self.name.get_or_insert_with(|| Arc::clone(name));
        match self.live.iter_mut().find(|(known, _)| *known == condition) {
            Some((_, count)) => *count += 1,
            None => self.live.push((condition, 1)),
        }
    }
}

/// For each crew whether it can run a class.
pub(crate) type Fit = Arc<[Result<(), Misfit>]>;

/// The crews at one moment.
#[derive(Debug, Default)]
pub(crate) struct Crews {
    pub(crate) crews: Vec<Crew>,
    /// The cached results by what the queue asks, and class. They hold for the same profiles in the
    /// same order.
    fits: Arc<Mutex<HashMap<Placement, HashMap<ClassKey, Fit>>>>,
}

impl Crews {
    /// Returns which crews can run the class.
    pub(crate) fn fit(&self, asked: &Asked<'_>) -> Fit {
        let (key, by_queue) = (asked.key, asked.by_queue.as_ref());
        let mut fits = self.fits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fit) = fits.get(by_queue).and_then(|classes| classes.get(key)) {
            return Arc::clone(fit);
        }
        let fit: Fit = self.crews.iter().map(|crew| crew.profile.fits(asked)).collect();
        if fits.values().map(HashMap::len).sum::<usize>() >= CLASSES_MAX {
            fits.clear();
        }
        fits.entry(by_queue.clone()).or_default().insert(key.clone(), Arc::clone(&fit));
        fit
    }

    /// Returns the crews that can run the class, and how many live workers cannot for what
    /// reason.
    pub(crate) fn judge(&self, asked: &Asked<'_>) -> (Vec<&Crew>, Vec<(Misfit, usize)>) {
        let fit = self.fit(asked);
        let (mut able, mut misfits) = (Vec::new(), Vec::<(Misfit, usize)>::new());
        for (crew, fit) in self.crews.iter().zip(fit.iter()) {
            match fit {
                Ok(()) => able.push(crew),
                Err(misfit) => match misfits.iter_mut().find(|(known, _)| known == misfit) {
                    Some((_, count)) => *count += crew.count(),
                    None => misfits.push((*misfit, crew.count())),
                },
            }
        }
        misfits.retain(|(_, count)| *count > 0);
        misfits.sort_unstable();
        (able, misfits)
    }

    /// Returns the condition of some worker that can run the class: the best there is.
    pub(crate) fn best(&self, asked: &Asked<'_>) -> Option<Condition> {
        let fit = self.fit(asked);
        let able = self.crews.iter().zip(fit.iter()).filter(|(_, fit)| fit.is_ok());
        able.flat_map(|(crew, _)| crew.live.iter().map(|(condition, _)| *condition)).min()
    }
}

/// What is known of a worker that beats but does not poll, and has no session here: the code that
/// blocks it may also have cost it its session.
#[derive(Clone, Copy, Debug)]
struct NotPolling {
    age: Span,
    heard: BootTime,
}

/// What is known of such a worker holds no longer than this: its server signals again with each of
/// its heartbeats.
const NOT_POLLING_MAX: Span = Span::from_secs(30);

/// What one server knows of the fleet.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    members: RwLock<Arc<HashMap<WorkerId, Member>>>,
    /// Sessions of this server.
    sessions: RwLock<HashMap<WorkerId, Arc<SessionFacts>>>,
    /// Workers without a session here that beat but do not poll.
    not_polling: Mutex<HashMap<WorkerId, NotPolling>>,
    profiles: Mutex<HashSet<Arc<Profile>>>,
    crews: Mutex<Arc<Crews>>,
    stale: AtomicBool,
    /// When the store was last asked for its workers, if it answered.
    read: Mutex<Option<BootTime>>,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    /// Returns every worker that the store listed, at most a moment ago.
    pub(crate) fn members(&self) -> Arc<HashMap<WorkerId, Member>> {
        Arc::clone(&self.members.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns which of these workers are new or have changed: their profiles must be read.
    pub(crate) fn unknown(&self, briefs: &[WorkerBrief]) -> Vec<WorkerId> {
        let members = self.members();
        let known = |brief: &&WorkerBrief| {
            members.get(&brief.id).is_some_and(|it| it.brief.updated == brief.updated)
        };
        briefs.iter().filter(|brief| !known(brief)).map(|brief| brief.id).collect()
    }

    /// Returns how long ago the store was asked for its workers; `None` if it never answered.
    pub(crate) fn age(&self, now: BootTime) -> Option<Span> {
        locked(&self.read).map(|read| now.since(read))
    }

    /// Sets what the store listed when it was asked at `asked`, and the records of the unknown
    /// workers.
    pub(crate) fn set(&self, briefs: Vec<WorkerBrief>, read: &[WorkerRecord], asked: BootTime) {
        *locked(&self.read) = Some(asked);
        let before = self.members();
        let read: HashMap<WorkerId, &WorkerRecord> = read.iter().map(|it| (it.id, it)).collect();
        let mut members = HashMap::with_capacity(briefs.len());
        for brief in briefs {
            let member = match (read.get(&brief.id), before.get(&brief.id)) {
                (Some(record), _) => Member {
                    // A row that changed since it was listed is read again next time.
                    brief,
                    name: record.name.as_str().into(),
                    profile: self.intern(Profile::of(record)),
                },
                (None, Some(known)) => Member { brief, ..known.clone() },
                (None, None) => continue,
            };
            members.insert(brief.id, member);
        }
        locked(&self.not_polling).retain(|worker, _| members.contains_key(worker));
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(members);
        self.changed();
    }

    /// Records how long ago a worker polled that has no session here; returns whether that changes
    /// whether it counts as polling. Its age is seen when the store's workers are read next.
    pub(crate) fn polled(&self, worker: WorkerId, age: Span, now: BootTime) -> bool {
        let mut not_polling = locked(&self.not_polling);
        let changed = if age >= NOT_POLLING_AFTER {
            not_polling.insert(worker, NotPolling { age, heard: now }).is_none()
        } else {
            not_polling.remove(&worker).is_some()
        };
        if changed {
            self.changed();
        }
        changed
    }

    /// Returns the condition of a worker that the store lists.
    fn condition(&self, brief: &WorkerBrief, session: Option<&SessionFacts>) -> Condition {
        match (brief.standing.liveness, brief.standing.phase) {
            (Liveness::Lapsed | Liveness::Gone, _) => Condition::Gone,
            // For a worker attached here, the session knows better: the store is read once a second.
            (Liveness::Suspect, _) => session.map_or(Condition::Away, SessionFacts::condition),
            (Liveness::Live, Phase::Running) => match session {
                Some(session) => session.condition(),
                None => self.condition_elsewhere(brief),
            },
            (Liveness::Live, Phase::Quiet) if brief.unhealthy => Condition::Unhealthy,
            (Liveness::Live, Phase::Quiet) => Condition::Quiet,
            (Liveness::Live, Phase::Draining) => Condition::Draining,
        }
    }

    /// Returns the condition of a live worker without a session here.
    fn condition_elsewhere(&self, brief: &WorkerBrief) -> Condition {
        let known = locked(&self.not_polling).get(&brief.id).copied();
        let max = brief.lease.min(NOT_POLLING_MAX);
        let recent = known.filter(|it| boot_time().since(it.heard) < max);
        recent.map_or(Condition::Active, |it| Condition::NotPollingThere(it.age))
    }

    /// Returns whether the store has this profile for a worker; a worker that attaches again may
    /// offer something else.
    pub(crate) fn has(&self, worker: WorkerId, profile: &Profile) -> bool {
        self.members().get(&worker).is_some_and(|known| *known.profile == *profile)
    }

    /// Returns the one copy of a profile.
    pub(crate) fn intern(&self, profile: Profile) -> Arc<Profile> {
        let mut profiles = locked(&self.profiles);
        if let Some(known) = profiles.get(&profile) {
            return Arc::clone(known);
        }
        // Unused profiles are dropped each time the number has doubled.
        if profiles.len() >= 64 && profiles.len().is_power_of_two() {
            profiles.retain(|known| Arc::strong_count(known) > 1);
        }
        let profile = Arc::new(profile);
        profiles.insert(Arc::clone(&profile));
        profile
    }

    pub(crate) fn session(&self, worker: WorkerId) -> Option<Arc<SessionFacts>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&worker).map(Arc::clone)
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<SessionFacts>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.values().map(Arc::clone).collect()
    }

    /// Records a new session; returns whether its worker was known not to poll.
    pub(crate) fn attached(&self, session: Arc<SessionFacts>) -> bool {
        let worker = session.worker;
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        let before = sessions.insert(worker, session);
        let known = locked(&self.not_polling).remove(&worker);
        self.changed();
        known.is_some() || before.is_some_and(|before| before.not_polling_for().is_some())
    }

    pub(crate) fn detached(&self, worker: WorkerId) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        let gone = sessions.remove(&worker);
        if let Some(age) = gone.and_then(|gone| gone.not_polling_for()) {
            let known = NotPolling { age, heard: boot_time() };
            locked(&self.not_polling).insert(worker, known);
        }
        self.changed();
    }

    /// Records that the condition of some session has changed.
    pub(crate) fn changed(&self) {
        self.stale.store(true, Ordering::Release);
    }

    /// Returns the current crews; builds them again only if something has changed.
    pub(crate) fn crews(&self) -> Arc<Crews> {
        let mut crews = locked(&self.crews);
        if self.stale.swap(false, Ordering::AcqRel) {
            *crews = Arc::new(self.build_crews(&crews));
        }
        Arc::clone(&crews)
    }

    fn build_crews(&self, before: &Crews) -> Crews {
        let members = self.members();
        let mut crews: Vec<Crew> = Vec::new();
        let mut places: HashMap<*const Profile, usize> = HashMap::new();
        // In the same order as before, so that the cached results still hold.
        for crew in &before.crews {
            places.insert(Arc::as_ptr(&crew.profile), crews.len());
            crews.push(empty(&crew.profile));
        }
        let mut add = |profile: &Arc<Profile>, condition, name: &Arc<str>, beat| {
            let place = *places.entry(Arc::as_ptr(profile)).or_insert_with(|| {
                crews.push(empty(profile));
                crews.len() - 1
            });
            if let Some(crew) = crews.get_mut(place) {
                crew.add(condition, name, beat);
            }
        };
        for member in members.values() {
            let session = self.session(member.brief.id);
            let condition = self.condition(&member.brief, session.as_deref());
            // What it offered when it attached is newer than its stored profile.
            let profile = session.as_ref().map_or(&member.profile, |session| &session.profile);
            add(profile, condition, &member.name, Some(member.brief.last_heartbeat));
        }
        for session in self.sessions() {
            if !members.contains_key(&session.worker) {
                add(&session.profile, session.condition(), &session.name, None);
            }
        }
        let known = crews.len() == before.crews.len();
        let used = |crew: &Crew| crew.gone > 0 || !crew.live.is_empty();
        if known && crews.iter().all(used) {
            return Crews { crews, fits: Arc::clone(&before.fits) };
        }
        crews.retain(used);
        Crews { crews, fits: Arc::default() }
    }
}

fn empty(profile: &Arc<Profile>) -> Crew {
    let profile = Arc::clone(profile);
    Crew { profile, live: Vec::new(), name: None, gone: 0, last_heartbeat: None }
}

#[cfg(test)]
mod tests;
