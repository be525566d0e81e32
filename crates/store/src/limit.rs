//! Limits as a store keeps them, and what they hold back.

use outlast_core::gate::Rate;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::limit::{GateId, Limit, LimitName};
use outlast_core::time::Timestamp;

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
