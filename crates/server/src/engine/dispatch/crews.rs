//! Sessions that can run the same jobs, and how these are shared among them.
//!
//! ```text
//! sessions with room ─▶ crews: those of one profile ─▶ classes that each can take
//!     ─▶ domains: crews that have classes in common ─▶ shares, least loaded first
//! ```
//!
//! A plan looks at each session once and at each class once per crew, so its cost does not grow with
//! sessions times classes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use outlast_core::id::{JobId, WorkerId};
use outlast_store::command::ClassId;

use super::{Given, Planned, Room};
use crate::engine::asked::Merit;
use crate::engine::classes::{Class, Classes};
use crate::engine::profile::Profile;
use crate::engine::sessions::{Session, Sessions};

/// Most jobs that one claim takes, so that no worker makes a batch long.
const CLAIM_MAX: u32 = 512;

/// Of how many classes a claim takes the best jobs, if so many have some; of more only where these do
/// not have enough. Others have their turn in the next plan: a claim costs the more, the more classes
/// it looks at.
const CLASSES_MIN: usize = 64;

/// How many jobs of each class are left for a plan to give out.
pub(super) type Left = HashMap<ClassId, u64>;

/// How well a worker suits the jobs of a class: whether no retry avoids it, and how much it has of
/// what they prefer.
type Score = (bool, Merit);

/// When a member has its turn: those that retries avoid come last, then those that the jobs prefer
/// come first, then the least loaded.
type Preference = (bool, Reverse<Merit>, u64, WorkerId);

/// A session with room.
struct Member<'a> {
    session: &'a Session,
    room: u32,
    /// Jobs in flight, or about to be, per thousand slots.
    load: u64,
    /// How many jobs it gets.
    gets: u32,
}

/// Sessions with room that can take the same classes.
#[derive(Default)]
struct FreeCrew<'a> {
    members: Vec<Member<'a>>,
    /// Classes with claimable jobs that they can take.
    classes: Vec<(ClassId, &'a Class, Score)>,
    /// Whether retries of these avoid it.
    is_avoided: bool,
    /// How much it has of what those of one of these prefer.
    suits: Merit,
    /// The first crew that it has classes in common with, also by way of others.
    domain: usize,
    /// How many jobs one member gets at most.
    most: u32,
    /// How many of the jobs are left.
    left: u64,
    /// How many of them each member gets, if all get as many.
    share: u64,
}

/// The crews of a plan.
pub(super) struct FreeCrews<'a> {
    crews: Vec<FreeCrew<'a>>,
    fills: Room,
}

impl<'a> FreeCrews<'a> {
    /// Finds the sessions with room, and what they can take.
    pub(super) fn of(
        sessions: &'a Sessions,
        classes: &'a Classes,
        given: &Given,
        fills: Room,
    ) -> Self {
        let mut crews: Vec<FreeCrew<'a>> = Vec::new();
        let mut places: HashMap<(*const Profile, Option<WorkerId>), usize> = HashMap::new();
        for session in sessions.iter() {
            let room = fills.of(session, given);
            if room == 0 {
                continue;
            }
            // One that retries avoid is a crew of its own.
            let avoided = (!session.restrictions.avoided.is_empty()).then_some(session.worker);
            let profile = Arc::as_ptr(&session.profile);
            let place = *places.entry((profile, avoided)).or_insert_with(|| {
                crews.push(FreeCrew::default());
                crews.len() - 1
            });
            // A claim that waits for the worker's row counts: others are to get the jobs meanwhile.
            let load = u64::from(session.busy()) * 1000 / u64::from(session.capacity.slots.max(1));
            if let Some(crew) = crews.get_mut(place) {
                crew.members.push(Member { session, room, load, gets: 0 });
            }
        }
        for crew in &mut crews {
            crew.find_classes(classes, fills);
        }
        prefer(&mut crews);
        for crew in &mut crews {
            crew.settle_classes(fills);
        }
        crews.retain(|crew| !crew.classes.is_empty());
        Self { crews, fills }
    }

    /// Shares the jobs among the members, least loaded first. `left` is what earlier parts of the
    /// plan have left of the classes that they looked at.
    pub(super) fn share_out(mut self, left: &mut Left) -> Vec<Planned> {
        let mut pots = self.pour(left);
        let mut order = Vec::new();
        for (nth, crew) in self.crews.iter().enumerate() {
            let members = crew.members.iter().enumerate();
            order.extend(members.map(|(place, member)| {
                let turn =
                    (crew.is_avoided, Reverse(crew.suits), member.load, member.session.worker);
                (turn, nth, place)
            }));
        }
        // Claims get jobs in this order: those that the jobs prefer come first, and a retry is at the
        // front of its class.
        order.sort_unstable();
        // First each gets its share, then free slots get what others had no room for.
        let rounds = if self.fills == Room::Slots { 2 } else { 1 };
        for round in 0..rounds {
            for (_, nth, place) in &order {
                let Some(crew) = self.crews.get_mut(*nth) else { continue };
                let Some(pot) = pots.get_mut(crew.domain) else { continue };
                let share = if round == 0 { crew.share } else { u64::MAX };
                let most = share.min(crew.left).min(*pot);
                let Some(member) = crew.members.get_mut(*place) else { continue };
                let room = member.room.min(crew.most).saturating_sub(member.gets);
                let gets = room.min(u32::try_from(most).unwrap_or(u32::MAX));
                member.gets += gets;
                crew.left -= u64::from(gets);
                *pot -= u64::from(gets);
            }
        }
        self.exchange(&order, left);
        for crew in &self.crews {
            crew.spend(left);
        }
        let claims =
            self.crews.iter().map(|crew| crew.classes.iter().map(|(id, ..)| *id).collect());
        let claims: Vec<Arc<[ClassId]>> = claims.collect();
        let planned = order.into_iter().filter_map(|(_, nth, place)| {
            let (crew, classes) = (self.crews.get(nth)?, claims.get(nth)?);
            let member = crew.members.get(place).filter(|member| member.gets > 0)?;
            Some(Planned {
                worker: member.session.worker,
                session: member.session.number,
                classes: Arc::clone(classes),
                max: member.gets,
                alone: false,
                is_prefetch: self.fills == Room::Ahead,
                avoids: self.avoids(nth, member.session),
                tokens: 0,
            })
        });
        planned.collect()
    }

    /// Lets claims take what other workers leave to them, beyond their share: which jobs of a class
    /// are claimable is known to the store alone, so some of these claims may come back short.
    fn exchange(&mut self, order: &[(Preference, usize, usize)], left: &Left) {
        if self.fills == Room::Ahead {
            return;
        }
        let mut avoided: HashMap<ClassId, u64> = HashMap::new();
        for session in self.crews.iter().flat_map(|crew| &crew.members).map(|it| it.session) {
            for (id, it) in &session.restrictions.avoided {
                *avoided.entry(*id).or_default() += count(it.jobs.len());
            }
        }
        if avoided.is_empty() {
            return;
        }
        let mut given = vec![0_u64; self.crews.len()];
        for (_, nth, place) in order {
            let (Some(crew), Some(given)) = (self.crews.get_mut(*nth), given.get_mut(*nth)) else {
                continue;
            };
            let most = crew.most;
            let Some(member) = crew.members.get_mut(*place) else { continue };
            let own = &member.session.restrictions.avoided;
            let of_others = crew.classes.iter().map(|(id, ..)| {
                let all = avoided.get(id).copied().unwrap_or(0);
                let own = own.get(id).map_or(0, |it| count(it.jobs.len()));
                all.saturating_sub(own).min(left.get(id).copied().unwrap_or(0))
            });
            let more = of_others.sum::<u64>().saturating_sub(*given).min(crew.left);
            let room = member.room.min(most).saturating_sub(member.gets);
            let more = room.min(u32::try_from(more).unwrap_or(u32::MAX));
            member.gets += more;
            *given += u64::from(more);
            crew.left -= u64::from(more);
        }
    }

    /// Returns which retries a session leaves to others: of each class, as many as these take of its
    /// jobs, and all while workers of other servers have their chance.
    fn avoids(&self, of: usize, session: &Session) -> Vec<JobId> {
        let mut avoids = Vec::new();
        for (id, it) in &session.restrictions.avoided {
            let others = self.crews.iter().enumerate().filter(|(nth, _)| *nth != of);
            let takers = others.filter_map(|(_, crew)| Some((crew.takes(*id)?, crew)));
            let (mut taken, mut ready) = (0_u64, 0_u64);
            for (class, crew) in takers {
                taken += crew.members.iter().map(|member| u64::from(member.gets)).sum::<u64>();
                ready = class.ready.wanted();
            }
            // Some of them may not be claimable yet, or not any more.
            let is_enough = it.waits || (taken > 0 && taken >= ready.min(count(it.jobs.len())));
            let most = if is_enough { u64::MAX } else { taken };
            avoids.extend(it.jobs.iter().take(usize::try_from(most).unwrap_or(usize::MAX)));
        }
        avoids
    }

    /// Finds what is left for each crew, and how much of it is one member's share. Returns what is
    /// left for each domain.
    fn pour(&mut self, left: &mut Left) -> Vec<u64> {
        let mut takers: HashMap<ClassId, u64> = HashMap::new();
        for crew in &self.crews {
            let members = count(crew.members.len());
            for (id, class, _) in &crew.classes {
                left.entry(*id).or_insert_with(|| class.ready.wanted());
                *takers.entry(*id).or_default() += members;
            }
        }
        self.find_domains();
        let mut pots = vec![0_u64; self.crews.len()];
        let mut poured: HashSet<ClassId> = HashSet::new();
        for crew in &mut self.crews {
            let mut thousandths = 0_u64;
            for (id, ..) in &crew.classes {
                let of_class = left.get(id).copied().unwrap_or(0);
                let takers = takers.get(id).copied().unwrap_or(1).max(1);
                crew.left = crew.left.saturating_add(of_class);
                thousandths = thousandths.saturating_add(of_class.saturating_mul(1000) / takers);
                if let Some(pot) = pots.get_mut(crew.domain).filter(|_| poured.insert(*id)) {
                    *pot = pot.saturating_add(of_class);
                }
            }
            crew.share = thousandths.div_ceil(1000);
            // Jobs that are fetched ahead wait behind running ones: the last few, one for each that
            // could take them, are left to those that have a free slot first.
            if self.fills == Room::Ahead && thousandths <= 1000 {
                crew.share = 0;
            }
        }
        pots
    }

    /// Finds which crews have classes in common.
    fn find_domains(&mut self) {
        let mut parents: Vec<usize> = (0..self.crews.len()).collect();
        let mut first: HashMap<ClassId, usize> = HashMap::new();
        for (nth, crew) in self.crews.iter().enumerate() {
            for (id, ..) in &crew.classes {
                let other = *first.entry(*id).or_insert(nth);
                let (one, other) = (root(&mut parents, nth), root(&mut parents, other));
                if let Some(parent) = parents.get_mut(one.max(other)) {
                    *parent = one.min(other);
                }
            }
        }
        for (nth, crew) in self.crews.iter_mut().enumerate() {
            crew.domain = root(&mut parents, nth);
        }
    }
}

/// Returns the first crew of a domain, and shortens the way from this one to it.
fn root(parents: &mut [usize], mut of: usize) -> usize {
    while let Some(parent) = parents.get(of).copied().filter(|parent| *parent != of) {
        let above = parents.get(parent).copied().unwrap_or(parent);
        if let Some(entry) = parents.get_mut(of) {
            *entry = above;
        }
        of = above;
    }
    of
}

impl<'a> FreeCrew<'a> {
    /// Finds the classes that the members can take.
    fn find_classes(&mut self, classes: &'a Classes, fills: Room) {
        let Some(session) = self.members.first().map(|member| member.session) else { return };
        let room: u64 = self.members.iter().map(|member| u64::from(member.room)).sum();
        let is_ahead = fills == Room::Ahead;
        let found = classes.claimable_in(&session.profile.queues, session.next_class(is_ahead));
        let mut ready = 0_u64;
        for (id, class) in found.filter(|(_, class)| !class.key.isolated) {
            if self.classes.len() >= CLASSES_MIN && ready >= room {
                session.set_next_class(is_ahead, id);
                return;
            }
            if let Some(merit) = session.merit(id, &class.asked()) {
                if is_ahead && class.prefetch.stops_others() {
                    // No slot would become free for these jobs.
                    self.classes.clear();
                    return;
                }
                if is_ahead && class.prefetch.most() == 0 {
                    continue;
                }
                ready = ready.saturating_add(class.ready.wanted());
                self.classes.push((
                    id,
                    class,
                    (!session.restrictions.avoided.contains_key(&id), merit),
                ));
            }
        }
    }

    /// Leaves out what others than the members are to take, once it is known what these prefer.
    fn settle_classes(&mut self, fills: Room) {
        let Some(session) = self.members.first().map(|member| member.session) else { return };
        self.classes.retain(|(id, class, _)| {
            let avoided = session.restrictions.avoided.get(id);
            !avoided.is_some_and(|it| it.waits && class.ready.may_be(count(it.jobs.len())))
        });
        self.most = CLAIM_MAX;
        if fills == Room::Ahead {
            let all = self.classes.iter().map(|(_, class, _)| class.prefetch.most());
            self.most = all.fold(0, u32::saturating_add).min(CLAIM_MAX);
        }
        self.classes.sort_unstable_by_key(|(id, ..)| *id);
        self.suits = self.classes.iter().map(|(_, _, (_, merit))| *merit).max().unwrap_or_default();
        self.is_avoided = self.classes.iter().any(|(_, _, (is_free, _))| !is_free);
    }

    /// Returns a class if the members take jobs of it.
    fn takes(&self, id: ClassId) -> Option<&'a Class> {
        self.classes.iter().find(|(of, ..)| *of == id).map(|(_, class, _)| *class)
    }

    /// Takes what the members get from what is left of the classes.
    fn spend(&self, left: &mut Left) {
        let mut gets: u64 = self.members.iter().map(|member| u64::from(member.gets)).sum();
        for (id, ..) in &self.classes {
            if gets == 0 {
                return;
            }
            if let Some(left) = left.get_mut(id) {
                let of_class = gets.min(*left);
                (gets, *left) = (gets - of_class, *left - of_class);
            }
        }
    }
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

/// Leaves out crews that suit a class less than others which have room for all of its jobs. Only of
/// classes with preferences, or with retries that avoid a worker.
fn prefer(crews: &mut [FreeCrew<'_>]) {
    let mut rooms: BTreeMap<ClassId, (u64, BTreeMap<Score, u64>)> = BTreeMap::new();
    let avoided = |crew: &FreeCrew<'_>, id: ClassId| {
        crew.members.iter().any(|member| member.session.restrictions.avoided.contains_key(&id))
    };
    let mut picky: HashSet<ClassId> = HashSet::new();
    for crew in &*crews {
        picky.extend(crew.classes.iter().filter_map(|(id, class, _)| {
            (class.asked().prefers_some() || avoided(crew, *id)).then_some(*id)
        }));
    }
    if picky.is_empty() {
        return;
    }
    for crew in &*crews {
        let room: u64 = crew.members.iter().map(|member| u64::from(member.room)).sum();
        for (id, class, score) in crew.classes.iter().filter(|(id, ..)| picky.contains(id)) {
            let (_, rooms) =
                rooms.entry(*id).or_insert_with(|| (class.ready.wanted(), BTreeMap::new()));
            *rooms.entry(*score).or_default() += room;
        }
    }
    let least = rooms.into_iter().map(|(id, (mut missing, rooms))| {
        let enough = rooms.into_iter().rev().find(|(_, room)| {
            missing = missing.saturating_sub(*room);
            missing == 0
        });
        (id, enough.map(|(score, _)| score).unwrap_or_default())
    });
    let least: HashMap<ClassId, Score> = least.collect();
    for crew in crews {
        crew.classes.retain(|(id, _, score)| least.get(id).is_none_or(|least| score >= least));
    }
}
