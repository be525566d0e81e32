//! Claims of jobs that limits may hold back: their lanes, and the gates that they pass.
//!
//! Where the first look ([`super::front`]) finds too few, or comes to a fair class, three more round
//! trips follow, and two for each further page of lanes:
//!
//! ```text
//! lanes, and the version of the limits ─▶ lock their gates, read what these count; heads of lanes
//!                                      ─▶ take the chosen heads
//! ```
//!
//! A gate that another server has locked or is making is busy, and its lanes are left out: nothing
//! waits here. What a gate counts is read after it was locked. Others can only end attempts
//! meanwhile. One that looks shut is not locked.

mod sql;

use std::collections::{BTreeMap, HashMap, HashSet};

use outlast_core::limit::GateId;
use outlast_core::time::Timestamp;
use outlast_store::apply::gate_changes::GateChanges;
use outlast_store::apply::lane_cache::FoundBy;
use outlast_store::apply::limit::{
    Chosen, Head, Lane, LaneGate, Left, Limits, Terms, heads_of_each,
};
use outlast_store::apply::walk::{Stretch, Walk, Way};
use outlast_store::codec;
use outlast_store::command::ClassId;
use tokio_postgres::Row;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{STORED, get, text};
use crate::writer::Tx;
use crate::writer::claim::TAKE_CHOSEN;
use crate::writer::front::KEYS;
use crate::writer::limit::LOCK;
use sql::{COUNT_GATES, FRONT, HEADS, KEEP_STARTS, LOCK_GATES, MAKE_GATES, NOT_PAUSED};
pub(super) use sql::{LANES, VERSION_SHARED};

/// Of the locks of gates that are being made: `lim` as a number.
pub(super) const MAKING: i32 = 0x006c_696d;

/// What a claim by limits takes.
#[derive(Debug, Default)]
pub(super) struct TakenByLimits {
    /// Rows of taken jobs; of each page of lanes best first.
    pub(super) rows: Vec<Row>,
    /// The lane of each that passed gates, by the job's number.
    pub(super) lanes: HashMap<i64, Lane>,
    /// What is left in the classes if these are fewer than were asked for.
    pub(super) left: Left,
    /// What gates count more once these jobs are in flight.
    pub(super) charged: GateChanges,
    /// Whether these are fewer than were asked for because of their length.
    pub(super) cut: bool,
}

/// What a claim by limits wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    /// How many jobs at most.
    pub(super) max: usize,
    /// Whether they are for workers without a free slot.
    pub(super) is_prefetch: bool,
    /// Numbers of jobs that it leaves to others.
    pub(super) avoided: &'a [i64],
}

/// Lanes that are chosen from, at a time.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) lanes: &'a [Lane],
    pub(super) now: Timestamp,
    pub(super) avoided: &'a [i64],
}

/// A claim's way through the lanes of its classes.
pub(super) struct Look {
    limits: Limits,
    pub(super) way: Way,
}

impl Tx<'_> {
    /// Takes at most `wanted` jobs of the classes, best first, as far as limits let them start, but
    /// for the `avoided` ones.
    pub(super) async fn take_by_limits(
        &mut self,
        classes: &[ClassId],
        wanted: i64,
        is_prefetch: bool,
        avoided: &[i64],
    ) -> Result<TakenByLimits, Failure> {
        let max = usize::try_from(wanted.min(self.cache.claim_length.jobs())).unwrap_or(0);
        let wish = Wish { max, is_prefetch, avoided };
        let mut taken = TakenByLimits::default();
        let (beyond, look) = self.take_of_front(classes, wish, &mut taken).await?;
        if !beyond.is_empty() {
            self.take_beyond(&beyond, wish, &mut taken).await?;
        }
        if let Some(look) = look {
            self.take_on_way(look, FoundBy::First, wish, &mut taken).await?;
        }
        if taken.rows.len() >= max {
            taken.left = Left::default();
            taken.cut = usize::try_from(wanted).is_ok_and(|wanted| max < wanted);
        }
        taken.left.again.sort_unstable();
        taken.left.again.dedup();
        Ok(taken)
    }

    /// Takes jobs of lanes, wherever they are in their classes.
    async fn take_beyond(
        &mut self,
        classes: &[ClassId],
        wish: Wish<'_>,
        taken: &mut TakenByLimits,
    ) -> Result<(), Failure> {
        let still = Wish { max: wish.max.saturating_sub(taken.rows.len()), ..wish };
        match self.look(classes, still, taken).await? {
            Some(look) => self.take_on_way(look, FoundBy::Walk, wish, taken).await?,
            // Someone is changing the limits.
            None => taken.left.again.extend(classes),
        }
        Ok(())
    }

    /// Takes jobs of lanes, page by page, while the claim is short.
    async fn take_on_way(
        &mut self,
        mut look: Look,
        by: FoundBy,
        Wish { max, is_prefetch, avoided }: Wish<'_>,
        taken: &mut TakenByLimits,
    ) -> Result<(), Failure> {
        while taken.rows.len() < max {
            if !look.way.has_lanes() {
                if look.way.walk.is_over() {
                    taken.left.append(look.way.left());
                    break;
                }
                look.way.lanes = self.next_lanes(&mut look).await?;
                continue;
            }
            let lanes = &look.way.lanes;
            let still = max.saturating_sub(taken.rows.len());
            let each = heads_of_each(lanes.len(), still);
            let most: Vec<usize> =
                lanes.iter().map(|lane| lane.heads_worth_reading(each)).collect();
            let (heads, now) = self.heads(lanes, &most, avoided).await?;
            let turns = self.cache.shares.turns(lanes, heads, now);
            let terms = terms(&self.batch.outbox.gates, taken, now, is_prefetch);
            let mut chosen = self.gates.choose(lanes, turns, still, terms);
            self.take_chosen(Choice { lanes, now, avoided }, &mut chosen, taken).await?;
            self.cache.lane_cache.note(lanes, &chosen, self.batch.context.now, by);
            self.keep_starts(lanes);
            if each < still {
                taken.left.again.extend(chosen.exhausted(lanes, each));
            }
            look.way.tried(chosen);
        }
        self.cache.lane_cache.walked(&look.way.walk);
        Ok(())
    }

    /// Returns the lanes in which a slot has become free and those of the first jobs, which are looked
    /// at first, and those of the first page, which are looked at if these are not enough; `None`
    /// while the limits are being changed.
    pub(super) async fn look(
        &mut self,
        classes: &[ClassId],
        Wish { max: wanted, is_prefetch, .. }: Wish<'_>,
        taken: &TakenByLimits,
    ) -> Result<Option<Look>, Failure> {
        let limits = self.known_limits().await?.limits;
        self.learn_classes(classes.iter().copied()).await?;
        let needs_lanes = |class: &ClassId| {
            self.cache.classes.key(*class).is_ok_and(|key| limits.need_lanes(key))
        };
        let (apart, whole): (Vec<ClassId>, Vec<ClassId>) =
            classes.iter().partition(|class| needs_lanes(class));
        let (reach, chance) = (self.cache.lane_cache.reach(), self.batch.context.first_lane());
        let start = |class: &ClassId| (*class, self.cache.lane_cache.start_of_walk(*class, chance));
        let mut walk = Walk::new(apart.iter().map(start), reach);
        let terms = terms(&self.batch.outbox.gates, taken, self.batch.context.now, is_prefetch);
        let freed = |class: &ClassId| {
            let lanes = self.cache.lane_cache.freed(*class, wanted, terms);
            lanes.into_iter().map(|lane| (*class, lane)).collect::<Vec<_>>()
        };
        let freed: Vec<(ClassId, i64)> = apart.iter().flat_map(freed).collect();
        let numbers = |classes: &[ClassId]| classes.iter().map(|class| class.0).collect::<Vec<_>>();
        let mut statements = vec![
            Statement::new(VERSION_SHARED, values![LOCK]),
            Statement::new(NOT_PAUSED, values![numbers(classes)]),
        ];
        let stretches = walk.next();
        if !apart.is_empty() {
            let (now, jobs) = (self.batch.context.now.0, i64::from(reach.walk_jobs));
            let most = i64::from(reach.front_lanes(wanted));
            let (ranks, seqs) = self.lowest_of(&numbers(&apart));
            let values = values![numbers(&apart), now, jobs, most, ranks, seqs];
            statements.push(Statement::new(FRONT, values));
            statements.push(self.lanes_of(&stretches, &walk));
        }
        if !freed.is_empty() {
            let (classes, lanes): (Vec<i64>, Vec<i64>) =
                freed.iter().map(|(class, lane)| (class.0, *lane)).unzip();
            let (ranks, seqs) = self.lowest_of(&classes);
            statements.push(Statement::new(KEYS, values![classes, lanes, ranks, seqs]));
        }
        let read = self.query_all(statements).await?;
        let rows = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let Some(version) = rows(0).first() else { return Ok(None) };
        self.confirm_limits(get(version, 0)?)?;
        let mut open = Vec::new();
        for row in rows(1) {
            open.push(ClassId(get(row, 0)?));
        }
        let mut lanes = Vec::new();
        for class in whole.iter().filter(|class| open.contains(class)) {
            if let Ok(key) = self.cache.classes.key(*class) {
                lanes.push(limits.whole(*class, key));
            }
        }
        let mut empty: HashSet<(ClassId, i64)> = freed.into_iter().collect();
        for row in rows(4).iter().chain(rows(2)) {
            let (class, number) = (ClassId(get(row, 0)?), get(row, 1)?);
            if walk.look_at(class, number) {
                lanes.push(self.lane(&limits, (class, number), get(row, 2)?)?);
            }
            empty.remove(&(class, number));
        }
        empty.into_iter().for_each(|(class, lane)| self.cache.lane_cache.are_empty(class, [lane]));
        let mut rest = self.page((&limits, &mut walk), &stretches, rows(3))?;
        lanes.retain(|lane| open.contains(&lane.class));
        rest.retain(|lane| open.contains(&lane.class));
        walk.retain(|class| open.contains(&class));
        // Shares are fair among all that are looked at.
        lanes.extend(rest.extract_if(.., |lane| lane.share.is_some()));
        Ok(Some(Look { limits, way: Way::new(walk, lanes, rest) }))
    }

    async fn next_lanes(&mut self, look: &mut Look) -> Result<Vec<Lane>, Failure> {
        let Look { limits, way } = look;
        let stretches = way.walk.next();
        let Statement { sql, values } = self.lanes_of(&stretches, &way.walk);
        let rows = self.query(sql, values).await?;
        self.page((limits, &mut way.walk), &stretches, &rows)
    }

    /// Returns the lanes of the next page, of what was read of its stretches.
    fn page(
        &mut self,
        (limits, walk): (&Limits, &mut Walk),
        stretches: &[Stretch],
        rows: &[Row],
    ) -> Result<Vec<Lane>, Failure> {
        let mut read = vec![Vec::new(); stretches.len()];
        let mut keys: HashMap<(ClassId, i64), Option<&str>> = HashMap::new();
        for row in rows {
            let nth = usize::try_from(get::<i64>(row, 0)?).unwrap_or(usize::MAX);
            let (Some(of), Some(read)) = (stretches.get(nth), read.get_mut(nth)) else { continue };
            let number = get(row, 1)?;
            read.push(number);
            keys.insert((of.class, number), get(row, 2)?);
        }
        let mut lanes = Vec::new();
        for lane in walk.take(stretches, &read) {
            lanes.push(self.lane(limits, lane, keys.get(&lane).copied().flatten())?);
        }
        Ok(lanes)
    }

    fn lane(
        &mut self,
        limits: &Limits,
        (class, number): (ClassId, i64),
        keys: Option<&str>,
    ) -> Result<Lane, Failure> {
        let keys = codec::keys_of(keys)?;
        let lane = limits.lane((class, self.cache.classes.key(class)?), number, keys);
        self.cache.lane_cache.learn(lane.clone());
        Ok(lane)
    }

    /// Locks and reads the gates of the lanes, and returns the first jobs of each, at most so many
    /// as `most` says, with the time.
    pub(super) async fn heads(
        &mut self,
        lanes: &[Lane],
        most: &[usize],
        avoided: &[i64],
    ) -> Result<(Vec<Head>, Timestamp), Failure> {
        let mut statements = self.reading_of_gates(lanes);
        statements.push(self.reading_of_heads(lanes, most, avoided));
        let mut read = self.query_all(statements).await?;
        let rows = read.pop().unwrap_or_default();
        let time = self.read_gates(&read)?;
        let mut heads = Vec::new();
        for row in &rows {
            let lane = usize::try_from(get::<i64>(row, 0)?).unwrap_or(usize::MAX);
            heads.push(Head { lane, rank: get(row, 1)?, seq: get(row, 2)? });
        }
        Ok((heads, time))
    }

    /// Takes in the answers of [`Self::reading_of_gates`], and returns the time.
    fn read_gates(&mut self, read: &[Vec<Row>]) -> Result<Timestamp, Failure> {
        let rows = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let mut time = self.batch.context.now;
        let mut locked: HashMap<i64, i64> = HashMap::new();
        for row in rows(1) {
            locked.insert(get(row, 0)?, get(row, 1)?);
        }
        for row in rows(2) {
            let (id, in_flight): (i64, i64) = (get(row, 0)?, get(row, 1)?);
            match (locked.get(&id), get::<Option<i64>>(row, 2)?) {
                (Some(used_until), _) => self.gates.read(GateId(id), in_flight, *used_until),
                (None, Some(used_until)) => self.gates.look_at(GateId(id), in_flight, used_until),
                (None, None) => {}
            }
            if self.clock.own.is_none() {
                time = time.max(Timestamp(get(row, 3)?));
            }
        }
        // Without gates to lock, there was no time to read.
        Ok(self.gates.at_least(time))
    }

    fn reading_of_gates(&self, lanes: &[Lane]) -> Vec<Statement> {
        let missing = self.gates.missing(lanes);
        if missing.is_empty() {
            return Vec::new();
        }
        let ids: Vec<i64> = missing.iter().map(|gate| gate.id.0).collect();
        let names: Vec<String> = missing.iter().map(|gate| gate.name.to_string()).collect();
        let of: Vec<Option<String>> =
            missing.iter().map(|gate| gate.value.as_deref().map(text)).collect();
        // What the batch itself has taken and ended is not stored yet.
        let changes = &self.batch.outbox.gates;
        let most = |gate: &&LaneGate| {
            let most = gate.concurrency.map(i64::from);
            most.map(|most| most.saturating_sub(changes.of(gate.id)))
        };
        let most: Vec<Option<i64>> = missing.iter().map(most).collect();
        let ahead: Vec<Option<i64>> =
            missing.iter().map(|gate| gate.rate.map(|rate| rate.open_ahead())).collect();
        let now = self.batch.context.now.0.saturating_mul(1000);
        vec![
            Statement::new(MAKE_GATES, values![ids.clone(), names, of, MAKING]),
            Statement::new(
                LOCK_GATES,
                values![ids.clone(), most, ahead, now, self.clock.own.is_some()],
            ),
            Statement::new(COUNT_GATES, values![ids]),
        ]
    }

    fn reading_of_heads(&self, lanes: &[Lane], most: &[usize], avoided: &[i64]) -> Statement {
        let (mut numbers, mut classes, mut of_class) = (Vec::new(), Vec::new(), Vec::new());
        for (nth, lane) in (0_i64..).zip(lanes) {
            numbers.push(nth);
            classes.push(lane.class.0);
            of_class.push(lane.number);
        }
        let most: Vec<i64> =
            most.iter().map(|most| i64::try_from(*most).unwrap_or(i64::MAX)).collect();
        let (ranks, seqs) = self.lowest_of(&classes);
        let (now, but) = (self.batch.context.now.0, avoided.to_vec());
        Statement::new(HEADS, values![numbers, classes, of_class, now, most, ranks, seqs, but])
    }

    /// Takes the chosen heads: those of lanes with gates themselves, as no other server can take
    /// from these now, and of the others as many as were chosen, past what others have
    /// locked. Returns the first ones that could not be taken.
    pub(super) async fn take_chosen(
        &mut self,
        Choice { lanes, now, avoided }: Choice<'_>,
        chosen: &mut Chosen,
        taken: &mut TakenByLimits,
    ) -> Result<Vec<i64>, Failure> {
        if chosen.heads.is_empty() {
            return Ok(Vec::new());
        }
        let (mut classes, mut ranks, mut seqs, mut keys) = (vec![], vec![], vec![], vec![]);
        let mut of: HashMap<i64, &Lane> = HashMap::new();
        let mut free: BTreeMap<usize, i64> = BTreeMap::new();
        for head in &chosen.heads {
            let Some(lane) = lanes.get(head.lane) else { continue };
            if lane.gates.is_empty() {
                *free.entry(head.lane).or_default() += 1;
                continue;
            }
            classes.push(lane.class.0);
            ranks.push(head.rank);
            seqs.push(head.seq);
            keys.push(keys_of(lane));
            of.insert(head.seq, lane);
        }
        let (mut whole, mut numbers, mut with, mut counts) = (vec![], vec![], vec![], vec![]);
        let mut free_of: HashMap<(ClassId, Option<i64>), &Lane> = HashMap::new();
        let mut short: BTreeMap<ClassId, i64> = BTreeMap::new();
        for (lane, count) in free {
            let Some(lane) = lanes.get(lane) else { continue };
            whole.push(lane.class.0);
            numbers.push(lane.number);
            with.push(keys_of(lane));
            counts.push(count);
            free_of.insert((lane.class, lane.number), lane);
            *short.entry(lane.class).or_default() += count;
        }
        let at = self.batch.context.now.0;
        let ((from, low), but) = (self.lowest_of(&whole), avoided.to_vec());
        let values =
            values![classes, ranks, seqs, keys, at, whole, numbers, with, counts, from, low, but];
        let mut rows = self.query_fitting(Statement::new(TAKE_CHOSEN, values)).await?;
        sort_as_chosen(&mut rows, chosen);
        for row in rows {
            let (seq, class) = (get(&row, 0)?, ClassId(get(&row, STORED)?));
            let gated = of.remove(&seq);
            let number: i64 = get(&row, STORED + 10)?;
            let of_lane = free_of.get(&(class, Some(number)));
            let free = || of_lane.or_else(|| free_of.get(&(class, None)));
            if let Some(lane) = gated.or_else(|| free().copied()) {
                self.gates.started(lane, now);
                taken.charged.charge(&lane.gate_ids());
                self.cache.shares.claimed(
                    lane,
                    (get(&row, STORED + 1)?, seq),
                    self.batch.context.now,
                );
                taken.lanes.insert(seq, lane.clone());
            }
            if let Some(short) = short.get_mut(&class).filter(|_| gated.is_none()) {
                *short -= 1;
            }
            taken.rows.push(row);
        }
        // Others have locked the rest, or these have other keys than their lane.
        taken.left.again.extend(of.values().map(|lane| lane.class));
        of.values().for_each(|lane| self.cache.lane_cache.forget(lane));
        let missed: Vec<i64> = of.into_keys().collect();
        if !missed.is_empty() {
            chosen.missed();
        }
        short.retain(|_, count| *count > 0);
        taken.left.again.extend(short.keys());
        self.take_instead(Choice { lanes, now, avoided }, short.values().sum(), taken).await?;
        Ok(missed)
    }

    /// Takes others of classes without gates for chosen ones that other servers have locked.
    async fn take_instead(
        &mut self,
        Choice { lanes, avoided, .. }: Choice<'_>,
        count: i64,
        taken: &mut TakenByLimits,
    ) -> Result<(), Failure> {
        let is_free =
            |lane: &&Lane| lane.gates.is_empty() && lane.number.is_none() && lane.share.is_none();
        let classes: Vec<ClassId> = lanes.iter().filter(is_free).map(|lane| lane.class).collect();
        if count > 0 && !classes.is_empty() {
            let statement = self.take_of_classes(&classes, count, avoided);
            taken.rows.extend(self.query_fitting(statement).await?);
        }
        Ok(())
    }

    /// Notes what starts have used of the rates of the lanes' gates.
    pub(super) fn keep_starts(&mut self, lanes: &[Lane]) {
        let mut used: BTreeMap<i64, i64> = BTreeMap::new();
        for lane in lanes {
            let of_lane = self.gates.take_used(lane).into_iter();
            used.extend(of_lane.map(|(gate, until)| (gate.0, until)));
        }
        if !used.is_empty() {
            let (gates, until): (Vec<i64>, Vec<i64>) = used.into_iter().unzip();
            self.write(KEEP_STARTS, values![gates, until]);
        }
    }
}

/// Sorts taken jobs as they were chosen.
fn sort_as_chosen(rows: &mut [Row], chosen: &Chosen) {
    let places = chosen.heads.iter().enumerate().map(|(nth, head)| (head.seq, nth));
    let places: HashMap<i64, usize> = places.collect();
    let place = |seq: i64| places.get(&seq).copied().unwrap_or(usize::MAX);
    rows.sort_by_cached_key(|row| get(row, 0).map_or(usize::MAX, place));
}

/// Returns the keys that a job of a lane has, as stored; `None` if they do not matter.
fn keys_of(lane: &Lane) -> Option<String> {
    lane.number.and_then(|_| codec::keys_text(&lane.keys))
}

/// What a choice goes by, after a claim has taken some jobs.
pub(super) fn terms<'a>(
    changes: &'a GateChanges,
    taken: &'a TakenByLimits,
    now: Timestamp,
    is_prefetch: bool,
) -> Terms<'a> {
    Terms { changes, taken: Some(&taken.charged), now, is_prefetch }
}
