//! Leadership: one server does a task for all of them, such as deleting what is old.
//!
//! It is a lease by the store's clock. The leader works under the epoch of the lease; a
//! leader that was replaced in the meantime is refused. Correctness does not depend on it
//! (the work is compare-and-set, so doing it twice is harmless), so nothing needs to
//! watch it: time alone ends the lease.
//!
//! ```text
//! free ─────hold─▶ held, epoch 1 ─hold by the same─▶ held, same epoch, longer
//!                    │ over, or given back
//!                    └─hold by another─▶ held, epoch + 1
//! ```

use uuid::Uuid;

use crate::id::Epoch;
use crate::time::{Span, Timestamp};

/// The current leader, or the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The server process.
    pub holder: Uuid,
    /// Rises by one whenever another server takes over. Begins again only if no server led for so long
    /// that the last leader was forgotten.
    pub epoch: Epoch,
    /// Until when no other server may take it.
    pub until: Timestamp,
}

/// Why a server is not the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadershipRefusal {
    /// No server ever had it.
    #[error("no server has led yet")]
    NeverTaken,
    /// Another has it, or had it last.
    #[error("server {} is the leader under epoch {}", .0.holder, .0.epoch)]
    Elsewhere(Leadership),
}

/// Acquires the lease or renews it, for `span` from now.
///
/// # Errors
/// Returns who has it, if that is another and its lease is not over.
pub fn hold(
    found: Option<Leadership>,
    holder: Uuid,
    span: Span,
    now: Timestamp,
) -> Result<Leadership, LeadershipRefusal> {
    let until = now.after(span);
    match found {
        None => Ok(Leadership { holder, epoch: Epoch::ZERO.next(), until }),
        Some(leadership) if leadership.holder == holder => {
            Ok(Leadership { until: until.max(leadership.until), ..leadership })
        }
        Some(leadership) if leadership.until <= now => {
            Ok(Leadership { holder, epoch: leadership.epoch.next(), until })
        }
        Some(leadership) => Err(LeadershipRefusal::Elsewhere(leadership)),
    }
}

/// Resigns, so that another server can lead at once.
///
/// # Errors
/// Returns why there is nothing to give back.
pub fn give_back(
    found: Option<Leadership>,
    holder: Uuid,
    now: Timestamp,
) -> Result<Leadership, LeadershipRefusal> {
    let leadership = of(found, holder)?;
    Ok(Leadership { until: leadership.until.min(now), ..leadership })
}

/// Says whether what is done under this epoch may still be done. A lease that is over and
/// that no other server has taken yet does no harm.
///
/// # Errors
/// Returns who took over.
pub fn check(
    found: Option<Leadership>,
    holder: Uuid,
    epoch: Epoch,
) -> Result<(), LeadershipRefusal> {
    let leadership = of(found, holder)?;
    if leadership.epoch == epoch { Ok(()) } else { Err(LeadershipRefusal::Elsewhere(leadership)) }
}

fn of(found: Option<Leadership>, holder: Uuid) -> Result<Leadership, LeadershipRefusal> {
    match found {
        None => Err(LeadershipRefusal::NeverTaken),
        Some(leadership) if leadership.holder == holder => Ok(leadership),
        Some(leadership) => Err(LeadershipRefusal::Elsewhere(leadership)),
    }
}

#[cfg(test)]
mod tests;
