//! Whether a schedule may be written: only as it was read.

use outlast_core::schedule::SCHEDULES_MAX;
use outlast_store::command::WriteSchedule;
use outlast_store::schedule::{ScheduleRecord, ScheduleRefusal};

use crate::rules::Context;

/// What a schedule becomes.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Its revision from now on.
    pub revision: u64,
    /// The row; `None` if it is removed.
    pub record: Option<ScheduleRecord>,
}

/// Returns the revision of a schedule that is made: one that no schedule of its name had before, so
/// that what was read of one that is gone is not written over it. The batch's seed tells two of the same
/// millisecond apart.
#[must_use]
pub fn first_revision(context: &Context) -> u64 {
    u64::try_from(context.now.0).unwrap_or(0) << SEED_BITS | context.seed & ((1 << SEED_BITS) - 1)
}

/// How much of a first revision is chance. The rest leaves room for a thousand changes in each
/// millisecond.
const SEED_BITS: u32 = 10;

/// Decides what a schedule becomes; `count` is how many there are, of which only making one asks.
///
/// # Errors
/// Returns why it stays as it is.
pub fn write(
    found: Option<&ScheduleRecord>,
    count: usize,
    write: &WriteSchedule,
    context: &Context,
) -> Result<Written, ScheduleRefusal> {
    let now = context.now;
    if found.map(|found| found.revision) != write.expected {
        return Err(ScheduleRefusal::Changed);
    }
    if found.is_none() && write.to.is_some() && count >= SCHEDULES_MAX {
        return Err(ScheduleRefusal::TooMany);
    }
    let revision = found.map_or_else(|| first_revision(context), |found| found.revision + 1);
    let record = write.to.as_ref().map(|state| ScheduleRecord {
        name: write.name.clone(),
        revision,
        state: state.clone(),
        created: found.map_or(now, |found| found.created),
        updated: now,
    });
    Ok(Written { revision, record })
}
