//! Limits: what is known of them, how they change, and what their gates count.

use std::collections::{HashMap, HashSet};

use outlast_core::limit::{GateId, LimitName};
use outlast_store::command::{Claim, ClassId, Command, SetLimit};
use outlast_store::limit::{Miscount, rate_columns};
use outlast_store::queue::QueueRecord;
use outlast_store::{StoreError, limit_columns};
use outlast_store_rules::apply::claim::gates::Gates;
use outlast_store_rules::apply::claim::lane::LaneGate;
use outlast_store_rules::apply::limit::Limits;
use outlast_store_rules::backend::FoundLimit;
use outlast_store_rules::codec;
use tokio_postgres::Row;

use crate::connection::{Statement, values};
use crate::failure::{Conflict, Failure};
use crate::read::limit::record_of;
use crate::read::queue::{SETTINGS, settings_of};
use crate::row::{get, int, text};
use crate::writer::Tx;
use crate::writer::depth::delete_nothing;
use crate::writer::lanes::{KEEP_STARTS, MAKING, VERSION_SHARED};

/// Held shared by claims that limits concern, and alone while a limit is changed: `limits` as a
/// number.
pub(super) const LOCK: i64 = 0x6c69_6d69_7473;

const VERSION: &str = "select n from limit_version";
const ALL: &str = concat!("select ", limit_columns!(), " from limit_rule order by name");

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
             select 1 from server_batch b
             where b.server = any(array[h.server]) and (b.lane is not null or b.at >= $2))
         order by h.gate, h.server limit $3 for update skip locked)
     delete from gate_held where ctid = any(array(select place from old)) returning gate, n";

/// Rows of gates that count nothing: those of one server, or of several of which one counted the
/// starts and another the ends.
const HELD_NONE: &str = concat!(delete_nothing!("gate_held", "gate"), " returning gate");

/// Gates that count nothing, and of which the rate is not used any more. A claim makes them again.
const UNUSED_GATES: &str = "with unused as materialized (
         select g.ctid as place from gate g
         where g.used_until < $1 and not exists (
             select 1 from gate_held h where h.gate = any(array[g.id]))
         order by g.id limit $2 for update skip locked)
     delete from gate where ctid = any(array(select place from unused))
     returning 1";

/// Locks gates, so that no claim passes them and no other server corrects them.
const LOCK_SUSPECTS: &str = "select g.id, g.limit_name, g.value from gate g
     where g.id = any($1::bigint[]) order by g.id for update skip locked";

/// Keeps claims from making those of the gates that do not exist.
const LOCK_ORPHANS: &str = "with missing as materialized (
         select k.id from unnest($1::bigint[]) k(id)
         where not exists (select 1 from gate g where g.id = any(array[k.id])) order by k.id)
     select m.id from missing m
     where pg_try_advisory_xact_lock($2::integer, (m.id % 1024)::integer)";

/// What gates count and who holds them, as of one moment: ends go on meanwhile, and change both.
const RECOUNT: &str = "with held as materialized (
         select k.id, count(*) as n
         from active a cross join lateral unnest(a.gates) k(id)
         where a.gates && $1::bigint[]
         group by k.id)
     select k.id,
         coalesce((select sum(h.n) from gate_held h where h.gate = k.id), 0)::bigint,
         coalesce((select l.n from held l where l.id = k.id), 0),
         exists (select 1 from gate g where g.id = any(array[k.id]))
     from unnest($1::bigint[]) k(id)";

/// Makes those gates that do not exist, waiting for others that do so.
const MAKE_PASSED: &str = "insert into gate (id, limit_name, value, used_until)
     select k.id, k.limit_name, k.value, 0
     from unnest($1::bigint[], $2::text[], $3::text[]) k(id, limit_name, value)
     order by k.id on conflict do nothing";

/// Locks gates, waiting for others that have locked them: claims do not wait for any.
const LOCK_PASSED: &str = "select g.id, g.used_until from gate g
     where g.id = any($1::bigint[]) order by g.id for update";

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

/// Whether a batch changes what claims are judged by, so that none may be made by limits meanwhile.
pub(super) fn changes_limits(command: &Command) -> bool {
    matches!(command, Command::SetLimit(_) | Command::RemoveLimit(_) | Command::SetQueue(_))
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

/// Returns the name of a gate's limit.
fn limit_name(gate: &Row) -> Result<LimitName, StoreError> {
    LimitName::new(get(gate, 1)?).map_err(|error| StoreError::Corrupt(error.to_string()))
}

impl Tx<'_> {
    /// Returns the limits as last read.
    pub(super) async fn known_limits(&mut self) -> Result<KnownLimits, Failure> {
        if let Some(known) = self.cache.limits.known.as_ref() {
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
        self.cache.limits.known = Some(known.clone());
        Ok(known)
    }

    /// Returns the limits, which no other batch changes until the batch ends.
    pub(super) async fn hold_limits(&mut self) -> Result<Limits, Failure> {
        let rows = self.query(VERSION_SHARED, values![LOCK]).await?;
        let Some(version) = rows.first() else {
            return Err(Failure::Again(Conflict::Stale, "limits are being changed".into()));
        };
        let version = get(version, 0)?;
        let limits = self.known_limits().await?.limits;
        self.confirm_limits(version)?;
        Ok(limits)
    }

    /// Uses the rates of gates for one more start, and makes those that no job has passed before.
    pub(super) async fn pass_gates(&mut self, gates: &[LaneGate]) -> Result<(), Failure> {
        if gates.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = gates.iter().map(|gate| gate.id.0).collect();
        let names: Vec<String> = gates.iter().map(|gate| gate.name.to_string()).collect();
        let of: Vec<Option<String>> =
            gates.iter().map(|gate| gate.value.as_deref().map(text)).collect();
        let statements = vec![
            Statement::new(MAKE_PASSED, values![ids.clone(), names, of]),
            Statement::new(LOCK_PASSED, values![ids]),
        ];
        let read = self.query_all(statements).await?;
        let mut used: HashMap<i64, i64> = HashMap::new();
        for row in read.last().map_or(&[][..], Vec::as_slice) {
            used.insert(get(row, 0)?, get(row, 1)?);
        }
        let (mut ids, mut until) = (Vec::new(), Vec::new());
        for gate in gates {
            let before = gate.used(used.get(&gate.id.0).copied().unwrap_or(0));
            ids.push(gate.id.0);
            until.push(before.after(1, self.batch.context.now).used_until);
        }
        self.write(KEEP_STARTS, values![ids, until]);
        // A claim of this batch reads them again.
        self.gates = Gates::default();
        Ok(())
    }

    /// Returns the limits and settings by which claims are judged.
    pub(super) async fn limits_for(
        &mut self,
        mut claims: impl Iterator<Item = &Claim>,
    ) -> Result<Limits, Failure> {
        let known = self.known_limits().await?.limits;
        if claims.all(|claim| known.may_claim(claim).is_ok()) {
            return Ok(known);
        }
        // Perhaps it is this that is out of date: a claim that takes nothing would never show it.
        self.cache.limits.known = None;
        Ok(self.known_limits().await?.limits)
    }

    /// Fails if the limits have changed since they were read: the batch is tried again.
    pub(super) fn confirm_limits(&mut self, version: i64) -> Result<(), Failure> {
        if self.cache.limits.known.as_ref().is_some_and(|known| known.version == version) {
            return Ok(());
        }
        self.cache.limits.known = None;
        Err(Failure::Again(Conflict::Stale, "limits were changed".into()))
    }

    /// Fails if limits may apply to jobs that were taken without them: their class is new since the
    /// classes of their queue were read.
    pub(super) async fn confirm_no_limits(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let mut classes = Vec::with_capacity(rows.len());
        for row in rows {
            classes.push(ClassId(get(row, 2)?));
        }
        if self.are_limited(&classes).await? {
            return Err(Failure::Again(Conflict::Stale, "a class behind a limit is new".into()));
        }
        Ok(())
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
            if self.cache.classes.key(*class).is_ok_and(|key| known.limits.may_apply(key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes over what servers that are gone have counted, and deletes gates that are not in use;
    /// returns how many of either at most.
    pub(super) async fn prune_gates(&mut self, limit: i64) -> Result<usize, Failure> {
        let now = self.batch.context.now.0;
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
            self.batch.outbox.gates.taken_over(GateId(get(row, 0)?), get(row, 1)?);
        }
        Ok(read.iter().map(Vec::len).max().unwrap_or(0))
    }

    /// Locks gates and returns those that count wrongly.
    pub(super) async fn lock_and_recount(
        &mut self,
        gates: &[GateId],
    ) -> Result<Vec<Miscount>, Failure> {
        if let Some(changes) = self.gate_changes(self.server) {
            self.write_set.others.push(changes);
        }
        // What was read of gates before is not true any more when they are corrected.
        self.gates = Gates::default();
        let ids: Vec<i64> = gates.iter().map(|gate| gate.0).collect();
        let statements = vec![
            Statement::new(LOCK_SUSPECTS, values![ids.clone()]),
            Statement::new(LOCK_ORPHANS, values![ids.clone(), MAKING]),
            Statement::new(RECOUNT, values![ids]),
        ];
        let read = self.query_all(statements).await?;
        let rows = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let mut known: HashMap<i64, &Row> = HashMap::new();
        for row in rows(0) {
            known.insert(get(row, 0)?, row);
        }
        let mut orphans: HashSet<i64> = HashSet::new();
        for row in rows(1) {
            orphans.insert(get(row, 0)?);
        }
        let mut wrong = Vec::new();
        for row in rows(2) {
            let (id, counted, held): (i64, i64, i64) = (get(row, 0)?, get(row, 1)?, get(row, 2)?);
            // One that was made meanwhile is not locked.
            let is_orphan = orphans.contains(&id) && !get::<bool>(row, 3)?;
            let (limit, value) = match known.get(&id) {
                Some(gate) => (Some(limit_name(gate)?), get(gate, 2)?),
                None if is_orphan => (None, None),
                None => continue,
            };
            if counted != held {
                wrong.push(Miscount { gate: GateId(id), limit, value, counted, held });
            }
        }
        Ok(wrong)
    }

    /// Loads a limit and counts all.
    pub(super) async fn lock_limit(&mut self, name: &LimitName) -> Result<FoundLimit, Failure> {
        let named = concat!("select ", limit_columns!(), " from limit_rule where name = $1");
        let statements = vec![
            Statement::new(named, values![name.to_string()]),
            Statement::plain("select count(*) from limit_rule"),
        ];
        let read = self.query_all(statements).await?;
        let row = |at: usize| read.get(at).and_then(|rows| rows.first());
        let record = row(0).map(record_of).transpose()?;
        let count: i64 = row(1).map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        Ok(FoundLimit { record, count: usize::try_from(count).unwrap_or(usize::MAX) })
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
                self.batch.context.now.0,
            ],
        );
        if let Some(rate) = limit.rate {
            let now = self.batch.context.now.0.saturating_mul(1000);
            let values =
                values![limit.name.to_string(), rate.used_ahead(), now, self.clock.own.is_some()];
            self.write(CLAMP_STARTS, values);
        }
        self.limits_changed();
    }

    pub(super) fn remove_limit(&mut self, name: &LimitName) {
        self.write("delete from limit_rule where name = $1", values![name.to_string()]);
        self.limits_changed();
    }

    /// Loads the settings of a queue.
    pub(super) async fn lock_settings(
        &mut self,
        queue: &str,
    ) -> Result<Option<QueueRecord>, Failure> {
        let named = "select name, settings, set_by, set_at from queue
             where name = $1 and settings is not null";
        let rows = self.query(named, values![text(queue)]).await?;
        Ok(rows.first().map(settings_of).transpose()?)
    }

    pub(super) fn put_settings(&mut self, record: &QueueRecord) {
        self.write(
            "insert into queue (name, paused, settings, labels_required, set_by, set_at)
             values ($1, false, $2, $3, $4, $5)
             on conflict (name) do update set settings = excluded.settings,
                 labels_required = excluded.labels_required, set_by = excluded.set_by, set_at = excluded.set_at",
            values![
                text(&record.queue),
                text(&codec::settings_text(&record.settings)),
                !record.settings.placement.takes_unlabelled(),
                text(&record.set_by),
                record.set_at.0,
            ],
        );
        self.limits_changed();
    }

    pub(super) fn limits_changed(&mut self) {
        self.write("update limit_version set n = n + 1", values![]);
        self.cache.limits.change();
    }
}
