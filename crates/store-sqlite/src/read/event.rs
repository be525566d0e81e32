//! The event log, in the order of writing. What came with a store that was moved here was
//! written by several servers, each in lanes of its own.

use outlast_store::StoreError;
use outlast_store::cursor::{Cursor, Logged, Reading, Window, window};
use outlast_store::event::{EventPage, EventQuery};
use rusqlite::{Connection, OptionalExtension as _};

use crate::row::failed;

/// The lanes that are entered (`?2`, as JSON) or later than `?1`, each with whether it is the
/// one that is written: one step in the index for each.
const LANES: &str = "with recursive s(lane) as (
         select min(lane) from event_batch where lane > ?1
         union all
         select (select min(b.lane) from event_batch b where b.lane > s.lane)
         from s where s.lane is not null)
     select l.lane, l.lane = (select latest from event_lane)
     from (select lane from s where lane is not null
           union select value from json_each(?2)) l
     order by l.lane";

const BATCHES: &str = "select n, at, body from event_batch
     where lane = ?1 and n >= ?2 and at >= ?3 order by n limit ?4";

pub(crate) fn page(db: &Connection, query: &EventQuery) -> Result<EventPage, StoreError> {
    let mut reading = Reading::of(query)?;
    let oldest = oldest(db, query)?;
    loop {
        let lanes = lanes(db, reading.cursor())?;
        let limit = window(lanes.len());
        let mut windows = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let batches = batches(db, (lane.0, reading.cursor().from(lane.0)), oldest, limit)?;
            windows.push(Window::new(lane, batches, limit));
        }
        if reading.read(windows)? {
            return Ok(reading.page());
        }
    }
}

fn lanes(db: &Connection, cursor: &Cursor) -> Result<Vec<(i64, bool)>, StoreError> {
    let entered: Vec<String> = cursor.entered().map(|lane| lane.to_string()).collect();
    let mut select = db.prepare_cached(LANES).map_err(failed)?;
    let rows = select
        .query_map((cursor.upto(), format!("[{}]", entered.join(","))), |row| {
            Ok((row.get(0)?, row.get::<_, Option<bool>>(1)?.unwrap_or_default()))
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

fn batches(
    db: &Connection,
    (lane, from): (i64, i64),
    oldest: i64,
    limit: usize,
) -> Result<Vec<Logged>, StoreError> {
    let mut select = db.prepare_cached(BATCHES).map_err(failed)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = select
        .query_map((lane, from, oldest, limit), |row| {
            Ok(Logged { n: row.get(0)?, at: row.get(1)?, body: row.get(2)? })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// Nothing is told of a job before it is stored; a store that was moved here may have been
/// written by several servers, whose clocks differed little.
fn oldest(db: &Connection, query: &EventQuery) -> Result<i64, StoreError> {
    let Some(job) = query.job.filter(|_| query.after.is_none()) else { return Ok(i64::MIN) };
    let mut select =
        db.prepare_cached("select created from job_row where id = ?").map_err(failed)?;
    let created = select.query_row([job.0.as_bytes().as_slice()], |row| row.get::<_, i64>(0));
    let created = created.optional().map_err(failed)?;
    Ok(created.map_or(i64::MIN, |at| at.saturating_sub(1000)))
}

/// The cursor after everything there is.
pub(crate) fn end(db: &Connection) -> Result<String, StoreError> {
    let mut select = db
        .prepare_cached(
            "select b.lane, b.n, b.lane = (select latest from event_lane) from event_batch b
             order by b.lane desc, b.n desc limit 1",
        )
        .map_err(failed)?;
    let last = select.query_row([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<bool>>(2)?.unwrap_or_default()))
    });
    let Some((lane, n, open)) = last.optional().map_err(failed)? else {
        return Ok(Cursor::default().text());
    };
    Ok(Cursor::end(lane, open.then_some((lane, Some(n)))).text())
}
