//! The event log, in the order of writing. What came with a store that was moved here was
//! written by several servers, each in lanes of its own.

use std::collections::BinaryHeap;

use outlast_store::StoreError;
use outlast_store::event::{EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store_rules::cursor::{
    Cursor, EVER, Logged, Newest, Reading, Size, TimePosition, Times, Window, life_of, rare_wanted,
    window, with_room,
};
use rusqlite::{Connection, OptionalExtension as _, Row};

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

/// The next batches of a lane: their lengths, without reading what is in them.
const SIZES: &str = "select n, at, octet_length(body) from event_batch
     where lane = ?1 and n >= ?2 and n < ?3 order by n limit ?4";

const BODY: &str = "select body from event_batch where lane = ?1 and n = ?2";

/// The first batch of a lane that has this number or a higher one.
const FROM: &str = "select n, at from event_batch where lane = ?1 and n >= ?2 order by n limit 1";

/// The last batch of a lane that has a lower number.
const BEFORE: &str =
    "select n, at from event_batch where lane = ?1 and n < ?2 order by n desc limit 1";

/// The last one before it that may hold a rare event of those wanted.
const RARE_BEFORE: &str = "select n, at from event_batch indexed by event_batch_rare
     where lane = ?1 and n < ?2 and rare is not 0 and (rare is null or rare & ?3 <> 0)
     order by n desc limit 1";

pub(crate) fn page(db: &Connection, query: &EventQuery) -> Result<EventPage, StoreError> {
    let query = &in_lanes(db, query)?;
    let mut reading = Reading::of(query)?;
    // Before the job is loaded: what happens to it later is logged after this.
    let end = if query.job.is_some() { Some(end(db)?) } else { None };
    let life = life(db, query)?;
    let end = end.filter(|_| life.to < i64::MAX);
    loop {
        let lanes = lanes(db, reading.cursor())?;
        if reading.read(windows(db, reading.cursor(), lanes, life)?)? {
            return Ok(reading.page_until(end));
        }
    }
}

/// Reads the next batches of each lane, as many as there is room for.
fn windows(
    db: &Connection,
    cursor: &Cursor,
    lanes: Vec<(i64, bool)>,
    life: Times,
) -> Result<Vec<Window>, StoreError> {
    let limit = window(lanes.len());
    let mut found = Vec::with_capacity(lanes.len());
    for lane in lanes {
        found.push((lane, sizes(db, lane.0, cursor.from(lane.0), life, limit)?));
    }
    let room = with_room(found.iter().flat_map(|(_, sizes)| sizes).copied().collect());
    let mut select = db.prepare_cached(BODY).map_err(failed)?;
    let mut logged = |Size { lane, n, at, .. }: Size| {
        let mut body = || select.query_row((lane, n), |row| row.get(0)).optional();
        let body = if room.contains(&(lane, n)) { body().map_err(failed)? } else { None };
        Ok::<_, StoreError>(Logged { n, at, body })
    };
    let mut windows = Vec::with_capacity(found.len());
    for (lane, sizes) in found {
        let batches = sizes.into_iter().map(&mut logged).collect::<Result<_, _>>()?;
        windows.push(Window::new(lane.0, lane.1, batches, limit));
    }
    Ok(windows)
}

/// The newest events. The last batches of all lanes are merged, the latest first.
pub(crate) fn newest(db: &Connection, query: &NewestQuery) -> Result<NewestPage, StoreError> {
    let mut newest = Newest::of(query, life(db, &query.of)?)?;
    let (time, end_lane, end_n) = newest.end();
    let rare = rare_wanted(&query.of);
    let before = if rare.is_some() { RARE_BEFORE } else { BEFORE };
    let mut before = db.prepare_cached(before).map_err(failed)?;
    let mut last = |lane: i64, n: i64| -> Result<Option<(i64, i64, i64)>, StoreError> {
        let place = |row: &Row<'_>| -> rusqlite::Result<(i64, i64, i64)> {
            Ok((row.get(1)?, lane, row.get(0)?))
        };
        let found = match rare {
            Some(bits) => before.query_row((lane, n, bits), place),
            None => before.query_row((lane, n), place),
        };
        found.optional().map_err(failed)
    };
    let mut heads = BinaryHeap::new();
    for (lane, _) in lanes(db, &Cursor::default())? {
        let end = match (lane.cmp(&end_lane), time) {
            (_, i64::MAX) => i64::MAX,
            (std::cmp::Ordering::Less, _) => number_at(db, lane, 0, time.saturating_add(1))?,
            (std::cmp::Ordering::Equal, _) => end_n,
            (std::cmp::Ordering::Greater, _) => number_at(db, lane, 0, time)?,
        };
        heads.extend(last(lane, end)?);
    }
    let mut body = db.prepare_cached(BODY).map_err(failed)?;
    while let Some((at, lane, n)) = heads.pop() {
        let body = body.query_row((lane, n), |row| row.get(0)).map_err(failed)?;
        if newest.take(lane, &Logged { n, at, body })? {
            return Ok(newest.page(true));
        }
        heads.extend(last(lane, n)?);
    }
    Ok(newest.page(false))
}

/// The query with a cursor that reads lane by lane, if it has one of time.
fn in_lanes(db: &Connection, query: &EventQuery) -> Result<EventQuery, StoreError> {
    let place = query.after.as_deref().and_then(TimePosition::parse);
    let Some(place) = place else { return Ok(query.clone()) };
    let mut firsts = Vec::new();
    for (lane, _) in lanes(db, &Cursor::default())? {
        firsts.push((lane, number_at(db, lane, 0, place.first_time(lane))?));
    }
    Ok(EventQuery { after: Some(Cursor::after(place, &firsts).text()), ..query.clone() })
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

fn sizes(
    db: &Connection,
    lane: i64,
    from: i64,
    life: Times,
    limit: usize,
) -> Result<Vec<Size>, StoreError> {
    let first = if life.from > i64::MIN { number_at(db, lane, from, life.from)? } else { from };
    let end = match life.to.checked_add(1) {
        Some(later) => number_at(db, lane, first, later)?,
        None => i64::MAX,
    };
    let mut select = db.prepare_cached(SIZES).map_err(failed)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = select
        .query_map((lane, first, end, limit), |row| {
            Ok(Size { lane, n: row.get(0)?, at: row.get(1)?, bytes: row.get(2)? })
        })
        .map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// Returns the number from which the batches of a lane have this time or a later one. Time never
/// falls within a lane, so a binary search finds it, and no index of times must be written.
fn number_at(db: &Connection, lane: i64, from: i64, time: i64) -> Result<i64, StoreError> {
    let mut last = db
        .prepare_cached("select n from event_batch where lane = ?1 order by n desc limit 1")
        .map_err(failed)?;
    let last: Option<i64> = last.query_row([lane], |row| row.get(0)).optional().map_err(failed)?;
    let (mut low, mut high) = (from, last.map_or(from, |last| last.saturating_add(1)));
    let mut probe = db.prepare_cached(FROM).map_err(failed)?;
    while low < high {
        let middle = low + (high - low) / 2;
        let found: Option<(i64, i64)> = probe
            .query_row((lane, middle), |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(failed)?;
        match found {
            Some((n, at)) if at < time => low = n + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// Within which time a job has events: from when it was stored until it came to where it is, and
/// its latest attempt ended. A store that was moved here may have been written by several
/// servers, whose clocks differed little. One that was discarded may have been purged since.
fn life(db: &Connection, query: &EventQuery) -> Result<Times, StoreError> {
    let Some(job) = query.job else { return Ok(EVER) };
    let mut select = db
        .prepare_cached(
            "select j.created, case when f.state is not 'discarded' then max(
                 coalesce(f.at, a.claimed, w.since,
                     (select max(r.since)
                      from class b
                      join class c on c.queue = b.queue and c.job_type = b.job_type
                          and c.route = b.route and c.tenant = b.tenant
                      join ready r on r.class = c.id and r.seq = j.seq
                          and r.rank in (-2 * j.priority, -2 * j.priority - 1)
                      where b.id = j.class)),
                 coalesce(a.started, j.created),
                 coalesce((select max(t.finished) from attempt_row t where t.seq = j.seq),
                     j.created)) end
             from job_row j
             left join finished f on f.seq = j.seq
             left join active a on a.seq = j.seq
             left join waiting w on w.seq = j.seq
             where j.id = ?",
        )
        .map_err(failed)?;
    let found = select.query_row([job.0.as_bytes().as_slice()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
    });
    let Some((from, to)) = found.optional().map_err(failed)? else {
        return Ok(EVER);
    };
    Ok(life_of(query, from, to))
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
