//! Limits: the lanes of claimable jobs, the gates that they pass, and claims through them.
//!
//! A claim of jobs that limits may hold back takes three round trips:
//!
//! ```text
//! lanes, and the version of the limits ─▶ lock their gates, read what these count; heads of lanes
//!                                      ─▶ take the chosen heads
//! ```
//!
//! A gate that another server has locked is busy, and its lanes are left out: nothing waits here.
//! What a gate counts is read after it was locked. Others can only end attempts meanwhile.

use std::collections::{BTreeMap, HashMap};

use outlast_core::keys::Keys;
use outlast_core::limit::{GateId, LimitName};
use outlast_core::time::Timestamp;
use outlast_store::apply::limit::{
    Chosen, Gates, Head, LANES_LOOKED_AT, Lane, Limits, heads_of_each,
};
use outlast_store::codec;
use outlast_store::command::{ClassId, SetLimit};
use outlast_store::limit::{LimitRecord, rate_columns};
use outlast_store::queue::QueueRecord;
use outlast_store::reply::Blocked;
use tokio_postgres::Row;

use crate::connection::{Statement, values};
use crate::failure::{Conflict, Failure};
use crate::read::limit::{limit_columns, record_of};
use crate::read::queue::{SETTINGS, settings_of};
use crate::row::{get, int, text};
use crate::writer::Tx;
use crate::writer::claim::TAKE_CHOSEN;

/// Held shared by claims that limits concern, and alone while a limit is changed: `limits` as a
/// number.
const LOCK: i64 = 0x6c69_6d69_7473;

const VERSION: &str = "select n from limit_version";
const ALL: &str = concat!("select ", limit_columns!(), " from limit_rule order by name");

/// The version of the limits, if no other transaction is changing them.
const VERSION_SHARED: &str =
    "select n from limit_version where pg_try_advisory_xact_lock_shared($1)";

/// Those of the classes whose queues are not paused.
const NOT_PAUSED: &str = "select c.id from class c where c.id = any($1::bigint[])
     and not exists (select 1 from queue q where q.name = c.queue and q.paused)";

/// Lanes of classes from a place on, each found by one step in the index, with the keys of their
/// first jobs.
const LANES: &str = "with recursive l(class, lane, nth) as (
         select c.id, (select r.lane from ready r
                       where r.class = c.id and r.lane <> 0 and r.lane > $2
                       order by r.class, r.lane limit 1), 1
         from unnest($1::bigint[]) c(id)
         union all
         select l.class, (select r.lane from ready r
                          where r.class = l.class and r.lane <> 0 and r.lane > l.lane
                          order by r.class, r.lane limit 1), l.nth + 1
         from l where l.lane is not null and l.nth < $3)
     select l.class, l.lane, h.keys
     from l
     cross join lateral (
         select j.keys from ready r join job_row j on j.seq = r.seq
         where r.class = l.class and r.lane = l.lane and r.lane <> 0
         order by r.class, r.lane, r.rank, r.seq limit 1) h
     where l.lane is not null order by l.class, l.nth";

/// Makes gates that no job has passed before.
const MAKE_GATES: &str = "insert into gate (id, limit_name, value, used_until)
     select k.id, k.limit_name, k.value, 0
     from unnest($1::bigint[], $2::text[], $3::text[]) k(id, limit_name, value)
     where not exists (select 1 from gate g where g.id = k.id)
     order by k.id on conflict do nothing";

const LOCK_GATES: &str = "select id, used_until from gate where id = any($1::bigint[])
     order by id for update skip locked";

/// What gates count, and the time: after they were locked, so that starts through a gate are in
/// order, whichever server makes them.
const COUNT_GATES: &str = "select k.id, coalesce((
         select sum(h.n) from gate_held h where h.gate = k.id), 0)::bigint,
         (extract(epoch from clock_timestamp()) * 1000)::bigint
     from unnest($1::bigint[]) k(id)";

/// The first jobs of each lane, and of each class that is not told apart by keys.
const HEADS: &str = "select w.nth, h.rank, h.seq
     from unnest($1::bigint[], $2::bigint[], $3::bigint[]) w(nth, class, lane)
     cross join lateral (
         select r.rank, r.seq from ready r
         where w.lane is null and r.class = w.class and (r.expires is null or r.expires > $4)
         order by r.class, r.rank, r.seq limit $5) h
     where w.lane is null
     union all
     select w.nth, h.rank, h.seq
     from unnest($1::bigint[], $2::bigint[], $3::bigint[]) w(nth, class, lane)
     cross join lateral (
         select r.rank, r.seq from ready r
         where r.class = w.class and r.lane = w.lane and r.lane <> 0
             and (r.expires is null or r.expires > $4)
         order by r.class, r.lane, r.rank, r.seq limit $5) h
     where w.lane is not null";

const KEEP_STARTS: &str = "update gate g set used_until = k.used_until
     from unnest($1::bigint[], $2::bigint[]) k(id, used_until) where g.id = k.id";

/// Lets the gates of a limit open as its new rate says: what another rate has used further ahead
/// does not hold it back. No claim is made by limits meanwhile.
const CLAMP_STARTS: &str = "update gate g set used_until = m.most
     from (select $2::bigint + greatest($3::bigint, case when not $4::boolean
         then (extract(epoch from clock_timestamp()) * 1000000)::bigint end) as most) m
     where g.limit_name = $1 and g.used_until > m.most";

/// Adds to what gates count, in rows of this server alone.
pub(super) const KEEP_HELD: &str = "insert into gate_held as h (gate, server, n)
     select k.gate, $1, k.n from unnest($2::bigint[], $3::bigint[]) k(gate, n) order by k.gate
     on conflict (gate, server) do update set n = h.n + excluded.n";

/// Rows of servers that have not written for a while. One that is alive all the same begins with
/// new ones.
const HELD_LEFT: &str = "with old as materialized (
         select h.ctid as place from gate_held h
         where h.server <> $1 and not exists (
             select 1 from server_batch b where b.server = h.server and b.at >= $2)
         order by h.gate, h.server limit $3 for update skip locked)
     delete from gate_held where ctid = any(array(select place from old)) returning gate, n";

/// Rows that say nothing. Those that a batch is changing are locked.
const HELD_NONE: &str = "with none as materialized (
         select h.ctid as place from gate_held h
         where h.n = 0 order by h.gate, h.server limit $1 for update skip locked)
     delete from gate_held where ctid = any(array(select place from none))";

/// Gates that count nothing, and of which the rate is not used any more. A claim makes them again.
const UNUSED_GATES: &str = "with unused as materialized (
         select g.ctid as place from gate g
         where g.used_until < $1 and not exists (select 1 from gate_held h where h.gate = g.id)
         order by g.id limit $2 for update skip locked)
     delete from gate where ctid = any(array(select place from unused))";

/// How long a server is silent before its rows are taken over.
const SILENT_MS: i64 = 60 * 60 * 1000;

/// The limits and the settings of queues, as they were when their version was this.
#[derive(Clone, Debug)]
pub(super) struct KnownLimits {
    pub(super) version: i64,
    pub(super) limits: Limits,
}

/// What a server knows of the limits from batch to batch.
#[derive(Debug, Default)]
pub(super) struct LimitCache {
    /// As last read; `None` to read them again.
    known: Option<KnownLimits>,
    /// Whether the batch in progress has changed them. What is known then is true only once it has
    /// taken effect: if it never does, other limits get the same version.
    is_ours: bool,
}

impl LimitCache {
    fn change(&mut self) {
        *self = Self { known: None, is_ours: true };
    }

    /// The batch has taken effect.
    pub(super) fn keep(&mut self) {
        self.is_ours = false;
    }

    /// The batch was rolled back.
    pub(super) fn roll_back(&mut self) {
        if self.is_ours {
            *self = Self::default();
        }
    }
}

/// What a claim by limits takes.
#[derive(Debug, Default)]
pub(super) struct TakenByLimits {
    /// Rows of taken jobs, best first.
    pub(super) rows: Vec<Row>,
    /// The lane of each, by the job's number.
    pub(super) lanes: HashMap<i64, Lane>,
    /// Classes that are worth another look soon.
    pub(super) passed_over: Vec<ClassId>,
    /// Classes whose jobs wait for a limit.
    pub(super) blocked: Vec<Blocked>,
}

impl Tx<'_> {
    /// Returns the limits as last read.
    pub(super) async fn known_limits(&mut self) -> Result<KnownLimits, Failure> {
        if let Some(known) = self.limits.known.as_ref() {
            return Ok(known.clone());
        }
        let statements =
            vec![Statement::plain(VERSION), Statement::plain(ALL), Statement::plain(SETTINGS)];
        let mut read = self.query_all(statements).await?.into_iter();
        let version = read.next().unwrap_or_default();
        let version = version.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        let mut all = Vec::new();
        for row in &read.next().unwrap_or_default() {
            all.push(record_of(row)?);
        }
        let mut queues = Vec::new();
        for row in &read.next().unwrap_or_default() {
            queues.push(settings_of(row)?);
        }
        let known = KnownLimits { version, limits: Limits::of(all, queues) };
        self.limits.known = Some(known.clone());
        Ok(known)
    }

    /// Fails if the limits have changed since they were read: the batch is tried again.
    pub(super) fn confirm_limits(&mut self, version: i64) -> Result<(), Failure> {
        if self.limits.known.as_ref().is_some_and(|known| known.version == version) {
            return Ok(());
        }
        self.limits.known = None;
        Err(Failure::Again(Conflict::Stale, "limits were changed".into()))
    }

    /// Whether a limit may apply to jobs of one of the classes.
    pub(super) async fn are_limited(&mut self, classes: &[ClassId]) -> Result<bool, Failure> {
        let known = self.known_limits().await?;
        if known.limits.is_empty() {
            return Ok(false);
        }
        self.learn_classes(classes.iter().copied()).await?;
        for class in classes {
            // One that is not known any more has no jobs.
            if self.classes.key(*class).is_ok_and(|key| known.limits.may_apply(key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes at most `wanted` jobs of the classes, best first, as far as limits let them start.
    pub(super) async fn take_by_limits(
        &mut self,
        classes: &[ClassId],
        wanted: i64,
    ) -> Result<TakenByLimits, Failure> {
        let limits = self.known_limits().await?.limits;
        let Some(lanes) = self.lanes(&limits, classes).await? else {
            // Someone is changing them.
            return Ok(TakenByLimits { passed_over: classes.to_vec(), ..TakenByLimits::default() });
        };
        let max = usize::try_from(wanted).unwrap_or(0);
        let each = heads_of_each(lanes.len(), max);
        let (heads, now) = self.heads(&lanes, each).await?;
        let turns = self.shares.turns(&lanes, heads, now);
        let chosen = self.gates.choose(&lanes, turns, max, (&self.outbox.gates, now));
        let mut taken = self.take_chosen(&lanes, &chosen, now).await?;
        if i64::try_from(taken.rows.len()).unwrap_or(i64::MAX) < wanted {
            let (passed_over, blocked) = chosen.left(&lanes);
            taken.passed_over.extend(passed_over);
            taken.blocked.extend(blocked);
            if each < max {
                taken.passed_over.extend(chosen.exhausted(&lanes, each));
            }
            taken.passed_over.sort_unstable();
            taken.passed_over.dedup();
        }
        let mut used: BTreeMap<i64, i64> = BTreeMap::new();
        for lane in &lanes {
            used.extend(self.gates.take_used(lane).into_iter().map(|(gate, until)| (gate.0, until)));
        }
        if !used.is_empty() {
            let (gates, until): (Vec<i64>, Vec<i64>) = used.into_iter().unzip();
            self.write(KEEP_STARTS, values![gates, until]);
        }
        Ok(taken)
    }

    /// Returns the lanes of the classes; `None` while the limits are being changed.
    async fn lanes(
        &mut self,
        limits: &Limits,
        classes: &[ClassId],
    ) -> Result<Option<Vec<Lane>>, Failure> {
        self.learn_classes(classes.iter().copied()).await?;
        let mut apart = Vec::new();
        for class in classes {
            if self.classes.key(*class).is_ok_and(|key| limits.need_lanes(key)) {
                apart.push(class.0);
            }
        }
        let ids: Vec<i64> = classes.iter().map(|class| class.0).collect();
        // From a place on that differs from batch to batch, and on from the first.
        let start = self.context.first_lane();
        let most = i32::try_from(LANES_LOOKED_AT).unwrap_or(i32::MAX);
        let mut statements = vec![
            Statement::new(VERSION_SHARED, values![LOCK]),
            Statement::new(NOT_PAUSED, values![ids]),
        ];
        if !apart.is_empty() {
            statements.push(Statement::new(LANES, values![apart.clone(), start, most]));
            statements.push(Statement::new(LANES, values![apart.clone(), 0_i64, most]));
        }
        let read = self.query_all(statements).await?;
        let rows = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let Some(version) = rows(0).first() else { return Ok(None) };
        self.confirm_limits(get(version, 0)?)?;
        let mut lanes = Vec::new();
        let mut open = Vec::new();
        for row in rows(1) {
            open.push(get::<i64>(row, 0)?);
        }
        for class in classes {
            let Ok(key) = self.classes.key(*class) else { continue };
            if open.contains(&class.0) && !apart.contains(&class.0) {
                lanes.push(limits.whole(*class, key));
            }
        }
        let mut looked: HashMap<i64, u32> = HashMap::new();
        for (row, is_rest) in
            rows(2).iter().map(|row| (row, false)).chain(rows(3).iter().map(|row| (row, true)))
        {
            let (class, number): (i64, i64) = (get(row, 0)?, get(row, 1)?);
            let looked = looked.entry(class).or_default();
            if (is_rest && number > start) || *looked >= LANES_LOOKED_AT || !open.contains(&class) {
                continue;
            }
            *looked += 1;
            let keys: Keys = codec::keys_of(get(row, 2)?)?;
            let class = ClassId(class);
            lanes.push(limits.lane((class, self.classes.key(class)?), number, keys));
        }
        Ok(Some(lanes))
    }

    /// Locks and reads the gates of the lanes, and returns the first `each` jobs of each, with
    /// the time.
    async fn heads(
        &mut self,
        lanes: &[Lane],
        each: usize,
    ) -> Result<(Vec<Head>, Timestamp), Failure> {
        let each = i64::try_from(each).unwrap_or(i64::MAX);
        let missing = self.gates.missing(lanes);
        let ids: Vec<i64> = missing.iter().map(|gate| gate.id.0).collect();
        let names: Vec<String> = missing.iter().map(|gate| gate.name.to_string()).collect();
        let of: Vec<Option<String>> =
            missing.iter().map(|gate| gate.value.as_deref().map(text)).collect();
        let mut numbers = Vec::with_capacity(lanes.len());
        let (mut classes, mut of_class) = (Vec::with_capacity(lanes.len()), Vec::new());
        for (nth, lane) in (0_i64..).zip(lanes) {
            numbers.push(nth);
            classes.push(lane.class.0);
            of_class.push(lane.number);
        }
        let now = self.context.now.0;
        let statements = vec![
            Statement::new(MAKE_GATES, values![ids.clone(), names, of]),
            Statement::new(LOCK_GATES, values![ids.clone()]),
            Statement::new(COUNT_GATES, values![ids]),
            Statement::new(HEADS, values![numbers, classes, of_class, now, each]),
        ];
        let read = self.query_all(statements).await?;
        let rows = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let mut time = self.context.now;
        let mut counts: HashMap<i64, i64> = HashMap::new();
        for row in rows(2) {
            counts.insert(get(row, 0)?, get(row, 1)?);
            if !self.has_clock {
                time = time.max(Timestamp(get(row, 2)?));
            }
        }
        for row in rows(1) {
            let id: i64 = get(row, 0)?;
            let in_flight = counts.get(&id).copied().unwrap_or(0);
            self.gates.read(GateId(id), in_flight, get(row, 1)?);
        }
        let mut heads = Vec::new();
        for row in rows(3) {
            let lane = usize::try_from(get::<i64>(row, 0)?).unwrap_or(usize::MAX);
            heads.push(Head { lane, rank: get(row, 1)?, seq: get(row, 2)? });
        }
        // Without gates to lock, there was no time to read.
        Ok((heads, self.gates.at_least(time)))
    }

    async fn take_chosen(
        &mut self,
        lanes: &[Lane],
        chosen: &Chosen,
        now: Timestamp,
    ) -> Result<TakenByLimits, Failure> {
        if chosen.heads.is_empty() {
            return Ok(TakenByLimits::default());
        }
        let (mut classes, mut ranks, mut seqs, mut keys) = (vec![], vec![], vec![], vec![]);
        let mut of: HashMap<i64, &Lane> = HashMap::new();
        for head in &chosen.heads {
            let Some(lane) = lanes.get(head.lane) else { continue };
            classes.push(lane.class.0);
            ranks.push(head.rank);
            seqs.push(head.seq);
            keys.push(lane.number.and_then(|_| codec::keys_text(&lane.keys)));
            of.insert(head.seq, lane);
        }
        let values = values![classes, ranks, seqs, keys, self.context.now.0];
        let rows = self.query(TAKE_CHOSEN, values).await?;
        let mut taken = TakenByLimits::default();
        for row in &rows {
            let seq: i64 = get(row, 0)?;
            if let Some(lane) = of.remove(&seq) {
                self.gates.started(lane, now);
                taken.lanes.insert(seq, lane.clone());
            }
        }
        let now = self.context.now;
        for head in chosen.heads.iter().filter(|head| taken.lanes.contains_key(&head.seq)) {
            if let Some(lane) = lanes.get(head.lane) {
                self.shares.claimed(lane, (head.rank, head.seq), now);
            }
        }
        // Others have locked the rest.
        taken.passed_over.extend(of.values().map(|lane| lane.class));
        taken.rows = rows;
        Ok(taken)
    }

    /// Takes over what servers that are gone have counted, and deletes gates that are not in use.
    pub(super) async fn prune_gates(&mut self, limit: i64) -> Result<(), Failure> {
        let now = self.context.now.0;
        // A gate that a claim of this batch uses is in use.
        if let Some(changes) = self.gate_changes(self.server) {
            self.write_set.others.push(changes);
            self.gates = Gates::default();
        }
        let statements = vec![
            Statement::new(HELD_LEFT, values![self.server, now - SILENT_MS, limit]),
            Statement::new(HELD_NONE, values![limit]),
            Statement::new(UNUSED_GATES, values![now.saturating_mul(1000), limit]),
        ];
        let read = self.query_all(statements).await?;
        for row in read.first().map_or(&[][..], Vec::as_slice) {
            self.outbox.gates.taken_over(GateId(get(row, 0)?), get(row, 1)?);
        }
        Ok(())
    }

    /// Loads a limit and counts all. Until the batch ends, no claim is made by limits.
    pub(super) async fn lock_limit(
        &mut self,
        name: &LimitName,
    ) -> Result<(Option<LimitRecord>, usize), Failure> {
        let named = concat!("select ", limit_columns!(), " from limit_rule where name = $1");
        let statements = vec![
            Statement::new("select pg_advisory_xact_lock($1)", values![LOCK]),
            Statement::new(named, values![name.to_string()]),
            Statement::plain("select count(*) from limit_rule"),
        ];
        let read = self.query_all(statements).await?;
        let row = |at: usize| read.get(at).and_then(|rows| rows.first());
        let found = row(1).map(record_of).transpose()?;
        let count: i64 = row(2).map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        Ok((found, usize::try_from(count).unwrap_or(usize::MAX)))
    }

    pub(super) fn put_limit(&mut self, order: &SetLimit) {
        let limit = &order.limit;
        let rate = rate_columns(limit.rate);
        self.write(
            "insert into limit_rule (name, scope, of, concurrency, rate_starts, rate_period_ms,
                                     configured, set_by, set_at)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             on conflict (name) do update set scope = excluded.scope, of = excluded.of,
                 concurrency = excluded.concurrency, rate_starts = excluded.rate_starts,
                 rate_period_ms = excluded.rate_period_ms, configured = excluded.configured,
                 set_by = excluded.set_by, set_at = excluded.set_at",
            values![
                limit.name.to_string(),
                limit.scope.kind(),
                text(limit.scope.of()),
                limit.concurrency.map(i64::from),
                rate.map(|(starts, _)| i64::from(starts)),
                rate.map(|(_, period)| int(period)),
                order.configured,
                text(&order.by),
                self.context.now.0,
            ],
        );
        if let Some(rate) = limit.rate {
            let now = self.context.now.0.saturating_mul(1000);
            let values = values![limit.name.to_string(), rate.used_ahead(), now, self.has_clock];
            self.write(CLAMP_STARTS, values);
        }
        self.limits_changed();
    }

    pub(super) fn remove_limit(&mut self, name: &LimitName) {
        self.write("delete from limit_rule where name = $1", values![name.to_string()]);
        self.limits_changed();
    }

    /// Loads the settings of a queue. Until the batch ends, no claim is made by limits.
    pub(super) async fn lock_settings(
        &mut self,
        queue: &str,
    ) -> Result<Option<QueueRecord>, Failure> {
        let named = "select name, settings, set_by, set_at from queue
             where name = $1 and settings is not null";
        let statements = vec![
            Statement::new("select pg_advisory_xact_lock($1)", values![LOCK]),
            Statement::new(named, values![text(queue)]),
        ];
        let read = self.query_all(statements).await?;
        Ok(read.get(1).and_then(|rows| rows.first()).map(settings_of).transpose()?)
    }

    pub(super) fn put_settings(&mut self, record: &QueueRecord) {
        self.write(
            "insert into queue (name, paused, settings, set_by, set_at)
             values ($1, false, $2, $3, $4)
             on conflict (name) do update set settings = excluded.settings,
                 set_by = excluded.set_by, set_at = excluded.set_at",
            values![
                text(&record.queue),
                text(&codec::settings_text(&record.settings)),
                text(&record.set_by),
                record.set_at.0,
            ],
        );
        self.limits_changed();
    }

    pub(super) fn limits_changed(&mut self) {
        self.write("update limit_version set n = n + 1", values![]);
        self.limits.change();
    }
}
