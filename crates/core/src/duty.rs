//! Duties: what one server does for all of them, such as deleting what is old.
//!
//! A duty is a lease by the store's clock. Its holder does the work under
//! its epoch; a holder that was replaced meanwhile is refused. Correctness does not rest
//! on it (what is done twice is done by compare-and-set), so nothing needs to watch it:
//! time alone ends the lease.
//!
//! ```text
//! free ─────hold─▶ held, epoch 1 ─hold by the same─▶ held, same epoch, longer
//!                    │ over, or given back
//!                    └─hold by another─▶ held, epoch + 1
//! ```

use uuid::Uuid;

use crate::id::Epoch;
use crate::time::{Span, Timestamp};

/// Who has a duty, or had it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    /// The server process.
    pub holder: Uuid,
    /// Rises by one whenever another server takes the duty over, and never resets.
    pub epoch: Epoch,
    /// Until when no other server may take it.
    pub until: Timestamp,
}

/// Why a server does not have a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DutyRefusal {
    /// No server ever had it.
    #[error("no server has taken this duty yet")]
    NeverTaken,
    /// Another has it, or had it last.
    #[error("server {} has this duty under epoch {}", .0.holder, .0.epoch)]
    Elsewhere(Duty),
}

/// Takes a duty, or holds it longer: for `span` from now.
///
/// # Errors
/// Returns who has it, if that is another and its lease is not over.
pub fn hold(
    found: Option<Duty>,
    holder: Uuid,
    span: Span,
    now: Timestamp,
) -> Result<Duty, DutyRefusal> {
    let until = now.after(span);
    match found {
        None => Ok(Duty { holder, epoch: Epoch::ZERO.next(), until }),
        Some(duty) if duty.holder == holder => Ok(Duty { until: until.max(duty.until), ..duty }),
        Some(duty) if duty.until <= now => Ok(Duty { holder, epoch: duty.epoch.next(), until }),
        Some(duty) => Err(DutyRefusal::Elsewhere(duty)),
    }
}

/// Gives a duty back, so that another may take it at once.
///
/// # Errors
/// Returns why there is nothing to give back.
pub fn give_back(found: Option<Duty>, holder: Uuid, now: Timestamp) -> Result<Duty, DutyRefusal> {
    let duty = of(found, holder)?;
    Ok(Duty { until: duty.until.min(now), ..duty })
}

/// Says whether what is done under this epoch may still be done. A lease that is over and
/// that no other server has taken yet does no harm.
///
/// # Errors
/// Returns who took the duty over.
pub fn check(found: Option<Duty>, holder: Uuid, epoch: Epoch) -> Result<(), DutyRefusal> {
    let duty = of(found, holder)?;
    if duty.epoch == epoch { Ok(()) } else { Err(DutyRefusal::Elsewhere(duty)) }
}

fn of(found: Option<Duty>, holder: Uuid) -> Result<Duty, DutyRefusal> {
    match found {
        None => Err(DutyRefusal::NeverTaken),
        Some(duty) if duty.holder == holder => Ok(duty),
        Some(duty) => Err(DutyRefusal::Elsewhere(duty)),
    }
}

#[cfg(test)]
mod tests;
