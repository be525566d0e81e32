//! Limits as a store keeps them, and what they hold back.

use outlast_core::gate::{Gate, Rate};
use outlast_core::id::{JobId, WorkerId};
use outlast_core::leadership::LeadershipRefusal;
use outlast_core::limit::{GateId, Limit, LimitName, Scope};
use outlast_core::time::{Span, Timestamp};

use crate::command::LeadershipFence;
use crate::error::StoreError;
use crate::request::{boxed_requests, requests};

/// Sets a limit, or replaces the one of that name. It takes effect with the next claim, on jobs
/// that are stored already too. Attempts that run count only against limits that applied when they
/// were claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetLimit {
    /// The limit.
    pub limit: Limit,
    /// Whether it comes from a server's configuration.
    pub configured: bool,
    /// Who sets it, for the event log.
    pub by: String,
}

/// Removes a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveLimit {
    /// Its name.
    pub name: LimitName,
    /// Whether a server's configuration no longer has it.
    pub configured: bool,
    /// Who removes it, for the event log.
    pub by: String,
}

/// Counts again what gates count, and corrects those that count wrongly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recount {
    /// The lease it is done under; refused when another server has taken over.
    pub leadership: LeadershipFence,
    /// The gates. One that another session has locked is passed over.
    pub gates: Vec<GateId>,
}

/// A gate that counted wrongly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miscount {
    /// Its number.
    pub gate: GateId,
    /// The limit it is of; `None` if the gate does not exist any more, and is still counted.
    pub limit: Option<LimitName>,
    /// The value of the key, if it is a gate of a limit on a key.
    pub value: Option<String>,
    /// How many attempts it counted.
    pub counted: i64,
    /// How many attempts hold it.
    pub held: i64,
}

/// Why a limit stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitRefusal {
    /// It comes from a server's configuration, which decides.
    #[error("limit is set by the server's configuration")]
    Configured,
    /// There are [`outlast_core::limit::LIMITS_MAX`] already.
    #[error("there are too many limits")]
    TooMany,
}

/// What became of an order about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// There was none of that name, and there is now.
    Created,
    /// It was replaced.
    Replaced,
    /// It was so before.
    Unchanged,
    /// It was removed.
    Removed,
    /// There was none.
    NotFound,
}

/// A limit as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRecord {
    /// The limit.
    pub limit: Limit,
    /// Whether it comes from a server's configuration.
    pub configured: bool,
    /// Who set it.
    pub set_by: String,
    /// When.
    pub set_at: Timestamp,
}

/// A gate that attempts hold, or that a rate has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRecord {
    /// Its number.
    pub id: GateId,
    /// The value of the key, if it is a gate of a limit on a key.
    pub value: Option<String>,
    /// How many attempts it counts.
    pub in_flight: u64,
    /// Until when the starts so far use up the rate, in microseconds since the Unix epoch.
    pub used_until: i64,
}

/// Asks which gates of a limit are in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateQuery {
    /// The limit.
    pub name: LimitName,
    /// Only gates that attempts hold, those with most first; at most this many.
    pub limit: u32,
}

/// An attempt that holds a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateHolder {
    /// The job.
    pub job: JobId,
    /// The native worker that runs it.
    pub worker: Option<WorkerId>,
    /// The id that a plain holder gave itself.
    pub plain: Option<String>,
    /// When it was claimed.
    pub claimed: Timestamp,
}

/// Returns a rate as it is stored and shown: starts, and the period in milliseconds.
#[must_use]
pub const fn rate_columns(rate: Option<Rate>) -> Option<(u32, u64)> {
    match rate {
        Some(rate) => Some((rate.starts(), rate.period().0)),
        None => None,
    }
}

/// Returns until when a rate that is set now may be used up at most, in microseconds since the Unix
/// epoch: what another rate has used further ahead does not hold it back.
#[must_use]
pub fn used_at_most(rate: Rate, now: Timestamp) -> i64 {
    now.0.saturating_mul(1000).saturating_add(rate.used_ahead())
}

/// The columns of [`LimitColumns`], in this order.
#[macro_export]
macro_rules! limit_columns {
    () => {
        "name, scope, of, concurrency, rate_starts, rate_period_ms, configured, set_by, set_at"
    };
}

/// A limit as its columns are read.
#[derive(Clone, Debug)]
pub struct LimitColumns<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it applies to: `queue`, `type` or `key`.
    pub scope: &'a str,
    /// The name of that queue, type or key.
    pub of: &'a str,
    /// Most attempts at a time.
    pub concurrency: Option<i64>,
    /// Most starts in a period.
    pub rate_starts: Option<i64>,
    /// The period, in milliseconds.
    pub rate_period_ms: Option<i64>,
    /// Whether it comes from a server's configuration.
    pub configured: bool,
    /// Who set it.
    pub set_by: String,
    /// When.
    pub set_at: i64,
}

impl LimitColumns<'_> {
    /// Returns the limit, and who set it.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] when no limit was stored so.
    pub fn record(self) -> Result<LimitRecord, StoreError> {
        let limit = self.limit()?;
        let Self { configured, set_by, set_at, .. } = self;
        Ok(LimitRecord { limit, configured, set_by, set_at: Timestamp(set_at) })
    }

    fn limit(&self) -> Result<Limit, StoreError> {
        let corrupt = || StoreError::Corrupt(format!("limit {} cannot be read", self.name));
        let small = |number: i64| u32::try_from(number).map_err(|_error| corrupt());
        let rate = match (self.rate_starts, self.rate_period_ms) {
            (Some(starts), Some(period)) => {
                let rate = Rate::new(small(starts)?, Span(period.unsigned_abs()));
                Some(rate.ok_or_else(corrupt)?)
            }
            _ => None,
        };
        Ok(Limit {
            name: LimitName::new(self.name).map_err(|_error| corrupt())?,
            scope: Scope::parse(self.scope, self.of).ok_or_else(corrupt)?,
            concurrency: self.concurrency.map(small).transpose()?,
            rate,
        })
    }
}

/// Returns the state of a gate: what its limit allows, and what is in use of it. A gate that was
/// not found is not in use.
#[must_use]
pub fn gate_state(
    concurrency: Option<u32>,
    rate: Option<Rate>,
    found: Option<&GateRecord>,
) -> Gate {
    Gate {
        concurrency,
        in_flight: found.map_or(0, |found| found.in_flight),
        rate,
        used_until: found.map_or(0, |found| found.used_until),
    }
}

requests! {
    RemoveLimit as RemoveLimit -> LimitChanged(Result<LimitChange, LimitRefusal>);
    Recount as Recount -> Recounted(Result<Vec<Miscount>, LeadershipRefusal>);
}
boxed_requests! {
    SetLimit as SetLimit -> LimitChanged(Result<LimitChange, LimitRefusal>);
}
