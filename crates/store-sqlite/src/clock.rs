//! The store's clock: max(persisted, wall clock at open) plus boot time elapsed since.
//!
//! So it never runs backwards, not over a restart and not when someone sets the wall
//! clock, and a jump of the wall clock while the server runs is not seen at all.

use std::time::{SystemTime, UNIX_EPOCH};

use outlast_core::time::Timestamp;
use outlast_store::Clock;
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};

/// A clock over CLOCK_BOOTTIME that starts at a given time.
#[derive(Debug)]
pub struct BootClock {
    base: Timestamp,
    opened_ms: i64,
}

impl BootClock {
    /// Returns a clock that shows the later of `persisted` and `wall` now.
    #[must_use]
    pub fn starting_at(persisted: Timestamp, wall: Timestamp) -> Self {
        Self { base: persisted.max(wall), opened_ms: boot_ms() }
    }
}

impl Clock for BootClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.base.0.saturating_add(boot_ms().saturating_sub(self.opened_ms).max(0)))
    }
}

/// The times of the last batches of all lanes: time never falls within a lane.
const LATEST: &str = "with recursive lanes(lane) as (
         select max(lane) from event_batch
         union all
         select (select max(b.lane) from event_batch b where b.lane < l.lane)
         from lanes l where l.lane is not null)
     select max(at) from (
         select (select b.at from event_batch b where b.lane = l.lane order by b.n desc limit 1) as at
         from lanes l
         union all select cast(value as integer) from meta where key = 'time')";

/// Returns the latest time that the store has acted at.
pub(crate) fn persisted_time(connection: &Connection) -> Result<Timestamp, rusqlite::Error> {
    let has_lanes = "select count(*) from pragma_table_info('event_batch') where name = 'lane'";
    if connection.query_row(has_lanes, [], |row| row.get(0)).is_ok_and(|lanes: i64| lanes == 0) {
        // A store of a build that is too old for this one: that is what it will be refused for.
        return Ok(Timestamp::default());
    }
    let latest: Option<i64> = connection.query_row(LATEST, [], |row| row.get(0))?;
    Ok(Timestamp(latest.unwrap_or(0)))
}

/// Returns the wall clock's time.
#[expect(clippy::disallowed_methods, reason = "this file is the crate's reader of clocks")]
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn boot_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000)
}
