//! Limits: the lanes of claimable jobs, the gates that they pass, and claims through them.

use std::collections::{HashMap, HashSet};

use outlast_core::keys::Keys;
use outlast_core::limit::{GateId, LimitName};
use outlast_store::apply::limit::{Gates, Head, LANES_LOOKED_AT, Lane, Limits, heads_of_each};
use outlast_store::command::{Claim, ClassId, SetLimit};
use outlast_store::limit::{LimitRecord, rate_columns, used_at_most};
use outlast_store::queue::QueueRecord;
use outlast_store::reply::Claims;
use outlast_store::{StoreError, codec};
use rusqlite::{Connection, OptionalExtension as _};

use crate::read;
use crate::read::limit::record_of;
use crate::row::{failed, int};
use crate::writer::Tx;
use crate::writer::claim::HeadRow;

/// The lanes of a class from a place on, each found by one step in the index.
const LANES: &str = "with recursive l(lane) as (
         select min(lane) from ready where class = ?1 and lane <> 0 and lane > ?2
         union all
         select (select min(r.lane) from ready r
                 where r.class = ?1 and r.lane <> 0 and r.lane > l.lane)
         from l where l.lane is not null limit ?3)
     select lane from l where lane is not null";

/// Reads the limits and the settings of queues in force.
pub(crate) fn load(db: &Connection) -> Result<Limits, StoreError> {
    Ok(Limits::of(read::limit::all(db)?, read::queue::settings(db, None)?))
}

impl Tx<'_> {
    /// Whether a limit may apply to jobs of one of the classes.
    pub(super) fn are_limited(&self, classes: &[ClassId]) -> bool {
        let mut keys = classes.iter().filter_map(|class| self.classes.known(*class));
        !self.limits.is_empty() && keys.any(|key| self.limits.may_apply(key))
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
        // Jobs that have expired, and those of other keys than their lane's.
        let mut skipped: HashSet<i64> = HashSet::new();
        loop {
            let wanted = max.saturating_sub(claims.jobs.len());
            if wanted == 0 {
                return Ok(());
            }
            let lanes = self.lanes(classes)?;
            self.read_gates(&mut gates, &lanes)?;
            let each = heads_of_each(lanes.len(), wanted).saturating_add(skipped.len());
            let (rows, mut heads) = self.heads(&lanes, each)?;
            heads.retain(|head| !skipped.contains(&head.seq));
            let now = self.context.now;
            let turns = self.shares.turns(&lanes, heads, now);
            let mut chosen = gates.choose(&lanes, turns, wanted, (&self.outbox.gates, now));
            let rows: HashMap<i64, HeadRow> = rows.into_iter().map(|row| (row.seq, row)).collect();
            let mut goes_on = false;
            for head in std::mem::take(&mut chosen.heads) {
                let row = rows.get(&head.seq);
                let (Some(row), Some(lane)) = (row, lanes.get(head.lane)) else { continue };
                goes_on = true;
                match self.take(row, &claim.claimant, Some(lane))? {
                    Some(claimed) => {
                        gates.started(lane, now);
                        self.shares.claimed(lane, (head.rank, head.seq), now);
                        self.keep_starts(&mut gates, lane)?;
                        claims.jobs.push(claimed);
                    }
                    None => {
                        skipped.insert(head.seq);
                    }
                }
            }
            if !goes_on {
                let (again, blocked) = chosen.left(&lanes);
                claims.passed_over.extend(again);
                claims.blocked.extend(blocked);
                return Ok(());
            }
        }
    }

    /// Returns the lanes of the classes: of a class that limits tell apart by keys, those from a
    /// place on that differs from batch to batch.
    fn lanes(&self, classes: &[ClassId]) -> Result<Vec<Lane>, StoreError> {
        let mut all = Vec::new();
        for class in classes {
            let Some(key) = self.classes.known(*class) else { continue };
            if self.classes.is_paused(&key.queue) {
                continue;
            }
            if !self.limits.need_lanes(key) {
                all.push(self.limits.whole(*class, key));
                continue;
            }
            let start = self.context.first_lane();
            let mut numbers = self.lane_numbers(*class, start, LANES_LOOKED_AT)?;
            let rest = LANES_LOOKED_AT - u32::try_from(numbers.len()).unwrap_or(0);
            if rest > 0 {
                let from_first = self.lane_numbers(*class, 0, rest)?;
                numbers.extend(from_first.into_iter().filter(|lane| *lane <= start));
            }
            for number in numbers {
                let keys = self.keys_of_lane(*class, number)?;
                all.push(self.limits.lane((*class, key), number, keys));
            }
        }
        Ok(all)
    }

    fn lane_numbers(&self, class: ClassId, after: i64, max: u32) -> Result<Vec<i64>, StoreError> {
        let mut select = self.db.prepare_cached(LANES).map_err(failed)?;
        let rows = select.query_map((class.0, after, max), |row| row.get(0)).map_err(failed)?;
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

    fn read_gates(&self, gates: &mut Gates, lanes: &[Lane]) -> Result<(), StoreError> {
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
            let (in_flight, used_until) = found.unwrap_or((0, 0));
            gates.read(id, in_flight, used_until);
        }
        Ok(())
    }

    /// Returns the first `each` jobs of each lane.
    fn heads(&self, lanes: &[Lane], each: usize) -> Result<(Vec<HeadRow>, Vec<Head>), StoreError> {
        let (mut rows, mut heads) = (Vec::new(), Vec::new());
        for (nth, lane) in lanes.iter().enumerate() {
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
        for gate in &lane.gates {
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
        for (gate, by) in self.outbox.gates.take() {
            let sql = "update gate set in_flight = in_flight + ? where id = ?";
            self.execute(sql, (by, gate.0))?;
        }
        Ok(())
    }

    pub(super) fn load_limit(
        &self,
        name: &LimitName,
    ) -> Result<(Option<LimitRecord>, usize), StoreError> {
        let sql = concat!("select ", read::limit::columns!(), " from limit_rule where name = ?");
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let mut rows = select.query([name.as_str()]).map_err(failed)?;
        let found = rows.next().map_err(failed)?.map(record_of).transpose()?;
        Ok((found, self.limits.len()))
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
                self.context.now.0,
            ),
        )?;
        if let Some(most) = limit.rate.map(|rate| used_at_most(rate, self.context.now)) {
            self.execute(
                "update gate set used_until = ?1 where limit_name = ?2 and used_until > ?1",
                (most, limit.name.as_str()),
            )?;
        }
        *self.limits = load(self.db)?;
        Ok(())
    }

    pub(super) fn remove_limit(&mut self, name: &LimitName) -> Result<(), StoreError> {
        self.execute("delete from limit_rule where name = ?", [name.as_str()])?;
        *self.limits = load(self.db)?;
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
        *self.limits = load(self.db)?;
        Ok(())
    }
}
