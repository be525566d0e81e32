//! Limits: the lanes of claimable jobs, the gates that they pass, and claims through them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use outlast_core::keys::Keys;
use outlast_core::limit::{GateId, LimitName, LimitNameError};
use outlast_core::limits::CLAIM_BYTES_MAX;
use outlast_core::time::Timestamp;
use outlast_store::command::{Claim, ClassId, ClassKey, SetLimit};
use outlast_store::limit::{Miscount, rate_columns, used_at_most};
use outlast_store::queue::QueueRecord;
use outlast_store::reply::{Claimed, Claims};
use outlast_store::{StoreError, limit_columns};
use outlast_store_rules::apply::claim::driver::{
    FoundLane, FoundLanes, LaneSearch, LaneSource, Memory, TakeResult, Taken, claim_by_limits,
};
use outlast_store_rules::apply::claim::gates::Gates;
use outlast_store_rules::apply::claim::lane::{Lane, LaneGate, LaneJob};
use outlast_store_rules::apply::claim::lane_scan::LaneRange;
use outlast_store_rules::apply::claim::plan::{FirstJob, FirstPassPlan};
use outlast_store_rules::apply::limit::Limits;
use outlast_store_rules::backend::{FoundLimit, run_ready};
use outlast_store_rules::codec;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::read;
use crate::read::limit::record_of;
use crate::row::{failed, int};
use crate::writer::Tx;
use crate::writer::claim::{HeadRow, TakeOutcome};

/// The lanes of a range, each found by one step in the index.
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
        let wanted = max.saturating_sub(claims.jobs.len());
        let mut source = Source { tx: self, claim, gates: Gates::default(), rows: HashMap::new() };
        let done = claim_by_limits(&mut source, classes, wanted, claim.is_prefetch);
        let done = run_ready(done)?;
        claims.jobs.extend(done.jobs.into_iter().map(|(job, _)| job));
        done.left.note_in(claims);
        Ok(())
    }

    fn has_jobs(&self, class: ClassId, lane: i64) -> Result<bool, StoreError> {
        Ok(!self.head_rows(class, Some(lane), 1)?.is_empty())
    }

    /// Returns the lanes of the first `jobs` jobs of a class, in the order of these, at most `most`.
    fn lanes_of_front(
        &self,
        class: ClassId,
        jobs: usize,
        most: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let mut select = self.db.prepare_cached(FRONT).map_err(failed)?;
        let limit = self.with_expired(jobs)?;
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let rows = select.query_map((class.0, limit), read).map_err(failed)?;
        let first: Vec<(i64, i64)> = self.unexpired(rows, |(seq, _)| *seq, jobs)?;
        let mut seen = HashSet::from([0]);
        let lanes = first.into_iter().map(|(_, lane)| lane).filter(|lane| seen.insert(*lane));
        Ok(lanes.take(most).collect())
    }

    /// Returns the first jobs of a class, each with its lane.
    fn first_rows(&self, class: ClassId, most: usize) -> Result<Vec<(HeadRow, i64)>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select rank, seq, epoch, life, failures, losses, interruptions, since, lane
                 from ready where class = ?1 order by rank, seq limit ?2",
            )
            .map_err(failed)?;
        let read = |row: &Row<'_>| Ok((HeadRow::of(class, row)?, row.get(8)?));
        let limit = self.with_expired(most)?;
        let rows = select.query_map((class.0, limit), read).map_err(failed)?;
        self.unexpired(rows, |(head, _)| head.seq, most)
    }

    fn is_open(&self, class: ClassId) -> bool {
        let key = self.cache.classes.known(class);
        key.is_some_and(|key| !self.cache.classes.is_paused(&key.queue))
    }

    /// Returns lanes of a class; of those that are not remembered, with the keys of their first job.
    fn found_lanes(&self, class: ClassId, numbers: Vec<i64>) -> Result<Vec<FoundLane>, StoreError> {
        let mut found = Vec::with_capacity(numbers.len());
        for number in numbers {
            let keys = match self.cache.lane_cache.get(class, number) {
                Some(_) => None,
                None => Some(self.keys_of_lane(class, number)?),
            };
            found.push(FoundLane { class, number, keys });
        }
        Ok(found)
    }

    fn lane_numbers(&self, of: LaneRange, max: u32) -> Result<Vec<i64>, StoreError> {
        let mut select = self.db.prepare_cached(LANES).map_err(failed)?;
        let range = (of.class.0, of.after, of.upto, max);
        let rows = select.query_map(range, |row| row.get(0)).map_err(failed)?;
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

    /// Writes by how much the batch changed what gates count.
    pub(super) fn keep_gates(&mut self) -> Result<(), StoreError> {
        for (gate, by) in self.batch.outbox.gates.take() {
            let sql = "update gate set in_flight = in_flight + ? where id = ?";
            self.execute(sql, (by, gate.0))?;
        }
        Ok(())
    }

    /// Uses the rates of gates for one more start, and makes those that no job has passed before.
    pub(super) fn pass_gates(&mut self, gates: &[LaneGate]) -> Result<(), StoreError> {
        for gate in gates {
            self.make_gate(gate)?;
            let select = "select used_until from gate where id = ?";
            let used_until = self.db.query_row(select, [gate.id.0], |row| row.get(0));
            let before = gate.used(used_until.map_err(failed)?);
            let after = before.after(1, self.batch.context.now).used_until;
            self.execute("update gate set used_until = ? where id = ?", (after, gate.id.0))?;
        }
        Ok(())
    }

    fn make_gate(&mut self, gate: &LaneGate) -> Result<(), StoreError> {
        self.execute(
            "insert or ignore into gate (id, limit_name, value, in_flight, used_until)
             values (?, ?, ?, 0, 0)",
            (gate.id.0, gate.name.as_str(), gate.value.as_deref()),
        )?;
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

/// A claim by limits, and what it has read.
struct Source<'t, 'd> {
    tx: &'t mut Tx<'d>,
    claim: &'t Claim,
    gates: Gates,
    /// The claimable jobs that were read, by number.
    rows: HashMap<i64, HeadRow>,
}

impl LaneSource for Source<'_, '_> {
    type Error = StoreError;
    type Job = Claimed;

    const HAS_ONE_WRITER: bool = true;

    fn memory(&mut self) -> Memory<'_> {
        let Tx { cache, batch, .. } = &mut *self.tx;
        Memory {
            lane_cache: &mut cache.lane_cache,
            shares: &mut cache.shares,
            gates: &mut self.gates,
            changes: &batch.outbox.gates,
            charged: None,
            now: batch.context.now,
            chance: batch.context.first_lane(),
        }
    }

    fn still_wanted(&self, max: usize, taken: usize) -> usize {
        match self.tx.claimed_bytes >= CLAIM_BYTES_MAX {
            true => 0,
            false => max.saturating_sub(taken),
        }
    }

    async fn limits(&mut self) -> Result<Limits, StoreError> {
        Ok(self.tx.cache.limits.clone())
    }

    async fn learn(&mut self, _classes: &[ClassId]) -> Result<(), StoreError> {
        Ok(())
    }

    fn class(&self, class: ClassId) -> Option<Arc<ClassKey>> {
        self.tx.cache.classes.known(class).cloned()
    }

    async fn first_jobs(
        &mut self,
        plan: &FirstPassPlan,
    ) -> Result<Option<Vec<FirstJob>>, StoreError> {
        let mut found = Vec::new();
        for (class, most) in &plan.first {
            if !self.tx.is_open(*class) {
                continue;
            }
            let has_lanes = plan.has_lanes(*class);
            for (row, lane) in self.tx.first_rows(*class, *most)? {
                found.push(self.front_row(row, has_lanes.then_some(lane), false));
            }
        }
        for (class, lane, most) in &plan.recent {
            if !self.tx.is_open(*class) {
                continue;
            }
            for row in self.tx.head_rows(*class, Some(*lane), *most)? {
                found.push(self.front_row(row, Some(*lane), true));
            }
        }
        Ok(Some(found))
    }

    async fn keys_of(&mut self, lanes: &[(ClassId, i64)]) -> Result<Vec<FoundLane>, StoreError> {
        let mut found = Vec::with_capacity(lanes.len());
        for (class, number) in lanes {
            found.extend(self.tx.found_lanes(*class, vec![*number])?);
        }
        Ok(found)
    }

    async fn first_lanes(
        &mut self,
        search: &LaneSearch<'_>,
    ) -> Result<Option<FoundLanes>, StoreError> {
        let open = search.classes.iter().copied().filter(|class| self.tx.is_open(*class));
        let mut found = FoundLanes { open: open.collect(), ..FoundLanes::default() };
        for (class, number) in search.freed {
            if self.tx.has_jobs(*class, *number)? {
                found.freed.extend(self.tx.found_lanes(*class, vec![*number])?);
            }
        }
        let [jobs, most] =
            [search.jobs, search.lanes].map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        for class in search.apart {
            let numbers = self.tx.lanes_of_front(*class, jobs, most)?;
            found.first.extend(self.tx.found_lanes(*class, numbers)?);
        }
        found.ranges = self.next_lanes(search.ranges, search.page).await?;
        Ok(Some(found))
    }

    async fn next_lanes(
        &mut self,
        ranges: &[LaneRange],
        most: u32,
    ) -> Result<Vec<Vec<FoundLane>>, StoreError> {
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            let numbers = self.tx.lane_numbers(*range, most)?;
            found.push(self.tx.found_lanes(range.class, numbers)?);
        }
        Ok(found)
    }

    async fn heads(
        &mut self,
        lanes: &[Lane],
        most: &[usize],
    ) -> Result<(Vec<LaneJob>, Timestamp), StoreError> {
        self.read_gates(lanes)?;
        let mut heads = Vec::new();
        for (nth, (lane, most)) in lanes.iter().zip(most).enumerate().filter(|(_, it)| *it.1 > 0) {
            for row in self.tx.head_rows(lane.class, lane.number, *most)? {
                heads.push(LaneJob { lane: nth, rank: row.rank, seq: row.seq });
                self.rows.insert(row.seq, row);
            }
        }
        Ok((heads, self.tx.batch.context.now))
    }

    async fn take(
        &mut self,
        lanes: &[Lane],
        chosen: &[LaneJob],
    ) -> Result<TakeResult<Claimed>, StoreError> {
        let mut result = TakeResult::default();
        for head in chosen {
            if self.tx.claimed_bytes >= CLAIM_BYTES_MAX {
                result.missed.push(head.seq);
                continue;
            }
            let (Some(row), Some(lane)) = (self.rows.get(&head.seq), lanes.get(head.lane)) else {
                continue;
            };
            match self.tx.take(row, self.claim, Some(lane))? {
                TakeOutcome::Job(job) => {
                    let place = (head.rank, head.seq);
                    result.taken.push(Taken { job, place, lane: Some(head.lane) });
                }
                TakeOutcome::Avoided => {
                    result.passed_over.push(lane.class);
                    result.missed.push(head.seq);
                }
                TakeOutcome::Nothing => result.missed.push(head.seq),
            }
        }
        Ok(result)
    }

    /// Keeps what starts have used of the rates of the lanes' gates. A gate that no job has passed
    /// before is made.
    fn keep_starts(&mut self, lanes: &[&Lane]) -> Result<(), StoreError> {
        for lane in lanes {
            for gate in self.gates.unmade(lane) {
                self.tx.make_gate(gate)?;
            }
            for (gate, used_until) in self.gates.take_used(lane) {
                self.tx
                    .execute("update gate set used_until = ? where id = ?", (used_until, gate.0))?;
            }
        }
        Ok(())
    }
}

impl Source<'_, '_> {
    fn front_row(&mut self, row: HeadRow, lane: Option<i64>, is_recent: bool) -> FirstJob {
        let HeadRow { class, rank, seq, .. } = row;
        self.rows.insert(seq, row);
        FirstJob { class, lane, rank, seq, is_recent }
    }

    fn read_gates(&mut self, lanes: &[Lane]) -> Result<(), StoreError> {
        let mut select = self
            .tx
            .db
            .prepare_cached("select in_flight, used_until from gate where id = ?")
            .map_err(failed)?;
        let missing: Vec<GateId> =
            self.gates.missing(lanes).into_iter().map(|gate| gate.id).collect();
        for id in missing {
            let found = select
                .query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
                .map_err(failed)?;
            match found {
                Some((in_flight, used_until)) => self.gates.read(id, in_flight, used_until),
                None => self.gates.not_found(id),
            }
        }
        Ok(())
    }
}
