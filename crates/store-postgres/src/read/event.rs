//! The event log, in the order of writing: each lane by itself, merged by time. The lanes of
//! several writers become visible in any order; what a reader has not seen of a lane is after
//! its place, however late it was committed.

use std::collections::HashMap;

use outlast_store::StoreError;
use outlast_store::cursor::{Cursor, Logged, Reading, Window, window};
use outlast_store::event::{EventPage, EventQuery};

use crate::read::Reader;
use crate::row::get;

/// The lanes that are entered (`$2`) or later than `$1`, each with whether it may be written
/// again: one step in the index for each. It is one statement, so that whoever sees a lane sees
/// all that began before it.
const LANES: &str = "with recursive s(lane) as (
         (select lane from event_batch where lane > $1 order by lane limit 1)
         union all
         select (select b.lane from event_batch b where b.lane > s.lane
                 order by b.lane limit 1)
         from s where s.lane is not null),
     open as materialized (select lane from server_batch where lane is not null),
     l as (
         select lane from s where lane is not null
         union select unnest($2::bigint[])
         union select lane from open where lane > $1)
     select l.lane, o.lane is not null from l left join open o on o.lane = l.lane
     order by l.lane";

/// The next batches of each lane.
const BATCHES: &str = "select s.lane, b.n, b.at, b.body
     from unnest($1::bigint[], $2::bigint[]) s(lane, n)
     cross join lateral (
         select b.n, b.at, b.body from event_batch b
         where b.lane = s.lane and b.n >= s.n and b.at >= $3
         order by b.n limit $4) b
     order by s.lane, b.n";

pub(crate) async fn page(reader: &Reader, query: &EventQuery) -> Result<EventPage, StoreError> {
    let mut reading = Reading::of(query)?;
    let oldest = oldest(reader, query).await?;
    loop {
        let windows = windows(reader, reading.cursor(), oldest).await?;
        if reading.read(windows)? {
            return Ok(reading.page());
        }
    }
}

async fn windows(reader: &Reader, cursor: &Cursor, oldest: i64) -> Result<Vec<Window>, StoreError> {
    let entered: Vec<i64> = cursor.entered().collect();
    let rows = reader.all(LANES, &[&cursor.upto(), &entered]).await?;
    let mut lanes: Vec<(i64, bool)> = Vec::with_capacity(rows.len());
    for row in &rows {
        lanes.push((get(row, 0)?, get(row, 1)?));
    }
    let ids: Vec<i64> = lanes.iter().map(|(lane, _)| *lane).collect();
    let from: Vec<i64> = ids.iter().map(|lane| cursor.from(*lane)).collect();
    let limit = window(lanes.len());
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = reader.all(BATCHES, &[&ids, &from, &oldest, &most]).await?;
    let mut batches: HashMap<i64, Vec<Logged>> = HashMap::with_capacity(lanes.len());
    for row in &rows {
        let batch = Logged { n: get(row, 1)?, at: get(row, 2)?, body: get(row, 3)? };
        batches.entry(get(row, 0)?).or_default().push(batch);
    }
    let window =
        |lane: (i64, bool)| Window::new(lane, batches.remove(&lane.0).unwrap_or_default(), limit);
    Ok(lanes.into_iter().map(window).collect())
}

/// Nothing is told of a job before it is stored; clocks of one PostgreSQL differ little.
async fn oldest(reader: &Reader, query: &EventQuery) -> Result<i64, StoreError> {
    let Some(job) = query.job.filter(|_| query.after.is_none()) else { return Ok(i64::MIN) };
    let row = reader.one("select created from job_row where id = $1", &[&job.0]).await?;
    let created: Option<i64> = row.map(|row| get(&row, 0)).transpose()?;
    Ok(created.map_or(i64::MIN, |at| at.saturating_sub(1000)))
}

/// The cursor after everything there is.
pub(crate) async fn end(reader: &Reader) -> Result<String, StoreError> {
    let rows = reader
        .all(
            "select (select lane from event_batch order by lane desc limit 1), s.lane,
                 (select b.n from event_batch b where b.lane = s.lane order by b.n desc limit 1)
             from (select 1) one left join server_batch s on s.lane is not null",
            &[],
        )
        .await?;
    let mut upto = 0;
    let mut open: Vec<(i64, Option<i64>)> = Vec::with_capacity(rows.len());
    for row in &rows {
        upto = get::<Option<i64>>(row, 0)?.unwrap_or_default();
        if let Some(lane) = get::<Option<i64>>(row, 1)? {
            open.push((lane, get(row, 2)?));
        }
    }
    Ok(Cursor::end(upto, open).text())
}
