//! Limits: the lanes of claimable jobs, the gates that they pass, and claims through them.

use std::collections::{HashMap, HashSet};

use outlast_core::keys::Keys;
use outlast_core::limit::{GateId, LimitName, LimitNameError};
use outlast_core::limits::CLAIM_BYTES_MAX;
use outlast_store::apply::lane_cache::FoundBy;
use outlast_store::apply::limit::{Chosen, Gates, Head, Lane, Limits, Terms, heads_of_each};
use outlast_store::apply::walk::{Stretch, Walk, Way};
use outlast_store::backend::FoundLimit;
use outlast_store::command::{Claim, ClassId, SetLimit};
use outlast_store::limit::{Miscount, rate_columns, used_at_most};
use outlast_store::queue::QueueRecord;
use outlast_store::reply::Claims;
use outlast_store::{StoreError, codec, limit_columns};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::read;
use crate::read::limit::record_of;
use crate::row::{failed, int};
use crate::writer::Tx;
use crate::writer::claim::{HeadRow, Took};

/// The lanes of a stretch, each found by one step in the index.
const LANES: &str = "with recursive l(lane) as (
         select min(lane) from ready where class = ?1 and lane <> 0 and lane > ?2 and lane <= ?3
         union all
         select (select min(r.lane) from ready r
                 where r.class = ?1 and r.lane <> 0 and r.lane > l.lane and r.lane <= ?3)
         from l where l.lane is not null limit ?4)
     select lane from l where lane is not null";

/// The first jobs of a class, and their lanes.
const FRONT: &str =
    "select seq, lane from ready where class = ?1 order by class, rank, seq limit ?2";

/// Reads the limits and the settings of queues in force.
pub(crate) fn load(db: &Connection) -> Result<Limits, StoreError> {
    Ok(Limits::of(read::limit::all(db)?, read::queue::settings(db, None)?))
}

impl Tx<'_> {
    /// Whether a limit may apply to jobs of one of the classes.
    pub(super) fn are_limited(&self, classes: &[ClassId]) -> bool {
        let mut keys = classes.iter().filter_map(|class| self.cache.classes.known(*class));
        !self.cache.limits.is_empty() && keys.any(|key| self.cache.limits.may_apply(key))
    }

    /// Takes jobs of the classes, best first, as far as limits let them start.
    pub(super) fn claim_by_limits(
        &mut self,
        classes: &[ClassId],
        claim: &Claim,
        max: usize,
        claims: &mut Claims,
    ) -> Result<(), StoreError> {
        let mut gates = Gates::default();
        let (beyond, way) = self.claim_of_front((classes, &mut gates), claim, max, claims)?;
        if !beyond.is_empty() {
            let wanted = max.saturating_sub(claims.jobs.len());
            let beyond = self.first_lanes(&beyond, wanted, claim.is_prefetch)?;
            self.claim_on_way(beyond, (&mut gates, FoundBy::Walk), (claim, max), claims)?;
        }
        match way {
            Some(way) => self.claim_on_way(way, (&mut gates, FoundBy::First), (claim, max), claims),
            None => Ok(()),
        }
    }

    /// Takes jobs of lanes, page by page, while the claim is short.
    fn claim_on_way(
        &mut self,
        mut way: Way,
        (gates, by): (&mut Gates, FoundBy),
        (claim, max): (&Claim, usize),
        claims: &mut Claims,
    ) -> Result<(), StoreError> {
        while !self.has_enough(claims, max) {
            if way.has_lanes() {
                way.tried(self.claim_of_lanes((&way.lanes, gates, by), claim, max, claims)?);
            } else if way.walk.is_over() {
                claims.leave(way.left());
                break;
            } else {
                way.lanes = self.next_lanes(&mut way.walk)?;
            }
        }
        self.cache.lane_cache.walked(&way.walk);
        Ok(())
    }

    /// Takes jobs of the lanes until there are enough or none is left that may start; returns what
    /// stops them.
    fn claim_of_lanes(
        &mut self,
        (lanes, gates, by): (&[Lane], &mut Gates, FoundBy),
        claim: &Claim,
        max: usize,
        claims: &mut Claims,
    ) -> Result<Chosen, StoreError> {
        // Jobs of other keys than their lane's, and those that came with a time that was over.
        let mut skipped: HashSet<i64> = HashSet::new();
        loop {
            let wanted = max.saturating_sub(claims.jobs.len());
            self.read_gates(gates, lanes)?;
            let each = heads_of_each(lanes.len(), wanted);
            let (rows, mut heads) = self.heads(lanes, each, skipped.len())?;
            heads.retain(|head| !skipped.contains(&head.seq));
            let now = self.batch.context.now;
            let turns = self.cache.shares.turns(lanes, heads, now);
            let mut chosen = gates.choose(lanes, turns, wanted, self.terms(claim.is_prefetch));
            let is_over = chosen.heads.is_empty();
            let rows: HashMap<i64, HeadRow> = rows.into_iter().map(|row| (row.seq, row)).collect();
            skipped.extend(self.take_chosen(
                (lanes, gates),
                (&mut chosen, &rows),
                claim,
                claims,
            )?);
            self.cache.lane_cache.note(lanes, &chosen, now, by);
            if is_over || self.has_enough(claims, max) {
                return Ok(chosen);
            }
        }
    }

    pub(super) fn terms(&self, is_prefetch: bool) -> Terms<'_> {
        let changes = &self.batch.outbox.gates;
        Terms { changes, taken: None, now: self.batch.context.now, is_prefetch }
    }

    /// Takes the chosen jobs; returns those that could not be taken.
    pub(super) fn take_chosen(
        &mut self,
        (lanes, gates): (&[Lane], &mut Gates),
        (chosen, rows): (&mut Chosen, &HashMap<i64, HeadRow>),
        claim: &Claim,
        claims: &mut Claims,
    ) -> Result<Vec<i64>, StoreError> {
        let now = self.batch.context.now;
        let mut skipped = Vec::new();
        for head in &chosen.heads {
            if self.claimed_bytes >= CLAIM_BYTES_MAX {
                skipped.push(head.seq);
                continue;
            }
            let row = rows.get(&head.seq);
            let (Some(row), Some(lane)) = (row, lanes.get(head.lane)) else { continue };
            let claimed = match self.take(row, claim, Some(lane))? {
                Took::Job(claimed) => claimed,
                took @ (Took::Avoided | Took::Nothing) => {
                    if matches!(took, Took::Avoided) {
                        claims.pass_over(lane.class);
                    }
                    skipped.push(head.seq);
                    continue;
                }
            };
            gates.started(lane, now);
            self.cache.shares.claimed(lane, (head.rank, head.seq), now);
            self.keep_starts(gates, lane)?;
            claims.jobs.push(claimed);
        }
        if !skipped.is_empty() {
            chosen.missed();
        }
        Ok(skipped)
    }

    /// Returns the lanes that a claim looks at first, and the way to others: of a class that limits
    /// tell apart by keys, those in which a slot has become free, those of its first jobs, and others
    /// from the place on where the last walk has ended.
    pub(super) fn first_lanes(
        &mut self,
        classes: &[ClassId],
        wanted: usize,
        is_prefetch: bool,
    ) -> Result<Way, StoreError> {
        let mut lanes = Vec::new();
        let mut apart = Vec::new();
        for class in classes {
            let Some(key) = self.cache.classes.known(*class) else { continue };
            if self.cache.classes.is_paused(&key.queue) {
                continue;
            }
            if self.cache.limits.need_lanes(key) {
                apart.push(*class);
            } else {
                lanes.push(self.cache.limits.whole(*class, key));
            }
        }
        let chance = self.batch.context.first_lane();
        let start = |class: &ClassId| (*class, self.cache.lane_cache.start_of_walk(*class, chance));
        let mut walk = Walk::new(apart.iter().map(start), self.cache.lane_cache.reach());
        for class in apart {
            for number in self.cache.lane_cache.freed(class, wanted, self.terms(is_prefetch)) {
                if !self.has_jobs(class, number)? {
                    self.cache.lane_cache.are_empty(class, [number]);
                } else if walk.look_at(class, number) {
                    lanes.push(self.lane(class, number)?);
                }
            }
            for number in self.lanes_of_front(class, wanted)? {
                if walk.look_at(class, number) {
                    lanes.push(self.lane(class, number)?);
                }
            }
        }
        lanes.extend(self.next_lanes(&mut walk)?);
        Ok(Way::new(walk, lanes, Vec::new()))
    }

    fn has_jobs(&self, class: ClassId, lane: i64) -> Result<bool, StoreError> {
        Ok(!self.head_rows(class, Some(lane), 1)?.is_empty())
    }

    /// Returns the lanes of the first jobs of a class, in the order of these.
    fn lanes_of_front(&self, class: ClassId, wanted: usize) -> Result<Vec<i64>, StoreError> {
        let reach = self.cache.lane_cache.reach();
        let [jobs, most] = [reach.walk_jobs, reach.front_lanes(wanted)]
            .map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let mut select = self.db.prepare_cached(FRONT).map_err(failed)?;
        let limit = self.with_expired(jobs)?;
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let rows = select.query_map((class.0, limit), read).map_err(failed)?;
        let first: Vec<(i64, i64)> = self.unexpired(rows, |(seq, _)| *seq, jobs)?;
        let mut seen = HashSet::from([0]);
        let lanes = first.into_iter().map(|(_, lane)| lane).filter(|lane| seen.insert(*lane));
        Ok(lanes.take(most).collect())
    }

    fn next_lanes(&mut self, walk: &mut Walk) -> Result<Vec<Lane>, StoreError> {
        let stretches = walk.next();
        let max = walk.page().unwrap_or(0);
        let mut read = Vec::with_capacity(stretches.len());
        for stretch in &stretches {
            read.push(self.lane_numbers(*stretch, max)?);
        }
        let next = walk.take(&stretches, &read).into_iter();
        next.map(|(class, number)| self.lane(class, number)).collect()
    }

    pub(super) fn lane(&mut self, class: ClassId, number: i64) -> Result<Lane, StoreError> {
        if let Some(known) = self.cache.lane_cache.get(class, number) {
            return Ok(known.clone());
        }
        let keys = self.keys_of_lane(class, number)?;
        let lane = self.cache.limits.lane((class, self.cache.classes.key(class)?), number, keys);
        self.cache.lane_cache.learn(lane.clone());
        Ok(lane)
    }

    fn lane_numbers(&self, of: Stretch, max: u32) -> Result<Vec<i64>, StoreError> {
        let mut select = self.db.prepare_cached(LANES).map_err(failed)?;
        let stretch = (of.class.0, of.after, of.upto, max);
        let rows = select.query_map(stretch, |row| row.get(0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    /// Returns the keys of the first job of a lane.
    fn keys_of_lane(&self, class: ClassId, lane: i64) -> Result<Keys, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select j.keys from ready r join job_row j on j.seq = r.seq
                 where r.class = ?1 and r.lane = ?2 and r.lane <> 0
                 order by r.class, r.lane, r.rank, r.seq limit 1",
            )
            .map_err(failed)?;
        let text: Option<String> =
            select.query_row((class.0, lane), |row| row.get(0)).map_err(failed)?;
        codec::keys_of(text.as_deref())
    }

    pub(super) fn read_gates(&self, gates: &mut Gates, lanes: &[Lane]) -> Result<(), StoreError> {
        let mut select = self
            .db
            .prepare_cached("select in_flight, used_until from gate where id = ?")
            .map_err(failed)?;
        let missing: Vec<GateId> = gates.missing(lanes).into_iter().map(|gate| gate.id).collect();
        for id in missing {
            let found = select
                .query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
                .map_err(failed)?;
            match found {
                Some((in_flight, used_until)) => gates.read(id, in_flight, used_until),
                None => gates.not_found(id),
            }
        }
        Ok(())
    }

    /// Returns the first jobs of each lane, at most `each`, and as many more as are skipped.
    fn heads(
        &self,
        lanes: &[Lane],
        each: usize,
        skipped: usize,
    ) -> Result<(Vec<HeadRow>, Vec<Head>), StoreError> {
        let (mut rows, mut heads) = (Vec::new(), Vec::new());
        for (nth, lane) in lanes.iter().enumerate() {
            let each = lane.heads_worth_reading(each).saturating_add(skipped);
            for row in self.head_rows(lane.class, lane.number, each)? {
                heads.push(Head { lane: nth, rank: row.rank, seq: row.seq });
                rows.push(row);
            }
        }
        Ok((rows, heads))
    }

    /// Keeps what starts have used of the rates of a lane's gates. A gate that no job has passed
    /// before is made.
    fn keep_starts(&self, gates: &mut Gates, lane: &Lane) -> Result<(), StoreError> {
        for gate in gates.unmade(lane) {
            self.execute(
                "insert or ignore into gate (id, limit_name, value, in_flight, used_until)
                 values (?, ?, ?, 0, 0)",
                (gate.id.0, gate.name.as_str(), gate.value.as_deref()),
            )?;
        }
        for (gate, used_until) in gates.take_used(lane) {
            self.execute("update gate set used_until = ? where id = ?", (used_until, gate.0))?;
        }
        Ok(())
    }

    /// Writes by how much the batch changed what gates count.
    pub(super) fn keep_gates(&mut self) -> Result<(), StoreError> {
        for (gate, by) in self.batch.outbox.gates.take() {
            let sql = "update gate set in_flight = in_flight + ? where id = ?";
            self.execute(sql, (by, gate.0))?;
        }
        Ok(())
    }

    /// Returns those of the gates that count wrongly.
    pub(super) fn miscounts(&self, gates: &[GateId]) -> Result<Vec<Miscount>, StoreError> {
        let ids = serde_json::Value::from(gates.iter().map(|gate| gate.0).collect::<Vec<_>>());
        let mut select = self
            .db
            .prepare_cached(
                "select g.id, g.limit_name, g.value, g.in_flight, coalesce(c.in_flight, 0)
                 from json_each(?) k join gate g on g.id = k.value
                     left join gate_counted c on c.id = g.id
                 where g.in_flight <> coalesce(c.in_flight, 0)",
            )
            .map_err(failed)?;
        let mut rows = select.query([ids.to_string()]).map_err(failed)?;
        let mut wrong = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let name: String = row.get(1).map_err(failed)?;
            let corrupt = |error: LimitNameError| StoreError::Corrupt(error.to_string());
            wrong.push(Miscount {
                gate: GateId(row.get(0).map_err(failed)?),
                limit: Some(LimitName::new(&name).map_err(corrupt)?),
                value: row.get(2).map_err(failed)?,
                counted: row.get(3).map_err(failed)?,
                held: row.get(4).map_err(failed)?,
            });
        }
        Ok(wrong)
    }

    pub(super) fn load_limit(&self, name: &LimitName) -> Result<FoundLimit, StoreError> {
        let sql = concat!("select ", limit_columns!(), " from limit_rule where name = ?");
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let mut rows = select.query([name.as_str()]).map_err(failed)?;
        let record = rows.next().map_err(failed)?.map(record_of).transpose()?;
        Ok(FoundLimit { record, count: self.cache.limits.len() })
    }

    pub(super) fn put_limit(&mut self, order: &SetLimit) -> Result<(), StoreError> {
        let limit = &order.limit;
        let rate = rate_columns(limit.rate);
        self.execute(
            "insert or replace into limit_rule
                 (name, scope, of, concurrency, rate_starts, rate_period_ms, configured, set_by, set_at)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                limit.name.as_str(),
                limit.scope.kind(),
                limit.scope.of(),
                limit.concurrency,
                rate.map(|(starts, _)| starts),
                rate.map(|(_, period)| int(period)),
                order.configured,
                &order.by,
                self.batch.context.now.0,
            ),
        )?;
        if let Some(most) = limit.rate.map(|rate| used_at_most(rate, self.batch.context.now)) {
            self.execute(
                "update gate set used_until = ?1 where limit_name = ?2 and used_until > ?1",
                (most, limit.name.as_str()),
            )?;
        }
        self.cache.limits = load(self.db)?;
        Ok(())
    }

    pub(super) fn remove_limit(&mut self, name: &LimitName) -> Result<(), StoreError> {
        self.execute("delete from limit_rule where name = ?", [name.as_str()])?;
        self.cache.limits = load(self.db)?;
        Ok(())
    }

    pub(super) fn put_settings(&mut self, record: &QueueRecord) -> Result<(), StoreError> {
        self.execute(
            "insert into queue (name, paused, settings, set_by, set_at) values (?1, 0, ?2, ?3, ?4)
             on conflict (name) do update set settings = ?2, set_by = ?3, set_at = ?4",
            (
                &record.queue,
                codec::settings_text(&record.settings),
                &record.set_by,
                record.set_at.0,
            ),
        )?;
        self.cache.limits = load(self.db)?;
        Ok(())
    }
}
