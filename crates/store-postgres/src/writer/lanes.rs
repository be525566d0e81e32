//! Claims of jobs that limits may hold back: their lanes, and the gates that they pass.
//!
//! The order of steps is that of [`outlast_store_rules::apply::claim::driver`]. Where the first pass finds too
//! few, or comes to a fair class, three more round trips follow, and two for each further page of lanes:
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

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outlast_core::limit::GateId;
use outlast_core::time::Timestamp;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store_rules::apply::claim::driver::{
    FoundLane, FoundLanes, LaneSearch, LaneSource, Memory, TakeResult, Taken, claim_by_limits,
};
use outlast_store_rules::apply::claim::gate_changes::GateChanges;
use outlast_store_rules::apply::claim::lane::{Lane, LaneGate, LaneJob};
use outlast_store_rules::apply::claim::lane_scan::LaneRange;
use outlast_store_rules::apply::claim::plan::{FirstJob, FirstPassPlan};
use outlast_store_rules::apply::claim::selection::Remaining;
use outlast_store_rules::apply::limit::Limits;
use outlast_store_rules::codec;
use tokio_postgres::Row;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{STORED, get, text};
use crate::writer::Tx;
use crate::writer::claim::TAKE_CHOSEN;
use crate::writer::limit::LOCK;
use sql::{COUNT_GATES, FIRST, FRONT, HEADS, KEYS, LOCK_GATES, MAKE_GATES, NOT_PAUSED, RECENT};
pub(super) use sql::{KEEP_STARTS, LANES, VERSION_SHARED};

/// Of the locks of gates that are being made: `lim` as a number.
pub(super) const MAKING: i32 = 0x006c_696d;

/// What a claim by limits takes.
#[derive(Debug)]
pub(super) struct TakenByLimits {
    /// Rows of taken jobs; of each page of lanes best first.
    pub(super) rows: Vec<Row>,
    /// The lane of each that passed gates, by the job's number.
    pub(super) lanes: HashMap<i64, Lane>,
    /// What is left in the classes if these are fewer than were asked for.
    pub(super) left: Remaining,
    /// Whether these are fewer than were asked for because of their length.
    pub(super) cut: bool,
}

/// A claim by limits, while it is under way.
#[derive(Debug, Default)]
pub(super) struct Claiming {
    /// What gates count more once the jobs are in flight that it has taken.
    charged: GateChanges,
    /// The numbers of jobs that it leaves to others.
    pub(super) avoided: Vec<i64>,
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
        self.claiming = Claiming { charged: GateChanges::default(), avoided: avoided.to_vec() };
        let done = claim_by_limits(self, classes, max, is_prefetch).await?;
        let cut = done.jobs.len() >= max && usize::try_from(wanted).is_ok_and(|it| max < it);
        let (mut rows, mut lanes) = (Vec::with_capacity(done.jobs.len()), HashMap::new());
        for (row, lane) in done.jobs {
            if let Some(lane) = lane {
                lanes.insert(get(&row, 0)?, lane);
            }
            rows.push(row);
        }
        Ok(TakenByLimits { rows, lanes, left: done.left, cut })
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

    fn reading_of_heads(&self, lanes: &[Lane], most: &[usize]) -> Statement {
        let (mut numbers, mut classes, mut of_class) = (Vec::new(), Vec::new(), Vec::new());
        for (nth, lane) in (0_i64..).zip(lanes) {
            numbers.push(nth);
            classes.push(lane.class.0);
            of_class.push(lane.number);
        }
        let most: Vec<i64> =
            most.iter().map(|most| i64::try_from(*most).unwrap_or(i64::MAX)).collect();
        let (ranks, seqs) = self.lowest_of(&classes);
        let (now, but) = (self.batch.context.now.0, self.claiming.avoided.clone());
        Statement::new(HEADS, values![numbers, classes, of_class, now, most, ranks, seqs, but])
    }

    /// Reads the keys of the first job of each lane.
    fn reading_of_keys(&self, lanes: &[(ClassId, i64)]) -> Statement {
        let (classes, numbers): (Vec<i64>, Vec<i64>) =
            lanes.iter().map(|(class, lane)| (class.0, *lane)).unzip();
        let (ranks, seqs) = self.lowest_of(&classes);
        Statement::new(KEYS, values![classes, numbers, ranks, seqs])
    }

    /// Takes others of classes without gates for chosen ones that other servers have locked.
    async fn take_instead(&mut self, lanes: &[Lane], count: i64) -> Result<Vec<Row>, Failure> {
        let is_free =
            |lane: &&Lane| lane.gates.is_empty() && lane.number.is_none() && lane.share.is_none();
        let classes: Vec<ClassId> = lanes.iter().filter(is_free).map(|lane| lane.class).collect();
        if count == 0 || classes.is_empty() {
            return Ok(Vec::new());
        }
        let statement = self.take_of_classes(&classes, count, &self.claiming.avoided);
        self.query_fitting(statement).await
    }
}

impl LaneSource for Tx<'_> {
    type Error = Failure;
    type Job = Row;

    const HAS_ONE_WRITER: bool = false;

    fn memory(&mut self) -> Memory<'_> {
        Memory {
            lane_cache: &mut self.cache.lane_cache,
            shares: &mut self.cache.shares,
            gates: &mut self.gates,
            changes: &self.batch.outbox.gates,
            charged: Some(&mut self.claiming.charged),
            now: self.batch.context.now,
            chance: self.batch.context.first_lane(),
        }
    }

    fn still_wanted(&self, max: usize, taken: usize) -> usize {
        max.saturating_sub(taken)
    }

    async fn limits(&mut self) -> Result<Limits, Failure> {
        Ok(self.known_limits().await?.limits)
    }

    async fn learn(&mut self, classes: &[ClassId]) -> Result<(), Failure> {
        self.learn_classes(classes.iter().copied()).await
    }

    fn class(&self, class: ClassId) -> Option<Arc<ClassKey>> {
        self.cache.classes.key(class).ok().cloned()
    }

    async fn first_jobs(&mut self, plan: &FirstPassPlan) -> Result<Option<Vec<FirstJob>>, Failure> {
        let (now, but) = (self.batch.context.now.0, self.claiming.avoided.clone());
        let number = |most: usize| i64::try_from(most).unwrap_or(i64::MAX);
        let first = plan.first.iter().map(|(class, most)| (class.0, number(*most)));
        let (classes, most): (Vec<i64>, Vec<i64>) = first.unzip();
        let (ranks, seqs) = self.lowest_of(&classes);
        let mut statements = vec![
            Statement::new(VERSION_SHARED, values![LOCK]),
            Statement::new(FIRST, values![classes, most, now, ranks, seqs, but.clone()]),
        ];
        if !plan.recent.is_empty() {
            let (mut classes, mut lanes, mut most) = (vec![], vec![], vec![]);
            for (class, lane, each) in &plan.recent {
                classes.push(class.0);
                lanes.push(*lane);
                most.push(number(*each));
            }
            let (ranks, seqs) = self.lowest_of(&classes);
            let values = values![classes, lanes, now, most, ranks, seqs, but];
            statements.push(Statement::new(RECENT, values));
        }
        let read = self.query_all(statements).await?;
        let answer = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let Some(version) = answer(0).first() else { return Ok(None) };
        self.confirm_limits(get(version, 0)?)?;
        let mut rows = Vec::new();
        let first = answer(1).iter().map(|row| (false, row));
        for (is_recent, row) in first.chain(answer(2).iter().map(|row| (true, row))) {
            let class = ClassId(get(row, 0)?);
            let lane = if plan.has_lanes(class) { Some(get(row, 1)?) } else { None };
            rows.push(FirstJob { class, lane, rank: get(row, 2)?, seq: get(row, 3)?, is_recent });
        }
        Ok(Some(rows))
    }

    async fn keys_of(&mut self, lanes: &[(ClassId, i64)]) -> Result<Vec<FoundLane>, Failure> {
        let Statement { sql, values } = self.reading_of_keys(lanes);
        self.query(sql, values).await?.iter().map(found_lane).collect()
    }

    async fn first_lanes(
        &mut self,
        search: &LaneSearch<'_>,
    ) -> Result<Option<FoundLanes>, Failure> {
        let numbers = |classes: &[ClassId]| classes.iter().map(|class| class.0).collect::<Vec<_>>();
        let mut statements = vec![
            Statement::new(VERSION_SHARED, values![LOCK]),
            Statement::new(NOT_PAUSED, values![numbers(search.classes)]),
        ];
        if !search.apart.is_empty() {
            let apart = numbers(search.apart);
            let (ranks, seqs) = self.lowest_of(&apart);
            let (now, most) = (self.batch.context.now.0, i64::from(search.lanes));
            let values = values![apart, now, i64::from(search.jobs), most, ranks, seqs];
            statements.push(Statement::new(FRONT, values));
            statements.push(self.lanes_of(search.ranges, search.page));
        }
        if !search.freed.is_empty() {
            statements.push(self.reading_of_keys(search.freed));
        }
        let read = self.query_all(statements).await?;
        let rows = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let Some(version) = rows(0).first() else { return Ok(None) };
        self.confirm_limits(get(version, 0)?)?;
        let mut found = FoundLanes {
            ranges: lanes_of_stretches(search.ranges, rows(3))?,
            ..FoundLanes::default()
        };
        for row in rows(1) {
            found.open.push(ClassId(get(row, 0)?));
        }
        found.first = rows(2).iter().map(found_lane).collect::<Result<_, _>>()?;
        found.freed = rows(4).iter().map(found_lane).collect::<Result<_, _>>()?;
        Ok(Some(found))
    }

    async fn next_lanes(
        &mut self,
        ranges: &[LaneRange],
        most: u32,
    ) -> Result<Vec<Vec<FoundLane>>, Failure> {
        let Statement { sql, values } = self.lanes_of(ranges, most);
        lanes_of_stretches(ranges, &self.query(sql, values).await?)
    }

    async fn heads(
        &mut self,
        lanes: &[Lane],
        most: &[usize],
    ) -> Result<(Vec<LaneJob>, Timestamp), Failure> {
        let mut statements = self.reading_of_gates(lanes);
        statements.push(self.reading_of_heads(lanes, most));
        let mut read = self.query_all(statements).await?;
        let rows = read.pop().unwrap_or_default();
        let time = self.read_gates(&read)?;
        let mut heads = Vec::new();
        for row in &rows {
            let lane = usize::try_from(get::<i64>(row, 0)?).unwrap_or(usize::MAX);
            heads.push(LaneJob { lane, rank: get(row, 1)?, seq: get(row, 2)? });
        }
        Ok((heads, time))
    }

    /// Takes the chosen jobs of lanes with gates themselves, as no other server can take from these
    /// now. Of the other lanes it takes as many as were chosen, past those that others have locked.
    async fn take(
        &mut self,
        lanes: &[Lane],
        chosen: &[LaneJob],
    ) -> Result<TakeResult<Row>, Failure> {
        let Order { named, free, mut places } = Order::of(lanes, chosen);
        let now = self.batch.context.now.0;
        let (from, low) = self.lowest_of(&free.classes);
        let NamedJobs { classes, ranks, seqs, keys } = named;
        let CountedJobs { classes: of, numbers, keys: with, counts } = free;
        let but = self.claiming.avoided.clone();
        let values =
            values![classes, ranks, seqs, keys, now, of, numbers, with, counts, from, low, but];
        let mut rows = self.query_fitting(Statement::new(TAKE_CHOSEN, values)).await?;
        sort_as_chosen(&mut rows, chosen);
        let mut result = TakeResult::default();
        for row in rows {
            let (seq, class) = (get(&row, 0)?, ClassId(get(&row, STORED)?));
            let number = get(&row, STORED + 10)?;
            let lane = places.take(seq, class, number);
            let place = (get(&row, STORED + 1)?, seq);
            result.taken.push(Taken { job: row, place, lane });
        }
        // Others have locked the rest, or these have other keys than their lane.
        for (seq, lane) in places.named {
            result.missed.push(seq);
            let Some(lane) = lanes.get(lane) else { continue };
            result.passed_over.push(lane.class);
            self.cache.lane_cache.forget(lane);
        }
        let mut short = places.short;
        short.retain(|_, count| *count > 0);
        result.passed_over.extend(short.keys());
        for row in self.take_instead(lanes, short.values().sum()).await? {
            let place = (get(&row, STORED + 1)?, get(&row, 0)?);
            result.taken.push(Taken { job: row, place, lane: None });
        }
        Ok(result)
    }

    /// Notes what starts have used of the rates of the lanes' gates.
    fn keep_starts(&mut self, lanes: &[&Lane]) -> Result<(), Failure> {
        let mut used: BTreeMap<i64, i64> = BTreeMap::new();
        for lane in lanes {
            let of_lane = self.gates.take_used(lane).into_iter();
            used.extend(of_lane.map(|(gate, until)| (gate.0, until)));
        }
        if !used.is_empty() {
            let (gates, until): (Vec<i64>, Vec<i64>) = used.into_iter().unzip();
            self.write(KEEP_STARTS, values![gates, until]);
        }
        Ok(())
    }
}

/// The columns that name chosen jobs.
#[derive(Debug, Default)]
struct NamedJobs {
    classes: Vec<i64>,
    ranks: Vec<i64>,
    seqs: Vec<i64>,
    keys: Vec<Option<String>>,
}

/// The columns that say how many jobs of which lanes are taken.
#[derive(Debug, Default)]
struct CountedJobs {
    classes: Vec<i64>,
    numbers: Vec<Option<i64>>,
    keys: Vec<Option<String>>,
    counts: Vec<i64>,
}

/// What a statement takes.
#[derive(Debug, Default)]
struct Order {
    named: NamedJobs,
    free: CountedJobs,
    places: Places,
}

/// The places of the lanes that jobs are taken from.
#[derive(Debug, Default)]
struct Places {
    /// Of named jobs that were not taken yet, by the number of the job.
    named: HashMap<i64, usize>,
    free: HashMap<(ClassId, Option<i64>), usize>,
    /// How many jobs of classes were chosen that were not taken yet, and pass no gate.
    short: BTreeMap<ClassId, i64>,
}

impl Order {
    fn of(lanes: &[Lane], chosen: &[LaneJob]) -> Self {
        let mut order = Self::default();
        let mut free: BTreeMap<usize, i64> = BTreeMap::new();
        for head in chosen {
            let Some(lane) = lanes.get(head.lane) else { continue };
            if lane.gates.is_empty() {
                *free.entry(head.lane).or_default() += 1;
                continue;
            }
            order.named.classes.push(lane.class.0);
            order.named.ranks.push(head.rank);
            order.named.seqs.push(head.seq);
            order.named.keys.push(keys_of(lane));
            order.places.named.insert(head.seq, head.lane);
        }
        for (nth, count) in free {
            let Some(lane) = lanes.get(nth) else { continue };
            order.free.classes.push(lane.class.0);
            order.free.numbers.push(lane.number);
            order.free.keys.push(keys_of(lane));
            order.free.counts.push(count);
            order.places.free.insert((lane.class, lane.number), nth);
            *order.places.short.entry(lane.class).or_default() += count;
        }
        order
    }
}

impl Places {
    /// A job was taken; returns the place of its lane.
    fn take(&mut self, seq: i64, class: ClassId, number: i64) -> Option<usize> {
        let named = self.named.remove(&seq);
        if named.is_none() {
            self.short.entry(class).and_modify(|count| *count -= 1);
        }
        let of_lane = || self.free.get(&(class, Some(number)));
        let free = || of_lane().or_else(|| self.free.get(&(class, None))).copied();
        named.or_else(free)
    }
}

fn found_lane(row: &Row) -> Result<FoundLane, Failure> {
    let keys = Some(codec::keys_of(get(row, 2)?)?);
    Ok(FoundLane { class: ClassId(get(row, 0)?), number: get(row, 1)?, keys })
}

/// Returns the lanes of each range.
fn lanes_of_stretches(ranges: &[LaneRange], rows: &[Row]) -> Result<Vec<Vec<FoundLane>>, Failure> {
    let mut found = vec![Vec::new(); ranges.len()];
    for row in rows {
        let nth = usize::try_from(get::<i64>(row, 0)?).unwrap_or(usize::MAX);
        let (Some(of), Some(found)) = (ranges.get(nth), found.get_mut(nth)) else { continue };
        let keys = Some(codec::keys_of(get(row, 2)?)?);
        found.push(FoundLane { class: of.class, number: get(row, 1)?, keys });
    }
    Ok(found)
}

/// Sorts taken jobs as they were chosen.
fn sort_as_chosen(rows: &mut [Row], chosen: &[LaneJob]) {
    let places = chosen.iter().enumerate().map(|(nth, head)| (head.seq, nth));
    let places: HashMap<i64, usize> = places.collect();
    let place = |seq: i64| places.get(&seq).copied().unwrap_or(usize::MAX);
    rows.sort_by_cached_key(|row| get(row, 0).map_or(usize::MAX, place));
}

/// Returns the keys that a job of a lane has, as stored; `None` if they do not matter.
fn keys_of(lane: &Lane) -> Option<String> {
    lane.number.and_then(|_| codec::keys_text(&lane.keys))
}
