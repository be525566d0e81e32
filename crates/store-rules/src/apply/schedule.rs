//! Whether a schedule may be written: only as it was read.

use outlast_core::schedule::SCHEDULES_MAX;
use outlast_core::time::Timestamp;
use outlast_store::command::WriteSchedule;
use outlast_store::schedule::{ScheduleRecord, ScheduleRefusal};

/// What a schedule becomes.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Its revision from now on.
    pub revision: u64,
    /// The row; `None` if it is removed.
    pub record: Option<ScheduleRecord>,
}

/// Decides what a schedule becomes; `count` is how many there are, of which only making one asks.
///
/// # Errors
/// Returns why it stays as it is.
pub fn write(
    found: Option<&ScheduleRecord>,
    count: usize,
    write: &WriteSchedule,
    now: Timestamp,
) -> Result<Written, ScheduleRefusal> {
    if found.map(|found| found.revision) != write.expected {
        return Err(ScheduleRefusal::Changed);
    }
    if found.is_none() && write.to.is_some() && count >= SCHEDULES_MAX {
        return Err(ScheduleRefusal::TooMany);
    }
    let revision = found.map_or(0, |found| found.revision) + 1;
    let record = write.to.as_ref().map(|state| ScheduleRecord {
        name: write.name.clone(),
        revision,
        state: state.clone(),
        created: found.map_or(now, |found| found.created),
        updated: now,
    });
    Ok(Written { revision, record })
}
